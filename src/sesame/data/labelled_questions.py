"""Rows of a question, its context and the answers, as tables hold them: for qa. As the JSON of SQuAD: `squad.py`."""

from collections.abc import Mapping
from typing import Any

from sesame.data.columns import column_for, id_in, text_in, unknown_column
from sesame.data.examples import Answer, Example
from sesame.data.squad import Finder, given_answers
from sesame.data.tables import IDS, Table, is_number, listed

_CONTEXTS = listed("context passage paragraph document text")
_QUESTIONS = listed("question query")
_ANSWERS = listed("answers answer label")


def read_question_rows(table: Table, columns: Mapping[str, str], labels: bool) -> tuple[list[Example], str, list[str]]:
    question = column_for(table, columns, "pair", _QUESTIONS, set())
    context = column_for(table, columns, "text", _CONTEXTS, {question})
    answers = column_for(table, columns, "label", _ANSWERS, {question, context})
    for what, option, column in (("context", "text", context), ("question", "pair", question)):
        if column is None:
            raise unknown_column(table, what, option)
    if answers is None and labels:
        raise unknown_column(table, "answers", "label")
    ids = column_for(table, columns, "id", IDS, {question, context, answers})
    start = table.find(["answer_start", "start"])
    assert context is not None
    assert question is not None
    finder, examples = Finder(), []
    for line, row in table.rows:
        place = table.place(line)
        text = text_in(row.get(context), place, context)
        label: tuple[Answer, ...] | None = None
        given = row.get(answers) if answers is not None else None
        if isinstance(given, str) and start is not None:
            given = {"text": given, "start": _whole_number(row.get(start))}
        if str(row.get("is_impossible")).strip().casefold() in ("true", "1"):  # cells of a CSV are texts
            label = ()
        elif given is not None:
            label = finder.find(text, given_answers(given, place), place)
        asked = text_in(row.get(question), place, question)
        examples.append(Example(place, text, asked, label, id=id_in(row, ids)))
    said = f'text = "{context}", pair = "{question}"' + (f', label = "{answers}"' if answers else "")
    return examples, said, [f"{table.path}: {warning}" for warning in finder.warnings()]


def _whole_number(value: Any) -> Any:
    """A number as a CSV writes it, or a column of Parquet with gaps; None for a gap, and what is no number as it is."""
    if value is None or (isinstance(value, str) and not value.strip()) or value != value:
        return None
    if isinstance(value, str) and is_number(value):
        value = float(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value
