"""Tasks as questions: sources that are put together from several columns of a table.

Paper: McCann et al. 2018, "The Natural Language Decathlon" (https://arxiv.org/abs/1806.08730): every task is a question, a
context and an answer, so that one model answers all of them without knowing which is which.
Idea: a template names columns in braces, and each row fills it:
    "question: {question} context: {context}"       a question for each row (SQuAD, and T5's own form of it)
    "what is the summary? {article}"                one question for a whole task
Relations: `parallel` takes one column as it is; T5's prefix is a template with one field at its end.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sesame.data.parallel import Counted, Pair
from sesame.data.parallel_columns import GUESSES
from sesame.data.tables import TABLES, Table, fold, inner_suffix, read_table
from sesame.errors import SesameError

ANSWERS = tuple(dict.fromkeys([*(pair[1] for pair in GUESSES), "label"]))
_FIELD = re.compile(r"\{([^{}]+)\}")


def is_template(source: str | None) -> bool:
    return source is not None and bool(fields_of(source))


def fields_of(template: str) -> list[str]:
    """The columns that it names."""
    return list(dict.fromkeys(_FIELD.findall(template)))


def read_questions(path: str | Path, template: str, target: str | None, counted: Counted) -> tuple[list[Pair], str]:
    """Rows as pairs, and the column of the answers: the one named, else that which its name tells, else the only one left.

    A row whose fields or whose answer are empty is left out and counted.
    """
    file = Path(path)
    if not file.is_file():
        raise SesameError(f"{file}: no such file; check the name")
    if inner_suffix(file) not in TABLES:
        raise SesameError(f"{file}: plain text has no columns to fill {template!r} with; give a table or JSON lines")
    names = fields_of(template)
    table = read_table(file, [*names, *([target] if target else ANSWERS)])
    columns = {name: _column(table, name, template) for name in names}
    answer = _column(table, target, "--target") if target else _answers(table, list(columns.values()))
    found = []
    for line, row in table.rows:
        place = table.place(line)
        cells = {name: _text(row, column, place) for name, column in columns.items()}
        wanted = _text(row, answer, place)
        if wanted and any(cells.values()):
            found.append(Pair(_filled(template, cells), wanted, place))
        else:
            counted.empty += 1
    counted.pairs += len(found)
    if not found:
        raise SesameError(f"{file}: has no row with a text and an answer; check the file")
    return found, answer


def _filled(template: str, cells: Mapping[str, str]) -> str:
    """All fields at once, so that braces inside a cell stay what they are."""
    return _FIELD.sub(lambda field: cells[field[1]], template).strip()


def _column(table: Table, name: str, asked: str) -> str:
    found = name if name in table.columns else table.folded.get(fold(name))
    if found is None:
        raise SesameError(f"{table.path}: has no column {name!r} for {asked!r}; its columns are {table.shown()}")
    return found


def _answers(table: Table, taken: Sequence[str]) -> str:
    named, others = table.find(ANSWERS, taken), [name for name in table.columns if name not in taken]
    if named is None and len(others) != 1:
        raise SesameError(
            f"{table.path}: which column has the answers? It has {table.shown()}; name it with --target, "
            f"or call it {ANSWERS[0]!r}"
        )
    return named or others[0]


def _text(row: dict[str, Any], name: str, place: str) -> str:
    value = row.get(name)
    if isinstance(value, bool | list | dict):
        raise SesameError(f"{place}: the field {name!r} holds no text; mend or remove the row")
    return "" if value is None else str(value).strip()
