"""Parallel text: sentences and their translations, as a stream of pairs in constant memory.

Three shapes, each plain or packed (.gz .xz .zst .bz2):
- two files, line n of one translates line n of the other;
- a table with a tab between the two (.tsv), whose first line is a heading if it names the languages, or says "source" and
  "target" or the like; with names of columns any table of `tables.py` (CSV, TSV, Parquet), whose first two columns are taken
  where it has no heading;
- JSON lines (.jsonl), the two texts in fields that the user names, or the only two that hold text, or, here and in Parquet,
  as Hugging Face's datasets have them: {"translation": {"en": ..., "de": ...}}.

A pair with an empty side is left out; `Counted` tells how many.
"""

import json
import math
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from sesame.data.language_codes import are_languages
from sesame.data.streams import Progress, lines
from sesame.data.tables import JSON_LIST, Table, fold, inner_suffix, read_table, without_lone_surrogates
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


@dataclass(frozen=True)
class Pair:
    source: str
    target: str
    place: str  # "file:line"


@dataclass
class Counted:
    """What a reading met so far."""

    pairs: int = 0
    empty: int = 0  # left out, a side was empty


def read_pairs(
    paths: Sequence[str | Path],
    fields: tuple[str, str] | None = None,
    counted: Counted | None = None,
    progress: Progress | None = None,
) -> Iterator[Pair]:
    """All pairs. `paths`: tables and JSON lines, any number; or two plain text files, the sides of one text."""
    counted = counted if counted is not None else Counted()
    files = [Path(path) for path in paths]
    for file in files:
        if not file.is_file():
            raise SesameError(f"{file}: no such file; name a .tsv or .jsonl file, or the two sides of a text")
    kinds = [_kind(file) for file in files]
    if set(kinds) == {"text"}:
        if len(files) != 2:
            raise SesameError(f"{files[0]}: plain text comes in two files, a side each; {len(files)} were named")
        found = _two_files(files[0], files[1], progress)
    elif "text" in kinds:
        raise SesameError(f"{files[kinds.index('text')]}: is a side of its own; do not mix it with .tsv or .jsonl")
    else:
        found = (
            pair for file, kind in zip(files, kinds, strict=True) for pair in _one_file(file, kind, fields, progress)
        )
    for pair in found:
        if pair.source and pair.target:
            counted.pairs += 1
            yield pair
        else:
            counted.empty += 1
    if counted.pairs == 0:
        raise SesameError(f"{files[0]}: has no pair of two texts; check the file")


def find_columns(path: str | Path, source: str | None, target: str | None) -> tuple[str, str] | None:
    """Which columns of a table or of JSON lines hold sources and answers: those named by the user, else those whose names
    say so, else the only two; None: the file is plain text, or a table without a heading."""
    file = Path(path)
    if not file.is_file():
        raise SesameError(f"{file}: no such file; check the name")
    if _kind(file) == "text":
        if source or target:
            raise SesameError(f"{file}: plain text has no columns; leave --source and --target out")
        return None
    table = _table(file, [name for name in (source, target) if name] or _heading_names(file))
    named = [
        None if name is None else _column(table, name, role) for name, role in ((source, "source"), (target, "target"))
    ]
    guess = _guess(table)
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


def _guess(table: Table) -> tuple[str, str] | None:
    """The columns whose names say that they are source and answer."""
    found = next((pair for pair in GUESSES if all(name in table.folded for name in pair)), None)
    return None if found is None else (table.folded[found[0]], table.folded[found[1]])


def _table(file: Path, given: Collection[str]) -> Table:
    """A table; of one whose rows hold translations, these."""
    table = read_table(file, given)
    inner = next((found for _, row in table.rows if isinstance(found := row.get("translation"), dict)), None)
    if inner is None:
        return table
    rows = [(line, row.get("translation") or dict.fromkeys(inner)) for line, row in table.rows]
    return Table(file, list(inner), rows)


def _heading_names(file: Path) -> list[str]:
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
    if _kind(file) == "text":
        return []
    if inner_suffix(file) in JSON_LINES:
        row = _first_row(file)
        inner = row.get("translation")
        names = list(inner if isinstance(inner, dict) else row)
    else:
        names = _table(file, []).columns if inner_suffix(file) == ".parquet" else _cells_of_heading(file)
    return names if are_languages(names) else []


def has_fields(paths: Sequence[str | Path], names: Collection[str]) -> bool:
    """Whether all tables and JSON lines among the files, and there are some, have columns or fields of these names."""
    files = [Path(path) for path in paths]
    tables = [file for file in files if file.is_file() and _kind(file) != "text"]
    return bool(tables) and all(_names(file, names) >= set(map(fold, names)) for file in tables)


def _names(file: Path, wanted: Collection[str]) -> set[str]:
    """The fields of the first line, or the columns of a table."""
    if _kind(file) == "whole":
        return set(_table(file, wanted).folded)
    first = next((text for _, text, whole in lines(file, LONGEST, None) if text.strip() and whole), "")
    if _kind(file) == "table":
        return {fold(cell) for cell in first.split("\t")}
    row = _first_row(file)
    inner = row.get("translation")
    return set(map(fold, inner if isinstance(inner, dict) else row))


def _kind(file: Path) -> str:
    suffix = inner_suffix(file)
    if suffix in TABLE:
        return "table"
    if suffix in WHOLE:
        return "whole"
    return "json" if suffix in JSON_LINES else "text"


def _two_files(first: Path, second: Path, progress: Progress | None) -> Iterator[Pair]:
    sides = (lines(first, LONGEST, progress), lines(second, LONGEST, progress))
    for a, b in zip_longest(*sides):
        if a is None or b is None:
            longer, shorter = (second, first) if a is None else (first, second)
            number = (b or a)[0]
            raise SesameError(f"{longer}:{number}: {shorter} ends before this line; the two sides need as many lines")
        _check_whole(a, first)
        _check_whole(b, second)
        yield Pair(a[1].strip(), b[1].strip(), f"{first}:{a[0]}")


def _one_file(file: Path, kind: str, fields: tuple[str, str] | None, progress: Progress | None) -> Iterator[Pair]:
    if kind == "table" and fields is None:
        fields = _headed(file)
    if kind == "whole" or (kind == "table" and fields is not None):
        yield from _columns(file, fields)
        return
    width = 0  # cells of the first line
    for line in lines(file, LONGEST, progress):
        number, text, _ = line
        if not text.strip():
            continue
        _check_whole(line, file)
        place = f"{file}:{number}"
        if kind == "table":
            cells = text.split("\t")
            if len(cells) < 2:
                raise SesameError(f"{place}: has no tab; a line is source, tab, target")
            heading, width = not width and _is_heading(cells, place), width or len(cells)
            if any(map(str.strip, cells[width:])):
                raise SesameError(
                    f"{place}: the line has {len(cells)} cells where the first one has {width}; replace tabs inside of "
                    "texts by spaces"
                )
            if not heading:
                yield Pair(cells[0].strip(), cells[1].strip(), place)
        else:
            row = _json_row(text, place)
            fields = fields or _two_texts(row, place)  # of the first line: others may name them in another order
            source, target = (_text(row, _as_written(row, name), place) for name in fields)
            yield Pair(source.strip(), target.strip(), place)


def _headed(file: Path) -> tuple[str, str] | None:
    """The columns of a heading in which source and answer are not simply the first two."""
    first = next((text for _, text, _ in lines(file, LONGEST, None) if text.strip()), "")
    names = [fold(cell) for cell in first.split("\t")]
    found = next((pair for pair in GUESSES if set(pair) <= set(names)), None)
    return None if found is None or tuple(names[:2]) in GUESSES else (found[0], found[1])


def _is_heading(cells: list[str], place: str) -> bool:
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


def _columns(file: Path, fields: tuple[str, str] | None) -> Iterator[Pair]:
    table = _table(file, fields or _heading_names(file))
    fields = fields or _guess(table)
    if fields is None and (not table.header or len(table.columns) == 2):
        fields = (table.columns[0], table.columns[1]) if len(table.columns) > 1 else None
    if fields is None:
        raise SesameError(f"{file}: two columns are needed to guess, found {table.shown()}; give a table of two")
    names = [name if name in table.columns else table.folded.get(fold(name), name) for name in fields]
    for line, row in table.rows:
        place = table.place(line)
        source, target = (_text(row, name, place) for name in names)
        yield Pair(source.strip(), target.strip(), place)


def _json_row(text: str, place: str) -> dict[str, Any]:
    if text.lstrip().startswith("["):
        raise SesameError(f"{place}: {JSON_LIST}")
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SesameError(f"{place}: is not JSON ({error}); mend or remove the line") from error
    if isinstance(row, dict) and isinstance(row.get("translation"), dict):
        row = row["translation"]
    if not isinstance(row, dict):
        raise SesameError(f"{place}: is not an object with two texts; mend or remove the line")
    return without_lone_surrogates(row) if "\\u" in text else row


def _two_texts(row: dict[str, Any], place: str) -> tuple[str, str]:
    names = [name for name, value in row.items() if isinstance(value, str)]
    if len(names) != 2:
        have = ", ".join(names) or "none"
        raise SesameError(
            f"{place}: two fields with text are needed to guess, found {have}; call them by the languages' names"
        )
    return names[0], names[1]


def _as_written(row: dict[str, Any], name: str) -> str:
    """A field in its own capitals, as tables find their columns."""
    return name if name in row else next((key for key in row if fold(key) == fold(name)), name)


def _text(row: dict[str, Any], name: str, place: str) -> str:
    value = row.get(name, 0)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""  # how JSON and Parquet say that a side is empty: null, and NaN among numbers
    if isinstance(value, int | float) and not isinstance(value, bool) and name in row:
        return str(value)  # a score that is told as text
    if name not in row:
        raise SesameError(f"{place}: has no field {name!r}; add it or remove the line")
    if not isinstance(value, str):
        raise SesameError(f"{place}: the field {name!r} holds no text; call the two by the languages' names")
    return value


def _check_whole(line: tuple[int, str, bool], file: Path) -> None:
    if not line[2]:
        raise SesameError(
            f"{file}:{line[0]}: is longer than a million characters; a line is one sentence, so cut it into several"
        )
