"""Rows of words with a tag for each, as tables hold them: for tag. In columns, a word a line: `conll.py`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sesame.data.columns import briefly, column_for, id_in, unknown_column
from sesame.data.conll import Sentence, Tagged, tagged
from sesame.data.examples import Example
from sesame.data.tables import IDS, Table, listed
from sesame.errors import SesameError

_WORDS = listed("tokens words text sentence")
_TAGS = listed("ner_tags tags labels label ner tag")


def read_word_rows(table: Table, columns: Mapping[str, str], labels: bool) -> Tagged:
    words = column_for(table, columns, "text", _WORDS, set())
    if words is None:
        raise unknown_column(table, "words", "text")
    tags = column_for(table, columns, "label", _TAGS, {words})
    if tags is None and labels:
        raise unknown_column(table, "tags", "label")
    ids = column_for(table, columns, "id", IDS, {words, tags})
    named = words.casefold() in ("tokens", "words")  # then blanks part them, as in the file that was learnt from
    if tags is None and not named and all(isinstance(row.get(words), str) for _, row in table.rows):
        # Texts as people write them: read as lines are, what a word is there is the task's business.
        plain = [Example(table.place(line), row[words], id=id_in(row, ids)) for line, row in table.rows]
        return Tagged(plain, f"{table.path.name}: {len(plain):,} texts", [])
    sentences, names, numbers = [], [], True
    for line, row in table.rows:
        place = table.place(line)
        cells = ["" if word is None else str(word).strip() for word in _list(row.get(words), place, words)]
        one = Sentence(place, 0, cells, None)
        if tags is not None and (labels or row.get(tags) is not None):
            given = _list(row.get(tags), place, tags)
            numbers = numbers and all(isinstance(tag, int) for tag in given)
            one.tags = _tags(given, len(cells), place)
        sentences.append(one)
        names.append(id_in(row, ids))
    by_place = {one.file: name for one, name in zip(sentences, names, strict=True)}
    found = tagged(sentences, table.path, labels, strict="label" in columns or labels, numbers=numbers)
    examples = [replace(one, id=by_place[one.place]) for one in found.examples]
    lost = len(sentences) - len(examples)
    warnings = [f"{table.path}: left out {lost:,} of {len(sentences):,} rows without words"] if lost else []
    return Tagged(examples, found.said, [*table.warnings, *found.warnings, *warnings])


def _tags(given: list[Any], words: int, place: str) -> list[str]:
    if len(given) != words:
        raise SesameError(f"{place}: there are {words} words and {len(given)} tags; give one tag for each word")
    return [str(tag) for tag in given]


def _list(value: Any, place: str, column: str) -> list[Any]:
    if isinstance(value, str):
        return value.split()
    if not isinstance(value, list):
        raise SesameError(
            f"{place}: {column!r} holds {briefly(value)}, neither a text nor a list; mend the row or choose another column"
        )
    return value
