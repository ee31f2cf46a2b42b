"""Multiple choice: rows with a stem, two or more options and the right one, as the published sets write them.

The options are one column with a list, or several that are numbered (ending0, ending1 ...). The right one is told by its
text, its letter or its number, which may count from 0 or from 1: what all rows together show decides. Where the options are
numbers themselves, one answer beyond all numbers of options shows that answers are told by their text.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sesame.data.columns import briefly, column_for, id_in, text_in, unknown_column
from sesame.data.examples import Example
from sesame.data.tables import IDS, Table, listed
from sesame.errors import SesameError

_STEMS = listed("""startphrase sent1:sent2 article:question passage:question context:question premise:question ctx stem
    question_stem premise context question goal sentence text""")
_OPTIONS = listed("options choices endings")
_NUMBERED_OPTION = re.compile(r"(?:ending|option|choice|answer|sol)_?(?:\d|[a-h])")
_UNSURE = (
    "no row shows whether answers count from 0 or from 1; they are taken to count from 0, write letters if they do not"
)
_RIGHT_ONES = listed("label answer answerkey answer_key correct target gold")


def read_choices(table: Table, columns: Mapping[str, str], labels: bool) -> tuple[list[Example], str, list[str]]:
    """The examples of a table, which columns were taken, and warnings.

    A stem may stand in two columns (SWAG's sent1 and sent2, a passage and its question), which are then joined.
    """
    stems = [table.given(role, columns[role]) for role in ("text", "pair") if role in columns]
    if not stems:
        known = (names.split(":") for names in _STEMS)
        found = next((names for names in known if all(name in table.folded for name in names)), [])
        stems = [table.folded[name] for name in found]
    if not stems:
        raise unknown_column(table, "stem", "text")
    options = table.find(_OPTIONS)
    several = [name for name in table.columns if _NUMBERED_OPTION.fullmatch(name.casefold()) and name not in stems]
    if options is None and len(several) < 2:
        raise SesameError(
            f"{table.path}: cannot tell which columns hold the options; its columns are {table.shown()}: call one with "
            "a list 'options', or several 'ending0', 'ending1' ..."
        )
    right = column_for(table, columns, "label", _RIGHT_ONES, {*stems, *several, options})
    if right is None and labels:
        raise unknown_column(table, "right answer", "label")
    ids = column_for(table, columns, "id", IDS, {*stems, right})
    joint = " " if [name.casefold() for name in stems] == ["sent1", "sent2"] else "\n"
    trusted = labels or "label" in columns  # a test set may tell no right one by -1: that must not stop a prediction
    rows = []
    for line, row in table.rows:
        place = table.place(line)
        stem = joint.join(filter(None, (text_in(row.get(name), place, name).strip() for name in stems)))
        texts, letters = _options(_cells(row, several) if options is None else row.get(options), place)
        label = None
        if right is not None:
            try:
                label = _right_one(row.get(right), texts, letters, place)
            except SesameError:
                if trusted:
                    raise
        rows.append((Example(place, stem, options=texts, id=id_in(row, ids)), label))
    examples, said = _numbered(rows, trusted)
    shown = ", ".join(stems) + (f'", label = "{right}' if right else "")
    return examples, f'text = "{shown}"{said}', [f"{table.path}: {_UNSURE}"] if labels and _unsure(rows) else []


def _cells(row: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
    """The options of a row that has a column for each; where it has fewer than others, the last ones are empty."""
    cells = [row.get(name) for name in names]
    while cells and (cells[-1] is None or (isinstance(cells[-1], str) and not cells[-1].strip())):
        cells.pop()
    return cells


def _options(value: Any, place: str) -> tuple[tuple[str, ...], list[str]]:
    """The options and, where the file names them itself ({"label": ["A", ...], "text": [...]}), their letters."""
    letters: list[str] = []
    if isinstance(value, dict) and isinstance(value.get("text"), list) and isinstance(value.get("label"), list):
        letters, value = [str(letter) for letter in value["label"]], value["text"]
    if not isinstance(value, list) or not all(isinstance(one, str) and one.strip() for one in value) or len(value) < 2:
        raise SesameError(f"{place}: the options are {briefly(value)}, not two or more texts; mend or remove the row")
    if letters and len(letters) != len(value):
        raise SesameError(
            f"{place}: the {len(value)} options have {len(letters)} letters; give one letter for each, or remove the row"
        )
    return tuple(one.strip() for one in value), letters


def _right_one(value: Any, options: tuple[str, ...], letters: list[str], place: str) -> int | str | None:
    """The number of the right option if that is sure, else the digits as a text: they may count from 0 or from 1."""
    value = value.strip() if isinstance(value, str) else value
    if value is None or value == "":
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    name = str(value)
    if name in letters:
        return letters.index(name)
    if name in options and not name.isdecimal():
        return options.index(name)
    if len(name) == 1 and 0 <= ord(name.upper()) - ord("A") < len(options):
        return ord(name.upper()) - ord("A")
    if name.isdecimal() and (int(name) <= len(options) or name in options) and not isinstance(value, bool):
        return name
    raise SesameError(
        f"{place}: the right answer is {briefly(value)}, none of the {len(options)} options; write its number or letter"
    )


def _unsure(rows: list[tuple[Example, int | str | None]]) -> bool:
    """Whether there are numbers, but neither a 0 nor one as large as the number of its options."""
    numbers = [(int(label), len(one.options)) for one, label in rows if isinstance(label, str)]
    return bool(numbers) and not any(number == 0 or number >= count for number, count in numbers)


def _by_text(rows: list[tuple[Example, int | str | None]], trusted: bool) -> list[Example]:
    """The answers of rows of which one has a larger number than it has options: all of them are texts."""
    sure = next(one.place for one, label in rows if isinstance(label, str) and int(label) > len(one.options))
    examples = []
    for one, label in rows:
        at = label
        if isinstance(label, str):
            at = one.options.index(label) if label in one.options else None
            if at is None and trusted:
                raise SesameError(
                    f"{one.place}: the right answer {label} is none of the options, but {sure} tells it by its text; do so "
                    "in all rows, or write letters"
                )
        examples.append(replace(one, label=at))
    return examples


def _numbered(rows: list[tuple[Example, int | str | None]], trusted: bool) -> tuple[list[Example], str]:
    """Turn numbers into positions. They count from 1 if one of them is as large as the number of its options."""
    if any(isinstance(label, str) and int(label) > len(one.options) for one, label in rows):
        return _by_text(rows, trusted), ", answers told by their text"
    above = next((one for one, label in rows if isinstance(label, str) and int(label) == len(one.options)), None)
    zero = next((one for one, label in rows if isinstance(label, str) and int(label) == 0), None)
    if above is not None and zero is not None:
        raise SesameError(
            f"{above.place}: the right answer is number {len(above.options)} of {len(above.options)}, but {zero.place} "
            "counts from 0; count from 0 or from 1 in all rows"
        )
    shift = 0 if above is None else 1
    examples = [replace(one, label=int(label) - shift if isinstance(label, str) else label) for one, label in rows]
    return examples, "" if above is None else ", answers count from 1"
