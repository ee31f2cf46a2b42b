"""Which columns of a table, or fields of JSON lines, hold sources and their answers; which languages a file says it holds.

Columns that the user names are taken; else those whose names say so (`GUESSES`), or that are called by the languages.
"""

import json
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from sesame.data.language_codes import are_languages
from sesame.data.streams import lines
from sesame.data.tables import Table, fold, inner_suffix, read_table
from sesame.errors import SesameError
from sesame.progress import say

LONGEST = 1 << 20  # characters of a line
TABLE, JSON_LINES = (".tsv", ".tab"), (".jsonl", ".ndjson", ".json")
WHOLE = (".csv", ".parquet")  # tables that are read whole
GUESSES = tuple(  # names of columns that hold a source and its answer, the likeliest first
    tuple(names.split(":"))
    for names in [
        "source:target",
        "src:tgt",
        "input:output",
        "inputs:targets",
        "document:summary",
        "article:highlights",
        "article:summary",
        "dialogue:summary",
        "text:summary",
        "body:subject",
        "email:subject",
        "question:answer",
        "prompt:completion",
        "sentence:tree",
        "text:target",
    ]
)
GUESSED = [name for pair in GUESSES for name in pair]


def find_columns(path: str | Path, source: str | None, target: str | None) -> tuple[str, str] | None:
    """Which columns of a table or of JSON lines hold sources and answers: those named by the user, else those whose names
    say so, else the only two; None: the file is plain text, or a table without a heading."""
    file = Path(path)
    if not file.is_file():
        raise SesameError(f"{file}: no such file; check the name")
    if kind_of(file) == "text":
        if source or target:
            raise SesameError(f"{file}: plain text has no columns; leave --source and --target out")
        return None
    table = table_of(file, [name for name in (source, target) if name] or heading_names(file))
    named = [
        None if name is None else _column(table, name, role) for name, role in ((source, "source"), (target, "target"))
    ]
    guess = guessed_columns(table)
    others = [name for name in table.columns if name not in named]
    if guess is not None and not any(named):
        named = list(guess)
    elif len(others) == named.count(None):
        named = [name or others.pop(0) for name in named]
    if None in named:
        raise SesameError(
            f"{file}: which columns are source and answer? It has {table.shown()}; name them with --source and --target, "
            "without a heading by their numbers: --source 1 --target 2"
        )
    first, second = (str(name) for name in named)
    if first == second:
        raise SesameError(f"{file}: --source and --target are the same column {first!r}; name two")
    return first, second


def guessed_columns(table: Table) -> tuple[str, str] | None:
    """The columns whose names say that they are source and answer."""
    found = next((pair for pair in GUESSES if all(name in table.folded for name in pair)), None)
    return None if found is None else (table.folded[found[0]], table.folded[found[1]])


def table_of(file: Path, given: Collection[str]) -> Table:
    """A table; of one whose rows hold translations, these."""
    table = read_table(file, given)
    inner = next((found for _, row in table.rows if isinstance(found := row.get("translation"), dict)), None)
    if inner is None:
        return table
    rows = [(line, row.get("translation") or dict.fromkeys(inner)) for line, row in table.rows]
    return Table(file, list(inner), rows)


def heading_names(file: Path) -> list[str]:
    """Names that tell a heading from a row: those of source and answer, and the languages if the first line names two."""
    if inner_suffix(file) not in (*TABLE, ".csv"):
        return GUESSED
    cells = _cells_of_heading(file)
    return [*GUESSED, *cells] if are_languages(cells) else GUESSED


def _cells_of_heading(file: Path) -> list[str]:
    first = next((text for _, text, _ in lines(file, LONGEST, None) if text.strip()), "")
    return [cell.strip(' "') for cell in re.split("[\t,;|]", first)]


def _first_row(file: Path) -> dict[str, Any]:
    """The first line; one that is no JSON has no fields, and is told about by who reads it."""
    first = next((text for _, text, _ in lines(file, LONGEST, None) if text.strip()), "")
    try:
        row = json.loads(first)
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def _column(table: Table, name: str, role: str) -> str:
    found = name if name in table.columns else table.folded.get(fold(name))
    if found is None:
        raise SesameError(f"{table.path}: has no column {name!r} for --{role}; its columns are {table.shown()}")
    return found


def named_fields(paths: Sequence[str | Path], languages: tuple[str, str]) -> tuple[str, str] | None:
    """The languages, if JSON lines call their fields so, or tables their columns; their order then does not matter."""
    return languages if has_fields(paths, languages) else None


def check_languages(path: str | Path, languages: tuple[str, str]) -> None:
    """Complain of columns or fields that are called by other languages, or by these in another order and spelling."""
    file = Path(path)
    names = _languages_in(file)
    ours, theirs = ([fold(name).split("_")[0] for name in each] for each in (languages, names))
    if names and are_languages(languages) and ours != theirs and not has_fields([file], languages):
        raise SesameError(
            f"{file}: is named as {' and '.join(languages)}, but its own names are {' and '.join(names)}; mend one of the two"
        )


def _languages_in(file: Path) -> list[str]:
    """The two languages that a file says it holds, if it does."""
    if kind_of(file) == "text":
        return []
    if inner_suffix(file) in JSON_LINES:
        row = _first_row(file)
        inner = row.get("translation")
        names = list(inner if isinstance(inner, dict) else row)
    else:
        names = table_of(file, []).columns if inner_suffix(file) == ".parquet" else _cells_of_heading(file)
    return names if are_languages(names) else []


def has_fields(paths: Sequence[str | Path], names: Collection[str]) -> bool:
    """Whether all tables and JSON lines among the files, and there are some, have columns or fields of these names."""
    files = [Path(path) for path in paths]
    tables = [file for file in files if file.is_file() and kind_of(file) != "text"]
    return bool(tables) and all(_names(file, names) >= set(map(fold, names)) for file in tables)


def _names(file: Path, wanted: Collection[str]) -> set[str]:
    """The fields of the first line, or the columns of a table."""
    if kind_of(file) == "whole":
        return set(table_of(file, wanted).folded)
    first = next((text for _, text, whole in lines(file, LONGEST, None) if text.strip() and whole), "")
    if kind_of(file) == "table":
        return {fold(cell) for cell in first.split("\t")}
    row = _first_row(file)
    inner = row.get("translation")
    return set(map(fold, inner if isinstance(inner, dict) else row))


def kind_of(file: Path) -> str:
    suffix = inner_suffix(file)
    if suffix in TABLE:
        return "table"
    if suffix in WHOLE:
        return "whole"
    return "json" if suffix in JSON_LINES else "text"


def headed(file: Path) -> tuple[str, str] | None:
    """The columns of a heading in which source and answer are not simply the first two."""
    first = next((text for _, text, _ in lines(file, LONGEST, None) if text.strip()), "")
    names = [fold(cell) for cell in first.split("\t")]
    found = next((pair for pair in GUESSES if set(pair) <= set(names)), None)
    return None if found is None or tuple(names[:2]) in GUESSES else (found[0], found[1])


def is_heading(cells: list[str], place: str) -> bool:
    """Whether the first line of a table is a heading; says so, and which columns are taken where there are more than two."""
    if (fold(cells[0]), fold(cells[1])) in GUESSES or are_languages(cells[:2]):
        say(f"{place}: is taken for a heading")
        return True
    if len(cells) > 2 and cells[0].strip().isdigit():
        raise SesameError(
            f"{place}: the first column holds numbers; name the columns in a first line, such as en, tab, de"
        )
    if len(cells) > 2:
        say(f"{place}: has {len(cells)} columns; the first two are source and answer")
    return False
