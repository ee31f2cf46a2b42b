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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from sesame.data.parallel_columns import LONGEST, guessed_columns, headed, heading_names, is_heading, kind_of, table_of
from sesame.data.streams import Progress, lines
from sesame.data.tables import JSON_LIST, fold, without_lone_surrogates
from sesame.errors import SesameError


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
    kinds = [kind_of(file) for file in files]
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
    if kind == "json":
        return _json_lines(file, fields, progress)
    if kind == "table" and fields is None:
        fields = headed(file)
    return _tabbed_lines(file, progress) if kind == "table" and fields is None else _named_columns(file, fields)


def _tabbed_lines(file: Path, progress: Progress | None) -> Iterator[Pair]:
    """Source, tab, target; a first line that is a heading is left out."""
    width = 0  # cells of the first line
    for text, place in _filled_lines(file, progress):
        cells = text.split("\t")
        if len(cells) < 2:
            raise SesameError(f"{place}: has no tab; a line is source, tab, target")
        heading, width = not width and is_heading(cells, place), width or len(cells)
        if any(map(str.strip, cells[width:])):
            raise SesameError(
                f"{place}: the line has {len(cells)} cells where the first one has {width}; replace tabs inside of "
                "texts by spaces"
            )
        if not heading:
            yield Pair(cells[0].strip(), cells[1].strip(), place)


def _json_lines(file: Path, fields: tuple[str, str] | None, progress: Progress | None) -> Iterator[Pair]:
    for text, place in _filled_lines(file, progress):
        row = _json_row(text, place)
        fields = fields or _two_texts(row, place)  # of the first line: others may name them in another order
        source, target = (_text(row, _as_written(row, name), place) for name in fields)
        yield Pair(source.strip(), target.strip(), place)


def _filled_lines(file: Path, progress: Progress | None) -> Iterator[tuple[str, str]]:
    """The lines that hold something, and their places."""
    for line in lines(file, LONGEST, progress):
        if line[1].strip():
            _check_whole(line, file)
            yield line[1], f"{file}:{line[0]}"


def _named_columns(file: Path, fields: tuple[str, str] | None) -> Iterator[Pair]:
    table = table_of(file, fields or heading_names(file))
    fields = fields or guessed_columns(table)
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
