"""Lists of entities and texts in which they are marked; what of them stands in a text is told."""

import json
import re
from pathlib import Path

import pytest

from sesame.data.entity_files import read_entities
from sesame.data.store import Store
from sesame.data.unit_files import Units, _tell_nothing
from sesame.errors import SesameError
from tests.languages import store_of, word_tokenizer


def starts_of(units: Units, store: Store) -> list[int]:
    found = units.starts(store, "entities")
    assert found is not None
    return found.tolist()


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (("new york",), ""),
        (("new york LOC",), "none of them stands in the text as it is written"),
        (("york new", "new old"), "the list of entities changes nothing"),
        (("york",), ""),  # of one piece: hidden whole anyway
    ],
)
def test_a_list_that_does_not_fit_the_text_is_told(
    names: tuple[str, ...], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A list with kinds behind its names, or in another script, changed nothing, without a word."""
    tokenizer = word_tokenizer(["new", "york", "old", "town", "in"])
    store = store_of("old town in new york\nnew york\n", tokenizer, tmp_path)
    for _ in range(2):  # found, and kept in the cache
        _tell_nothing.cache_clear()
        starts_of(Units(tokenizer, names), store)
        starts_of(Units(tokenizer, names), store)
        said = capsys.readouterr().err
        assert told in said
        assert said.count("warning") == bool(told)


def test_an_entity_of_unknown_pieces_is_no_other_one(tmp_path: Path) -> None:
    """[UNK] [UNK] stood for any two words that the tokenizer does not know."""
    tokenizer = word_tokenizer(["new", "york"])
    store = store_of("new york beside stranger words\n", tokenizer, tmp_path)
    units = Units(tokenizer, ("łódź łąka", "new york"))
    assert units.sequences == [tokenizer.encode("new york").ids]
    assert starts_of(units, store) == [1, 0, 1, 1, 1]


MARKED = {
    "pairs": {"text": "She left New  York 🗽 for Bonn.", "spans": [[9, 18], [25, 29, "GPE"]]},
    "objects": {"text": "😀 Bonn", "entities": [{"start": 2, "end": 6, "label": "GPE"}]},
    "none": {"text": "Nothing here.", "spans": []},
}


def test_marked_spans_are_entities(tmp_path: Path) -> None:
    """Each span is what Python cuts out of the text, whatever is before it."""
    file = tmp_path / "marked.jsonl"
    file.write_text("\n\n".join(map(json.dumps, MARKED.values())), encoding="utf-8")
    assert read_entities(file) == ["New York", "Bonn"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("New York", "marked.jsonl:2: is no text with spans"),
        ('{"text": "Bonn"}', "marked.jsonl:2: is no text with spans"),
        ('{"text": null, "spans": []}', "is no text with spans"),
        ('{"text": "Bonn", "spans": [[0, "4"]]}', "is no text with spans"),
        ('{"text": "Bonn", "spans": ["Bonn"]}', "is no text with spans"),
        ('{"text": "Bonn", "spans": [[0, 5]]}', "2: the span 0 to 5 does not lie in a text of 4 characters"),
        ('{"text": "Bonn", "spans": [[2, 2]]}', "the span 2 to 2"),
    ],
)
def test_bad_spans_are_told(line: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "marked.jsonl"
    file.write_text(json.dumps(MARKED["pairs"]) + "\n" + line)
    with pytest.raises(SesameError, match=re.escape(told)):
        read_entities(file)


def test_a_table_is_no_list(tmp_path: Path) -> None:
    (tmp_path / "names.csv").write_text("name,kind\nBonn,GPE\n")
    with pytest.raises(SesameError, match=r"names\.csv: is a table; .* one a line"):
        read_entities(tmp_path / "names.csv")
