"""Rows of texts, or pairs of texts, with a class, several classes or a number: for classify and regress."""

import math
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from sesame.data.columns import briefly, column_for, id_in, text_columns, text_in, unknown_column, unread
from sesame.data.examples import Example
from sesame.data.tables import IDS, Table, fold, is_number
from sesame.errors import SesameError

LARGEST_SCORE = 1e36  # a model computes in 32 bits, which end at 3e38


def read_text_rows(
    table: Table, columns: Mapping[str, str], labels: bool, task: str, multi: str | None
) -> tuple[list[Example], str, list[str]]:
    """The examples of a table, which columns were taken, and warnings. `multi`: what separates several labels."""
    text, pair, label = text_columns(table, columns, task, labels)
    if text is None:
        raise unknown_column(table, "text", "text")
    if label is None and labels:
        raise unknown_column(table, "label", "label")
    ids = column_for(table, columns, "id", IDS, {text, pair, label})
    unsure = label is not None and fold(label) == "gold_label"
    read: Callable[[Any, str, str], Any] = _score if task == "regress" else _names(multi, unsure)
    trusted = labels or "label" in columns  # a column that was only guessed must not stop a prediction
    examples = []
    for line, row in table.rows:
        place = table.place(line)
        first = text_in(row.get(text), place, text).strip()
        second = None if pair is None else text_in(row.get(pair), place, pair).strip()
        found = None
        if label is not None:
            try:
                found = read(row.get(label), place, label)
            except SesameError:
                if trusted:
                    raise
        examples.append(Example(place, first, second, found, id=id_in(row, ids)))
    if any(isinstance(one.label, tuple) for one in examples):
        examples = [replace(one, label=(one.label,)) if isinstance(one.label, str) else one for one in examples]
    chosen = {"text": text, "pair": pair, "label": label}
    said = ", ".join(f'{role} = "{name}"' for role, name in chosen.items() if name is not None)
    guessed = any(name is not None and role not in columns for role, name in chosen.items())
    said = ("" if table.header else "no header; ") + said + (" (guessed)" if guessed else "")
    if pair is None and "text" not in columns and (left := unread(table, {text, label})):
        said += f"; not read: {', '.join(map(repr, left))}"
    return examples, said, _alike(table.path, examples) if labels and task == "classify" else []


def _alike(path: Path, examples: list[Example]) -> list[str]:
    """A warning about labels that only their spelling makes different classes: "Yes" and "yes", "1" and "1.0"."""
    names = {name for one in examples for name in (one.label if isinstance(one.label, tuple) else [one.label]) if name}
    spellings: dict[str, list[str]] = {}
    for name in sorted(map(str, names)):
        folded = " ".join(unicodedata.normalize("NFKC", name).casefold().split())
        spellings.setdefault(str(float(folded)) if is_number(folded) else folded, []).append(name)
    several = [names for names in spellings.values() if len(names) > 1]
    if not several:
        return []
    first = ", ".join(f'"{name}"' for name in several[0][:5])
    more = f", and {len(several) - 1:,} more such groups" if len(several) > 1 else ""
    return [f"{path}: the labels {first}{more} are taken for different classes; write them alike if they mean the same"]


def _names(multi: str | None, unsure: bool = False) -> Callable[[Any, str, str], Any]:
    """`unsure`: a label "-" is none, as where the annotators of SNLI and MultiNLI did not agree."""

    def read(value: Any, place: str, column: str) -> str | tuple[str, ...] | None:
        if unsure and value == "-":
            return None
        if multi and isinstance(value, str):
            value = [part for part in value.split(multi) if part.strip()]
        if isinstance(value, list):
            names = [_name(one, place, column) for one in value]
            return tuple(dict.fromkeys(name for name in names if name is not None))
        return _name(value, place, column)

    return read


def _name(value: Any, place: str, column: str) -> str | None:
    if isinstance(value, str):
        return value.strip() or None
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, float | Decimal) and value % 1 == 0:
        return str(int(value))
    if isinstance(value, bool | int | float | Decimal):
        return str(value)
    raise SesameError(f"{place}: {column!r} holds {briefly(value)}, not a label; mend the row or choose another column")


def _score(value: Any, place: str, column: str) -> float | None:
    if value is None or value == "" or (isinstance(value, str) and value.isspace()):
        return None
    if isinstance(value, str | int | float | Decimal) and not isinstance(value, bool):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            number = math.nan
        if abs(number) <= LARGEST_SCORE:
            return number
        if math.isfinite(number):
            raise SesameError(
                f"{place}: {column!r} holds {briefly(value)}, too large a score for a model; divide all of them"
            )
    raise SesameError(
        f"{place}: {column!r} holds {briefly(value)}, not a finite number; write it like 3.5, or choose another column "
        "with --label-column"
    )
