"""Which column of a table plays which part for a task, and what its cells hold.

A user's word decides; else the name of a column does. Whatever cannot be told is a sentence that lists the columns and the
option to choose with.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any

from sesame.data.tables import LABELS, PAIRS, SCORES, TEXTS, Table, fold, inner_suffix, is_number
from sesame.errors import SesameError

ROLES = ("text", "pair", "label", "id")


def column_for(
    table: Table, columns: Mapping[str, str], role: str, names: list[str], taken: set[str | None]
) -> str | None:
    """The column for a role: the user's, else the first known name."""
    if role in columns:
        return table.given(role, columns[role])
    return table.find(names, taken)


def text_columns(
    table: Table, columns: Mapping[str, str], task: str, labels: bool
) -> tuple[str | None, str | None, str | None]:
    """The columns of the text, the second text and the label; those that are not given are guessed by their names."""
    text, pair, label = (table.given(role, columns[role]) if role in columns else None for role in ROLES[:3])
    names = SCORES if task == "regress" else LABELS
    if text is None and pair is None:
        for one, other in (known.split(":") for known in PAIRS):
            if one in table.folded and other in table.folded and label not in (table.folded[one], table.folded[other]):
                text, pair = table.folded[one], table.folded[other]
                break
    text = text or table.find(TEXTS, {pair, label})
    label = label or table.find(names, {text, pair})
    rest = [name for name in table.columns if name not in (text, pair, label)]
    if len(table.columns) == 2 and text is None and label is None:
        text, label = _two_columns(table, task)
    elif len(table.columns) == 1 and not labels:
        text = text or table.columns[0]
    elif len(rest) == 1 and text is None:
        text = rest[0]
    elif len(rest) == 1 and label is None and labels and len(table.columns) == (2 if pair is None else 3):
        label = rest[0]
    return text, pair, label


def unread(table: Table, chosen: Collection[str | None]) -> list[str]:
    """Columns called as texts are that play no part: where one of them is the second text, half of each row is lost."""
    known = {*TEXTS, *(name for pair in PAIRS for name in pair.split(":")), "answer"}
    return [name for name in table.columns if fold(name) in known and name not in chosen]


def _two_columns(table: Table, task: str) -> tuple[str, str]:
    """Which of two columns is the text and which the label: labels repeat more, or else are shorter."""

    def like_a_label(name: str) -> tuple[bool, int, int]:
        cells = [str(row.get(name, "")) for _, row in table.rows]
        numbers = task == "regress" and all(map(is_number, filter(None, cells)))
        return not numbers, len(set(cells)), sum(map(len, cells))

    first, second = table.columns
    return (second, first) if like_a_label(first) < like_a_label(second) else (first, second)


def unknown_column(table: Table, what: str, option: str) -> SesameError:
    """The complaint where no column is called as those that hold such things are."""
    cells = inner_suffix(table.path) in (".csv", ".tsv", ".tab")
    numbers = f"; without a header by number, as in --{option}-column 1" if cells else ""
    return SesameError(
        f"{table.path}: cannot tell which column holds the {what}; its columns are {table.shown()}: choose with "
        f"--{option}-column (there are --text-column, --pair-column and --label-column{numbers})"
    )


def text_in(value: Any, place: str, column: str) -> str:
    """The text of a cell, "" where there is none; anything but a text is a mistake."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise SesameError(
            f"{place}: {column!r} holds {briefly(value)}, not a text; mend the row or choose another column"
        )
    return value


def briefly(value: Any) -> str:
    """A cell as a sentence can show it."""
    return json.dumps(value, default=str, ensure_ascii=False)[:40]


def id_in(row: dict[str, Any], column: str | None) -> str:
    """The name of a row, "" where it has none."""
    return "" if column is None or row.get(column) is None else str(row[column])
