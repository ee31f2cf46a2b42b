"""Which column of a table plays which part for a task, and what its cells hold.

A user's word decides; else the name of a column does. Whatever cannot be told is a sentence that lists the columns and the
option to choose with.
"""

import json
from collections.abc import Mapping
from typing import Any

from sesame.data.tables import Table, inner_suffix
from sesame.errors import SesameError


def column_for(table: Table, columns: Mapping[str, str], role: str, names: list[str], taken: set[str | None]) -> str | None:
    """The column for a role: the user's, else the first known name."""
    if role in columns:
        return table.given(role, columns[role])
    return table.find(names, taken)


def unknown_column(table: Table, what: str, option: str) -> SesameError:
    cells = inner_suffix(table.path) in (".csv", ".tsv", ".tab")
    numbers = f"; without a header by number, as in --{option}-column 1" if cells else ""
    return SesameError(
        f"{table.path}: cannot tell which column holds the {what}; its columns are {table.shown()}: choose with "
        f"--{option}-column (there are --text-column, --pair-column and --label-column{numbers})"
    )


def text_in(value: Any, place: str, column: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise SesameError(
            f"{place}: {column!r} holds {shown(value)}, not a text; mend the row or choose another column"
        )
    return value


def shown(value: Any) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)[:40]


def id_in(row: dict[str, Any], column: str | None) -> str:
    return "" if column is None or row.get(column) is None else str(row[column])
