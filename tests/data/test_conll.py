"""CoNLL columns: four schemes become one, and what breaks its scheme is mended and counted."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import BILOU, IOB1, IOB2, IOBES, Entities, Token

from sesame.data.conll import to_iob2
from sesame.data.labelled import Labelled, read_labelled
from sesame.errors import SesameError

SCHEMES = {
    "IOB1": "I-X I-X O I-X B-X I-Y I-Y",
    "IOB2": "B-X I-X O B-X B-X B-Y I-Y",
    "BIOES": "B-X E-X O S-X S-X B-Y E-Y",
    "BILOU": "B-X L-X O U-X U-X B-Y L-Y",
}


def read(path: Path, data: str, labels: bool = True, **columns: str) -> Labelled:
    path.write_text(data, encoding="utf-8")
    return read_labelled(path, "tag", columns, labels=labels)


def fails(path: Path, data: str, *parts: str, **columns: str) -> None:
    with pytest.raises(SesameError) as caught:
        read(path, data, **columns)
    for part in (str(path), "; ", *parts):
        assert part in str(caught.value)


def rows(tags: str) -> str:
    return "".join(f"w{number} {tag}\n" for number, tag in enumerate(tags.split()))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_becomes_iob2(tmp_path: Path, scheme: str) -> None:
    found = read(tmp_path / "a.txt", rows(SCHEMES[scheme]) + "\n" + rows("O " + SCHEMES[scheme]))
    assert found.examples[0].label == tuple(SCHEMES["IOB2"].split())
    assert found.examples[1].label == ("O", *SCHEMES["IOB2"].split())
    assert f"tags are {scheme}" in found.said
    assert ("read as IOB2" in found.said) == (scheme != "IOB2")
    assert not found.warnings


LETTERS = {"IOB1": IOB1, "IOB2": IOB2, "BIOES": IOBES, "BILOU": BILOU}
ENTITIES = st.lists(st.tuples(st.sampled_from(["", "X", "Y"]), st.integers(1, 3)), min_size=1, max_size=8)


def encode(entities: list[tuple[str, int]], scheme: str) -> list[str]:
    """Write entities ("" is outside) in a scheme, straight from its definition."""
    tags: list[str] = []
    before = ""
    for kind, size in entities:
        if not kind:
            tags += ["O"] * size
        elif scheme == "IOB1":
            tags += [f"{'B' if kind == before else 'I'}-{kind}"] + [f"I-{kind}"] * (size - 1)
        elif scheme == "IOB2":
            tags += [f"B-{kind}"] + [f"I-{kind}"] * (size - 1)
        else:
            single, end = ("S", "E") if scheme == "BIOES" else ("U", "L")
            inside = [f"B-{kind}", *[f"I-{kind}"] * (size - 2), f"{end}-{kind}"]
            tags += [f"{single}-{kind}"] if size == 1 else inside
        before = kind
    return tags


@pytest.mark.parametrize("scheme", SCHEMES)
@given(entities=ENTITIES)
def test_the_entities_stay_the_same(entities: list[tuple[str, int]], scheme: str) -> None:
    tags = encode(entities, scheme)
    assert to_iob2(tags) == encode(entities, "IOB2")
    oracle: type[Token] = LETTERS[scheme]
    ours = Entities([to_iob2(tags)], IOB2).entities[0]
    theirs = Entities([tags], oracle).entities[0]
    assert [one.to_tuple()[1:] for one in ours] == [one.to_tuple()[1:] for one in theirs]


@given(st.lists(st.sampled_from(["O", "B-X", "I-X", "B-Y", "I-Y"]), max_size=12))
def test_broken_tags_are_read_as_conlleval_does(tags: list[str]) -> None:
    mended = to_iob2(tags)
    assert get_entities(mended) == get_entities(tags)
    assert to_iob2(mended) == mended
    assert Entities([mended], IOB2).entities[0] is not None


def test_words_and_spans(tmp_path: Path) -> None:
    data = "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\n\nPeter NNP I-NP I-PER\n"
    first, second = read(tmp_path / "a.conll", data).examples
    assert (first.text, first.words, first.label) == ("EU rejects", ((0, 2), (3, 10)), ("B-ORG", "O"))
    assert first.place.endswith("a.conll:3")
    assert second.place.endswith("a.conll:7")


def test_packed_with_tabs_and_spaces_inside_of_words(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv.gz"
    path.write_bytes(gzip.compress("New York\tB-LOC\n\xa0\tI-LOC\ncity\tI-LOC\n".encode()))
    found = read_labelled(path, "tag")
    assert found.examples[0].text == "New York city"
    assert found.examples[0].words == ((0, 8), (9, 13))
    assert "1 words of white space" in found.warnings[0]
    assert "a.tsv.gz:2" in found.warnings[0]


def test_comments_but_not_the_word_number_sign(tmp_path: Path) -> None:
    found = read(tmp_path / "a.txt", "# id = 7\n# a tag\n# O\n1 B-X\n\n# text = a\na O\n# O\n")
    assert [example.text for example in found.examples] == ["# 1", "a #"]


def test_broken_scheme_is_counted(tmp_path: Path) -> None:
    found = read(tmp_path / "a.txt", rows("B-X I-X O B-X") + "\n" + rows("O I-X B-Y I-X O"))
    assert found.examples[1].label == ("O", "B-X", "B-Y", "B-X", "O")
    assert "2 of 9 tags did not follow IOB2" in found.warnings[0]
    assert "a.txt:7" in found.warnings[0]
    found = read(tmp_path / "a.txt", rows("B-X E-X O E-X O") + "\n" + rows("B-X O S-X"))
    assert found.examples[0].label == ("B-X", "I-X", "O", "B-X", "O")
    assert "2 of 8 tags did not follow BIOES" in found.warnings[0]
    assert "a.txt:4" in found.warnings[0]


def test_a_needless_b_in_iob1_is_no_fault(tmp_path: Path) -> None:
    found = read(tmp_path / "a.txt", rows("I-X O I-X O I-X O B-X I-X"))
    assert "IOB1" in found.said
    assert not found.warnings


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        ("a O\nb X O\n", ["a.txt:2:", "3 columns", "2", "mend"]),
        ("a O\nb PER\n", ["a.txt:2:", "'PER'", "write it like B-PER"]),
        ("a O\n\nb X-PER\n", ["a.txt:3:", "'X-PER'", "B-PER"]),
        ("a B\n", ["a.txt:1:", "'B'"]),
        ("a S-X\nb U-X\n", ["BIOES", "BILOU", "one of the two"]),
        ("a\nb\n", ["a.txt:1:", "no tags", "last column"]),
        ("\n\n", ["no words"]),
    ],
)
def test_bad_files(tmp_path: Path, data: str, parts: list[str]) -> None:
    fails(tmp_path / "a.txt", data, *parts)


def test_columns_by_number(tmp_path: Path) -> None:
    data = "1 EU B-ORG NNP\n2 rose O VBD\n"
    assert read(tmp_path / "a.txt", data, text="2", label="3").examples[0].text == "EU rose"
    fails(tmp_path / "a.txt", data, "--label-column 2", label="tag")
    fails(tmp_path / "a.txt", data, "no column 9", "a.txt:1:", label="9")


def test_prediction_needs_no_tags(tmp_path: Path) -> None:
    (example,) = read(tmp_path / "a.txt", "EU\nrose\n", labels=False).examples
    assert (example.text, example.label) == ("EU rose", None)
    (example,) = read(tmp_path / "a.txt", "EU NNP\nrose VBD\n", labels=False).examples
    assert example.label is None
    (example,) = read(tmp_path / "a.txt", "EU I-ORG\nrose O\n", labels=False).examples
    assert example.label == ("B-ORG", "O")


def test_a_column_that_counts_the_words_is_not_theirs(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    found = read(file, "1\tIn\tO\n2\tBonn\tB-LOC\n\n1\tAda\tB-PER\n")
    assert [one.text for one in found.examples] == ["In Bonn", "Ada"]
    assert found.said.endswith("words in column 2, the first one counts them")
    assert [one.text for one in read_labelled(file, "tag", {"text": "1"}).examples] == ["1 2", "1"]
    untagged = read(file, "1\tIn\n2\tBonn\n", labels=False)
    assert [one.text for one in untagged.examples] == ["In Bonn"]
    for data in ("1 O\n2 B-X\n", "1 CD O\n2 CD O\n\n1984 CD O\n"):  # numbers that are words
        assert read(file, data).examples[0].text == "1 2"
