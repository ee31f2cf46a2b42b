"""Every format, plain and packed, and every way in which a file can be broken."""

import bz2
import gzip
import json
import lzma
import os
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from sesame.cli.answers import numbered_lines
from sesame.data import readers
from sesame.data.corpus_files import corpus_files, corpus_size
from sesame.data.readers import LONGEST_DOCUMENT, Document, read_documents, read_texts
from sesame.errors import SesameError

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}
TEXT = "first line\nsecond line\n\n\nthird\n"


def write(path: Path, data: str | bytes) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def texts(*paths: Path, field: str = "text") -> list[str]:
    return [document.text for document in read_documents(list(paths), field)]


def fails(path: Path, *parts: str, field: str = "text") -> str:
    """Reading `path` must fail with one sentence that names it and holds `parts`."""
    with pytest.raises(SesameError) as caught:
        texts(path, field=field)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    for part in parts:
        assert part in message
    return message


@pytest.mark.parametrize("packed", PACKERS)
@pytest.mark.parametrize("suffix", [".txt", ".md", ".tokens", ".en", ""])
def test_text(tmp_path: Path, suffix: str, packed: str) -> None:
    file = write(tmp_path / f"a{suffix}{packed}", PACKERS[packed](TEXT.encode()))
    assert list(read_documents([file])) == [
        Document("first line\nsecond line", str(file), 1),
        Document("third", str(file), 5),
    ]


@pytest.mark.parametrize("packed", PACKERS)
def test_json_lines(tmp_path: Path, packed: str) -> None:
    rows = [{"text": "a\r\n\r\nb", "title": "x"}, {"text": " "}, {"text": "в"}]
    data = "\n\n".join(json.dumps(row) for row in rows)
    file = write(tmp_path / f"a.jsonl{packed}", PACKERS[packed](data.encode()))
    assert list(read_documents([file])) == [Document("a\nb", str(file), 1), Document("в", str(file), 5)]


def test_parquet(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    table = arrow.table({"text": [f"text {i}" for i in range(1000)], "n": range(1000), "d": ["x"] * 1000})
    parquet.write_table(table, file, row_group_size=100)
    told: list[int] = []
    documents = list(read_documents([file], progress=told.append))
    assert documents[-1] == Document("text 999", str(file), 1000)
    assert len(documents) == 1000
    assert sum(told) == file.stat().st_size
    assert fails(file, "title", "text, n, d", field="title")
    assert fails(file, "'n'", "not text", field="n")
    parquet.write_table(arrow.table({"text": arrow.array(["a", "b", "c"]).dictionary_encode()}), file)
    assert texts(file) == ["a", "b", "c"]
    parquet.write_table(arrow.table({"text": ["a", None]}), file)
    fails(file, "row 2", "null")
    whole = file.read_bytes()
    write(file, whole[: len(whole) // 2])
    fails(file, "damaged")


@pytest.mark.parametrize("dictionary", [False, True])
def test_a_parquet_string_that_is_not_utf8(tmp_path: Path, dictionary: bool) -> None:
    """The format's libraries take any bytes for a string."""
    letters = [b"a"] * 200 + [b"sch\xf6n"]
    ends = np.cumsum([0, *map(len, letters)]).astype(np.int32)
    column = arrow.StringArray.from_buffers(201, arrow.py_buffer(ends), arrow.py_buffer(b"".join(letters)))
    file = tmp_path / "a.parquet"
    parquet.write_table(arrow.table({"text": column.dictionary_encode() if dictionary else column}), file)
    fails(file, "row 201 of 'text'", "not UTF-8 (byte 0xf6)")


def test_parquet_columns_with_difficult_names(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    words = arrow.array(["a", "b"])
    parquet.write_table(arrow.Table.from_arrays([words, words], names=["text", "text"]), file)
    fails(file, "'text' is there twice")
    inside = arrow.array([{"b": 1}, {"b": 2}])
    parquet.write_table(arrow.Table.from_arrays([inside, words], names=["a", "a.b"]), file)
    assert texts(file, field="a.b") == ["a", "b"]


def test_newlines_and_byte_order_mark(tmp_path: Path) -> None:
    assert texts(write(tmp_path / "a.txt", b"\xef\xbb\xbfa\r\nb\r\n\r\nc\r\rd")) == ["a\nb", "c", "d"]
    assert texts(write(tmp_path / "b.txt", "a\x0bb\u2028c\x85d\n \t \ne")) == ["a\x0bb\u2028c\x85d", "e"]


def test_newline_cut_by_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sesame.data.streams.BLOCK", 3)
    assert texts(write(tmp_path / "a.txt", "aя\r\nbб\r\n\r\ncв\r\n")) == ["aя\nbб", "cв"]


@pytest.mark.parametrize("packed", [".gz", ".xz", ".bz2", ".zst"])
def test_cut_off_and_damaged(tmp_path: Path, packed: str) -> None:
    data = os.urandom(30_000).hex().encode()
    whole = PACKERS[packed](data)
    fails(write(tmp_path / f"cut.txt{packed}", whole[: len(whole) // 2]), "ends in the middle; copy it again")
    fails(write(tmp_path / f"short.txt{packed}", whole[:-2]), "ends in the middle; copy it again")
    fails(write(tmp_path / f"wrong.txt{packed}", b"this is plain text"), f"not a {packed} file")
    assert texts(write(tmp_path / f"twice.txt{packed}", whole + PACKERS[packed](b"\n\nmore"))) == [
        data.decode(),
        "more",
    ]


@pytest.mark.parametrize("packed", [".gz", ".xz", ".bz2", ".zst"])
@pytest.mark.parametrize("place", [0, 3, 20])
def test_damage_in_a_later_member_is_no_end(tmp_path: Path, packed: str, place: int) -> None:
    """Members are what `cat` makes of packed files, and what pbzip2 writes."""
    member = PACKERS[packed](b"a page\n\n" * 200)
    bad = bytearray(member)
    bad[place] ^= 0xFF
    fails(write(tmp_path / f"a.txt{packed}", member + bytes(bad) + member), "copy it again")


@pytest.mark.parametrize("packed", [".gz", ".xz", ".bz2"])
def test_zeros_between_members_are_no_end(tmp_path: Path, packed: str) -> None:
    member, padding = PACKERS[packed](b"a page\n\n" * 200), b"\0" * 300_000
    assert len(texts(write(tmp_path / f"a.txt{packed}", member + padding + member + padding))) == 400


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1251", "Пароход ушёл в полдень, и никто не махал ему вслед. " * 9),
        ("koi8-r", "Пароход ушёл в полдень, и никто не махал ему вслед. " * 9),
        ("latin-1", "La forêt était très calme, même à midi. " * 9),
        ("cp1252", "The café – a small one – was “closed”. " * 9),
        ("gb18030", "船中午离开了，没有人挥手，海鸥跟在后面飞了很久。" * 9),
        ("utf-16", "The ferry left at noon. " * 9),
        ("utf-16le", "The ferry left at noon. " * 9),
        ("utf-32", "The ferry left at noon. " * 9),
    ],
)
def test_other_encodings(tmp_path: Path, encoding: str, text: str) -> None:
    message = fails(write(tmp_path / "a.txt", f"plain\n{text}\n".encode(encoding)), "UTF-8", f"iconv -f {encoding} ")
    if not encoding.startswith("utf-"):
        assert "a.txt:2:" in message


def test_a_bad_byte_far_into_the_file(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", b"fine text here\n" * 200_000 + b"bad \xff byte\n")
    fails(file, "a.txt:200001:", "0xff")
    fails(write(file, b"good\n" + "ж".encode()[:1]), "a.txt:2:", "copy it again")


def test_binary(tmp_path: Path) -> None:
    fails(write(tmp_path / "a.txt", bytes(range(256)) * 40), "binary")
    fails(write(tmp_path / "b.txt", gzip.compress(os.urandom(5000))), "binary")
    fails(write(tmp_path / "c.txt", "good line\n" * 300 + "bad\0line"), "c.txt:301:", "NUL")


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ('{"text": "x"', ["not a JSON object"]),
        ('{"body": "x", "n": 1}', ["'text'", "body, n"]),
        ('{"text": 3}', ["'text'", "3", "not a text"]),
        ('{"text": null}', ["null"]),
        ('"text"', ["not a JSON object", '{"text": "..."}']),
        ("[" * 100_000, ["not a JSON object"]),
    ],
)
def test_bad_json_lines(tmp_path: Path, line: str, parts: list[str]) -> None:
    fails(write(tmp_path / "a.jsonl", '{"text": "fine"}\n\n' + line + "\n"), "a.jsonl:3:", *parts)


def test_one_json_list_is_not_json_lines(tmp_path: Path) -> None:
    fails(write(tmp_path / "a.json", '[{"text": "a"},\n{"text": "b"}]'), "one JSON list", "jq")


@pytest.mark.parametrize("line", ['["Hello?", "Until six."]', '[{"role": "user", "content": "Hello?"}]'])
def test_a_dialogue_is_a_list_in_an_object(tmp_path: Path, line: str) -> None:
    """Its turns alone on a line are no list of records, and jq would take them apart."""
    with pytest.raises(SesameError, match=r'a\.jsonl:1: is not a JSON object; .* dialogue, \{"turns": \[') as error:
        texts(write(tmp_path / "a.jsonl", f"{line}\n{line}\n"), field="turns")
    assert "jq" not in str(error.value)


def test_half_a_surrogate_pair(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", '{"text": "a \\ud83d b \\ud83d\\ude00"}')
    assert texts(file) == ["a \ufffd b 😀"]


def test_other_field(tmp_path: Path) -> None:
    assert texts(write(tmp_path / "a.jsonl", '{"body": "x"}'), field="body") == ["x"]


def test_folders(tmp_path: Path) -> None:
    (tmp_path / "sub" / ".hidden").mkdir(parents=True)
    for name in ("b.txt", "a.txt.gz", "sub/c.jsonl", "sub/d.bin", ".e.txt", "sub/.hidden/f.txt"):
        write(tmp_path / name, b"x")
    write(tmp_path / "empty.txt", "")
    (tmp_path / "sub" / "loop").symlink_to(tmp_path)
    found = corpus_files([tmp_path])
    assert [str(file.relative_to(tmp_path)) for file in found] == ["a.txt.gz", "b.txt", "sub/c.jsonl"]
    assert corpus_size([tmp_path]) == 3


def test_a_folder_that_cannot_be_read_is_not_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "closed").mkdir()
    for name in ("a.txt", "closed/b.txt"):
        write(tmp_path / name, b"x")
    look = os.scandir

    def refuse(place: str | Path) -> object:
        if Path(place).name == "closed":
            raise PermissionError(13, "Permission denied", str(place))
        return look(place)

    monkeypatch.setattr("os.scandir", refuse)
    with pytest.raises(SesameError, match=r"closed: cannot be read \(Permission denied\)"):
        corpus_files([tmp_path])


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt")).write_bytes(b"x")
    with pytest.raises(SesameError, match=r"caf\\udce9\.txt: the name of the file is not UTF-8; rename it"):
        corpus_files([tmp_path])


def test_paths_without_text(tmp_path: Path) -> None:
    write(tmp_path / "a.bin", b"x")
    with pytest.raises(SesameError, match=r"no text in this folder.*\.txt.*\.parquet.*\.zst"):
        corpus_files([tmp_path])
    with pytest.raises(SesameError, match="no such file or folder"):
        read_documents([tmp_path / "missing.txt"])
    with pytest.raises(SesameError, match="no text was given"):
        corpus_files([])
    for name, why in (("a.csv", "table"), ("a.parquet.gz", "unpack"), ("a.tar.gz", "archive"), ("a.pdf", "PDF")):
        with pytest.raises(SesameError, match=why):
            corpus_files([write(tmp_path / name, b"x")])
    fails(write(tmp_path / "a.txt", ""), "is empty")
    fails(write(tmp_path / "a.txt", " \n\n\t\n"), "only white space")
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(SesameError, match="not a regular file"):
        corpus_files([tmp_path / "pipe.txt"])


def test_missing_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    fails(write(tmp_path / "a.txt.zst", PACKERS[".zst"](b"x")), "pip install zstandard")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    fails(write(tmp_path / "a.parquet", b"x"), "pip install pyarrow")


@pytest.mark.slow
def test_progress_counts_bytes_on_disk(tmp_path: Path) -> None:
    files = [write(tmp_path / f"a.txt{packed}", pack(b"some text\n" * 500_000)) for packed, pack in PACKERS.items()]
    told: list[int] = []
    assert sum(len(document.text) for document in read_documents(files, progress=told.append)) > 20_000_000
    assert sum(told) == corpus_size(files)


def test_a_long_line_that_packs_well_is_cut_too(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt.zst", PACKERS[".zst"](b"word " * 600_000 + b"\n\nsecond\n"))
    assert max(map(len, texts(file))) <= LONGEST_DOCUMENT
    assert texts(file)[-1] == "second"


@pytest.mark.parametrize("unit", ["word ", "x"])
def test_a_line_without_end_is_never_held_whole(tmp_path: Path, unit: str) -> None:
    file = write(tmp_path / "a.txt", unit * (20_000_000 // len(unit)))
    tracemalloc.start()
    lengths, letters = [], 0
    for document in read_documents([file]):
        lengths.append(len(document.text))
        letters += document.text.count(unit.strip()) * len(unit.strip())
        assert "\n" not in document.text
        assert document.line == 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert max(lengths) < 2.1 * readers.LONGEST_DOCUMENT
    assert letters == 20_000_000 // len(unit) * len(unit.strip())
    assert peak < 12_000_000


def test_long_documents_are_cut(tmp_path: Path) -> None:
    lines = [f"line number {number} of a book" for number in range(100_000)]
    text = write(tmp_path / "a.txt", "\n".join(lines))
    record = write(tmp_path / "a.jsonl", json.dumps({"text": "\n".join(lines)}))
    for file in (text, record):
        found = texts(file)
        assert len(found) > 2
        assert max(map(len, found)) <= readers.LONGEST_DOCUMENT + 100
        assert " ".join(" ".join(found).split()) == " ".join(lines)
    assert texts(text)[0].splitlines() == lines[: len(texts(text)[0].splitlines())]


def test_a_json_line_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "LONGEST_JSON_LINE", 1000)
    fails(write(tmp_path / "a.jsonl", '{"text": "fine"}\n{"text": "' + "x" * 3_000_000), "a.jsonl:2:", "too long")


# Anything but what other tests treat: NUL, and control characters that make a file look binary.
CLEAN = st.characters(exclude_categories=("Cs", "Cc"), include_characters="\n\r\t")


@given(st.text(CLEAN))
def test_text_reader_on_any_text(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = write(tmp_path_factory.mktemp("any") / "a.txt", text + "\n\nend")
    expected: list[list[str]] = [[]]
    for line in (text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n") + "\n\nend").split("\n"):
        if line.strip():
            expected[-1].append(line.strip())
        else:
            expected.append([])
    assert texts(file) == ["\n".join(part) for part in expected if part]


@given(st.lists(st.dictionaries(st.sampled_from(["text", "b", "c"]), st.text(max_size=30)), min_size=1), st.booleans())
def test_json_reader_on_any_text(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, str]], ascii_only: bool
) -> None:
    data = "\n".join(json.dumps({"text": "x", **row}, ensure_ascii=ascii_only) for row in rows)
    file = write(tmp_path_factory.mktemp("any") / "a.jsonl", data)
    found = texts(file) if any(row.get("text", "x").strip() for row in rows) else []
    squeezed = ["".join(row.get("text", "x").split()) for row in rows]
    assert ["".join(text.split()) for text in found] == [text for text in squeezed if text]


@given(st.binary())
def test_any_bytes_are_read_or_refused_in_one_sentence(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("any")
    for suffix in (".txt", ".jsonl", ".txt.gz", ".txt.zst", ".parquet"):
        message = ""
        try:
            texts(write(folder / f"a{suffix}", data))
        except SesameError as error:
            message = str(error)
        assert "\n" not in message


def test_records_without_text_keep_their_place_among_answers(tmp_path: Path) -> None:
    """What `sesame embed --file rows.jsonl` reads: vector n must belong to row n."""
    given_texts = ["one", "", "two\r\n lines", "  "]
    rows = write(tmp_path / "rows.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in given_texts).encode())
    parquet.write_table(arrow.table({"text": given_texts}), tmp_path / "rows.parquet")
    clean = ["one", "", "two\nlines", ""]
    assert list(read_texts(rows)) == [(f"{rows}:{number}", text) for number, text in enumerate(clean, 1)]
    assert [text for _, text in read_texts(tmp_path / "rows.parquet")] == clean
    assert [text for _, text in numbered_lines(None, rows, empty=True)] == clean
    long = write(tmp_path / "long.jsonl", json.dumps({"text": "a " * LONGEST_DOCUMENT}).encode())
    with pytest.raises(SesameError, match=r"long\.jsonl:1: is longer than a million characters; .* cut it"):
        list(read_texts(long))
