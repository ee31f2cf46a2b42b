"""Parallel readers: all shapes give the same pairs, and what is wrong gets one sentence with its place."""

import gzip
import json
import lzma
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sesame.data.build import build_pairs
from sesame.data.parallel import Counted, Pair, read_pairs
from sesame.data.parallel_columns import check_languages, find_columns, named_fields
from sesame.errors import SesameError
from tests.languages import word_tokenizer

side = st.text(
    st.characters(codec="utf-8", exclude_categories=["C", "Z"], include_characters=" "), min_size=1, max_size=20
)
texts = side.map(lambda text: " ".join(text.split())).filter(lambda text: text and not text.isdigit())


def _write(folder: Path, pairs: list[tuple[str, str]]) -> dict[str, list[Path]]:
    a, b = folder / "text.en", folder / "text.de"
    a.write_text("".join(f"{x}\n" for x, _ in pairs), encoding="utf-8")
    b.write_text("".join(f"{y}\n" for _, y in pairs), encoding="utf-8")
    table, packed = folder / "text.tsv", folder / "text.tsv.xz"
    rows = "".join(f"{x}\t{y}\tmore\n" for x, y in pairs)
    table.write_text(rows, encoding="utf-8")
    packed.write_bytes(lzma.compress(rows.encode()))
    plain, nested = folder / "text.jsonl", folder / "nested.jsonl.gz"
    plain.write_text("".join(json.dumps({"en": x, "de": y, "n": 1}) + "\n" for x, y in pairs), encoding="utf-8")
    lines = "".join(json.dumps({"id": "7", "translation": {"en": x, "de": y}}) + "\n" for x, y in pairs)
    nested.write_bytes(gzip.compress(lines.encode()))
    return {"two": [a, b], "table": [table], "packed": [packed], "json": [plain], "nested": [nested]}


@settings(max_examples=30, deadline=None)
@given(pairs=st.lists(st.tuples(texts, texts), min_size=1, max_size=5))
def test_all_shapes_give_the_same_pairs(tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]) -> None:
    for files in _write(tmp_path_factory.mktemp("parallel"), pairs).values():
        found = list(read_pairs(files))
        assert [(pair.source, pair.target) for pair in found] == pairs
        assert [pair.place for pair in found] == [f"{files[0]}:{n + 1}" for n in range(len(pairs))]


def test_fields_are_chosen_and_empty_sides_left_out(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    rows = [{"en": "one", "ru": "один", "note": "x"}, {"en": "", "ru": "два", "note": "y"}]
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    counted = Counted()
    assert list(read_pairs([file], ("ru", "en"), counted)) == [Pair("один", "one", f"{file}:1")]
    assert counted == Counted(pairs=1, empty=1)
    with pytest.raises(SesameError, match=r"a\.jsonl:1: two fields .* found en, ru, note; call them by"):
        list(read_pairs([file]))
    with pytest.raises(SesameError, match=r"a\.jsonl:1: has no field 'fr'; add it"):
        list(read_pairs([file], ("en", "fr")))


def test_numbers_are_answers_too(tmp_path: Path) -> None:
    file = tmp_path / "scores.jsonl"
    file.write_text('{"text": "fine", "score": 4.5, "good": true}\n')
    assert list(read_pairs([file], ("text", "score"))) == [Pair("fine", "4.5", f"{file}:1")]
    with file.open("a") as handle:
        handle.write('{"text": "nobody knows", "score": NaN}\n')
    counted = Counted()
    assert [pair.target for pair in read_pairs([file], ("text", "score"), counted)] == ["4.5"]
    assert counted.empty == 1
    with pytest.raises(SesameError, match="the field 'good' holds no text"):
        list(read_pairs([file], ("text", "good")))


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"a.en": "one\ntwo\n", "a.de": "eins\n"}, r"a\.en:2: .*a\.de ends before this line"),
        ({"a.en": "one\n", "a.de": "eins\nzwei\n"}, r"a\.de:2: .*a\.en ends before this line"),
        ({"a.tsv": "one\teins\ntwo\n"}, r"a\.tsv:2: has no tab"),
        ({"a.jsonl": '{"en": "one", "de": "eins"}\n{"en": '}, r"a\.jsonl:2: is not JSON"),
        ({"a.jsonl": '{"en": "one", "de": "eins"}\n{"en": "two"}\n'}, r"a\.jsonl:2: has no field 'de'; add it"),
        ({"a.jsonl": "1\n"}, r"a\.jsonl:1: is not an object"),
        ({"a.json": '[\n {"en": "one", "de": "eins"}\n]\n'}, r"a\.json:1: is a JSON list; put each object on a line"),
        ({"a.en": "one\n"}, r"a\.en: plain text comes in two files"),
        ({"a.en": "one\n", "b.tsv": "one\teins\n"}, r"a\.en: is a side of its own"),
        ({"a.tsv": "\t\n\n"}, r"a\.tsv: has no pair"),
        (
            {"a.tsv": "one\teins\nyes\tja\t\ntwo\tmore\tzwei\n"},
            r"a\.tsv:3: the line has 3 cells where the first one has 2",
        ),
        ({"a.jsonl": '{"a":' * 100_000}, r"a\.jsonl:1: is not JSON"),
    ],
)
def test_what_is_wrong_gets_one_sentence(tmp_path: Path, files: dict[str, str], words: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    paths = [tmp_path / name for name in files]
    with pytest.raises(SesameError, match=words):
        list(read_pairs(paths, named_fields(paths, ("en", "de"))))
    with pytest.raises(SesameError, match="no such file"):
        list(read_pairs([tmp_path / "missing.tsv"]))


HEADED = {
    "turned.tsv": "de\ten\nein Hund\ta dog\nja\tyes\n",
    "loud.tsv": "EN\tDE\na dog\tein Hund\nyes\tja\n",
    "turned.csv": "de,en\nein Hund,a dog\nja,yes\n",
    "more.tsv": "id\ten\tde\n1\ta dog\tein Hund\n2\tyes\tja\n",
    "more.csv": "id,en,de\n1,a dog,ein Hund\n2,yes,ja\n",
    "plain.tsv": "a dog\tein Hund\nyes\tja\n",
    "said.tsv": "Source\tTarget\na dog\tein Hund\nyes\tja\n",
    "said.TSV": "Source\tTarget\na dog\tein Hund\nyes\tja\n",
    "backwards.tsv": "target\tsource\nein Hund\ta dog\nja\tyes\n",
    "behind.tsv": "id\tsource\ttarget\n1\ta dog\tein Hund\n2\tyes\tja\n",
    "orders.jsonl": '{"one": "a dog", "other": "ein Hund"}\n{"other": "ja", "one": "yes"}\n',
    "said.csv": "target,source\nein Hund,a dog\nja,yes\n",
    "loud.jsonl": '{"DE": "ein Hund", "EN": "a dog"}\n{"De": "ja", "En": "yes"}\n',
    "values.jsonl": '{"a": "a dog", "b": "ein Hund", "langs": ["en", "de"]}\n{"a": "yes", "b": "ja"}\n',
    "lines.jsonl": '{"de": "ein Hund", "en": "a dog"}\n{"de": "ja", "en": "yes"}\n',
}


@pytest.mark.parametrize("name", HEADED)
def test_headings_are_no_pairs_and_tell_which_side_is_which(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(HEADED[name])
    found = [(pair.source, pair.target) for pair in read_pairs([file], named_fields([file], ("en", "de")))]
    assert found == [("a dog", "ein Hund"), ("yes", "ja")]


@pytest.mark.parametrize(
    ("name", "data"),
    [("a.tsv", "en\tde\nyes\tja\n"), ("a.csv", "EN;de-AT\nyes;ja\n"), ("a.jsonl", '{"de": "ja", "en": "yes"}\n')],
)
def test_languages_that_contradict_a_file_are_told(name: str, data: str, tmp_path: Path) -> None:
    """English and German were learnt as English and French, or as each other."""
    file = tmp_path / name
    file.write_text(data)
    for right in (("en", "de"), ("english", "french"), ("en", "de_ch" if name == "a.csv" else "de")):
        check_languages(file, right)
    for wrong in (("en", "fr"), ("ru", "fr"), *([("de", "en")] if name == "a.csv" else [])):
        with pytest.raises(SesameError, match=f"{name}: is named as {' and '.join(wrong)}, but its own names are"):
            check_languages(file, wrong)
    file.write_text(data.replace("en", "left").replace("EN", "left"))
    check_languages(file, ("en", "fr"))


@pytest.mark.parametrize("mark", ["\t", ",", ";"])
def test_a_heading_of_languages_is_no_pair(mark: str, tmp_path: Path) -> None:
    """Also where nobody said which languages they are: "en" was learnt, and scored, as a source that means "de"."""
    file = tmp_path / ("a.tsv" if mark == "\t" else "a.csv")
    file.write_text(f"en{mark}pt-BR\na dog{mark}um cão\nyes{mark}sim\n")
    wanted = [("a dog", "um cão"), ("yes", "sim")]
    assert find_columns(file, None, None) == ("en", "pt-BR")
    for fields in (None, ("en", "pt-BR")):
        assert [(pair.source, pair.target) for pair in read_pairs([file], fields)] == wanted
    file.write_text(f"no{mark}nein\nyes{mark}ja\n")
    assert [pair.target for pair in read_pairs([file])] == ["nein", "ja"], "one code alone is a word"


def test_a_table_without_names_says_what_it_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.tsv"
    file.write_text("a dog\tein Hund\tTatoeba 12\nyes\tja\tTatoeba 13\n")
    assert [pair.target for pair in read_pairs([file])] == ["ein Hund", "ja"]
    assert "has 3 columns; the first two" in capsys.readouterr().err
    with pytest.raises(SesameError, match=r"which columns are source and answer.* --source 1 --target 2"):
        find_columns(file, None, None)
    assert find_columns(file, "1", "2") == ("1", "2")
    file.write_text("12\ta dog\tein Hund\n13\tyes\tja\n")
    with pytest.raises(SesameError, match=r"a\.tsv:1: the first column holds numbers; name the columns"):
        list(read_pairs([file]))


def test_parquet_becomes_the_same_store_as_a_table(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    files = [tmp_path / "a.parquet", tmp_path / "a.tsv"]
    parquet.write_table(arrow.table({"de": ["ein Hund", "ja"], "en": ["a dog", "yes"]}), files[0])
    files[1].write_text("en\tde\na dog\tein Hund\nyes\tja\n")
    words = word_tokenizer(["a", "dog", "yes", "ein", "Hund", "ja"])
    stores = [build_pairs([file], ("en", "de"), words, tmp_path / "cache", workers=1) for file in files]
    assert stores[0].tokens.tolist() == stores[1].tokens.tolist()


def test_translations_as_datasets_keep_them_in_parquet(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    file, counted = tmp_path / "a.parquet", Counted()
    sides = [{"de": "ein Hund", "en": "a dog"}, None, {"de": "ja", "en": "yes"}, {"de": None, "en": "no"}]
    parquet.write_table(arrow.table({"id": ["1", "2", "3", "4"], "translation": sides}), file)
    assert find_columns(file, None, None) == ("de", "en")
    assert find_columns(file, "en", None) == ("en", "de")
    fields = named_fields([file], ("en", "de"))
    assert [(pair.source, pair.target) for pair in read_pairs([file], fields, counted)] == [
        ("a dog", "ein Hund"),
        ("yes", "ja"),
    ]
    assert counted == Counted(pairs=2, empty=2)


def test_odd_values_of_json_are_no_texts_or_mended(tmp_path: Path) -> None:
    file, counted = tmp_path / "a.jsonl", Counted()
    file.write_text('{"en": "smile \\ud83d", "de": "Lachen"}\n{"en": "yes", "de": null}\n')
    assert [(pair.source, pair.target) for pair in read_pairs([file], ("en", "de"), counted)] == [
        ("smile \ufffd", "Lachen")
    ]
    assert counted == Counted(pairs=1, empty=1)


def test_translations_in_fields_of_their_own_need_not_stand_first(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"id": "7", "translation": {"de": "ja", "en": "yes"}}\n')
    assert find_columns(file, None, None) == ("de", "en")
    assert find_columns(file, "en", "de") == find_columns(file, "en", None) == ("en", "de")
    with pytest.raises(SesameError, match=r"has no column 'fr' for --source; its columns are 'de', 'en'"):
        find_columns(file, "fr", None)
    file.write_text('{"translation": "ja", "text": "yes"}\n')
    assert find_columns(file, "text", None) == ("text", "translation")


def test_a_first_pair_that_begins_like_two_codes_is_a_pair(tmp_path: Path) -> None:
    """ "It is" is no Italian with a country: a row was lost as a heading."""
    file = tmp_path / "pairs.tsv"
    for first in ("it is\tes ist", "so what\tna und", "ja so\tno is it"):
        file.write_text(f"{first}\none\tzwei\n")
        assert len(list(read_pairs([file], find_columns(file, None, None)))) == 2
        assert len(list(read_pairs([file]))) == 2
    file.write_text("en\tpt-BR\none\tum\n")
    assert len(list(read_pairs([file]))) == 1
