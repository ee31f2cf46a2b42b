"""CSV, TSV, JSON lines and Parquet as rows, with the line on which each starts."""

import bz2
import csv
import gzip
import io
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from sesame.data import csv_rows
from sesame.data.labelled import read_labelled
from sesame.data.tables import read_table
from sesame.errors import SesameError

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def write(path: Path, data: str | bytes) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def fails(path: Path, *parts: str) -> None:
    """Reading must fail with one sentence that names the file and holds `parts`."""
    with pytest.raises(SesameError) as caught:
        read_table(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    assert "; " in message  # a remedy
    for part in parts:
        assert part in message


@pytest.mark.parametrize("packed", PACKERS)
@pytest.mark.parametrize(
    ("suffix", "data"),
    [
        (".csv", 'text,label\n"a, b",x\n\n"two\nlines",y\nc,z\n'),
        (".tsv", "text\tlabel\na, b\tx\n\ntwo lines\ty\n\nc\tz\n"),
        (
            ".jsonl",
            '{"text": "a, b", "label": "x"}\n\n{"text": "two\\nlines", "label": "y"}\n\n{"text":"c","label":"z"}',
        ),
    ],
)
def test_formats(tmp_path: Path, suffix: str, data: str, packed: str) -> None:
    table = read_table(write(tmp_path / f"a{suffix}{packed}", PACKERS[packed](data.encode())))
    assert table.columns == ["text", "label"]
    assert [row["label"] for _, row in table.rows] == ["x", "y", "z"]
    assert table.rows[0][1]["text"] == "a, b"
    assert [line for line, _ in table.rows] == ([1, 3, 5] if suffix == ".jsonl" else [2, 4, 6])


def test_parquet_knows_the_names_behind_numbers(tmp_path: Path) -> None:
    features = {
        "label": {"_type": "ClassLabel", "names": ["bad", "good"]},
        "tags": {"_type": "Sequence", "feature": {"_type": "ClassLabel", "names": ["O", "B-PER"]}},
        "text": {"_type": "Value"},
    }
    data = arrow.table({"text": ["a", "b"], "label": [1, -1], "tags": [[0, 1], [1]]})
    data = data.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    parquet.write_table(data, tmp_path / "a.parquet")
    table = read_table(tmp_path / "a.parquet")
    assert [row["label"] for _, row in table.rows] == ["good", None]
    assert table.rows[0][1]["tags"] == ["O", "B-PER"]
    assert table.place(2).endswith("a.parquet: row 2")


def test_parquet_strings_that_are_not_utf8(tmp_path: Path) -> None:
    """The format's libraries take any bytes for a string."""
    ends, letters = b"".join(n.to_bytes(4, "little") for n in (0, 1, 5)), b"asch\xf6"
    column = arrow.StringArray.from_buffers(2, arrow.py_buffer(ends), arrow.py_buffer(letters))
    parquet.write_table(arrow.table({"text": column, "label": ["x", "y"]}), tmp_path / "a.parquet")
    fails(tmp_path / "a.parquet", "not UTF-8 (byte 0xf6)")


def test_parquet_with_one_name_for_two_columns(tmp_path: Path) -> None:
    columns = [arrow.array(["a", "b"])] * 3
    parquet.write_table(arrow.Table.from_arrays(columns, names=["text", "text", "label"]), tmp_path / "a.parquet")
    fails(tmp_path / "a.parquet", "'text' is there twice")


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiter(tmp_path: Path, delimiter: str) -> None:
    rows = [["text", "label"], ["well, well; so|so", "x"], ["no, thanks", "y"], ["a; b", "x"]]
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter).writerows(rows)
    table = read_table(write(tmp_path / "a.csv", out.getvalue()))
    assert [list(row.values()) for _, row in table.rows] == rows[1:]


def test_delimiter_without_a_header(tmp_path: Path) -> None:
    table = read_table(write(tmp_path / "a.csv", "good, but slow;neg\nfine;pos\nso, so, la;neg\n"))
    assert not table.header
    assert table.rows[0][1] == {"1": "good, but slow", "2": "neg"}


@pytest.mark.parametrize(("first", "delimiter"), [("sep=;", ";"), ('"sep=,"', ","), ("SEP=\t", "\t"), ("sep=|", "|")])
def test_the_line_that_tells_excel_the_delimiter_is_no_row(tmp_path: Path, first: str, delimiter: str) -> None:
    data = f"\ufeff{first}\r\ntext{delimiter}label\r\ngood{delimiter}pos\r\n"
    table = read_table(write(tmp_path / "a.csv", data))
    assert table.rows == [(3, {"text": "good", "label": "pos"})]
    fails(write(tmp_path / "b.csv", f"{first}\n"), "no rows")


CELL = st.text(st.sampled_from('ab,;|"\n\t é'), max_size=12).map(str.strip)


@given(st.lists(st.tuples(CELL.filter(bool), CELL), min_size=1, max_size=8))
def test_what_csv_writes_is_read(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]) -> None:
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows([("text", "label"), *rows])
    table = read_table(write(tmp_path_factory.mktemp("csv") / "a.csv", out.getvalue()))
    assert [tuple(row.values()) for _, row in table.rows] == rows
    line = 2
    for (found, _), cells in zip(table.rows, rows, strict=True):
        assert found == line
        line += 1 + sum(cell.count("\n") for cell in cells)


@given(st.text(st.sampled_from('ab,"\n '), max_size=60))
def test_any_csv_is_read_or_refused_with_a_sentence(tmp_path_factory: pytest.TempPathFactory, data: str) -> None:
    path = write(tmp_path_factory.mktemp("csv") / "a.csv", "text,label\n" + data)
    said, table = "", None
    try:
        table = read_table(path)
    except SesameError as error:
        said = str(error)
    if table is None:
        assert said.startswith(str(path))
    else:
        assert all(len(row) == 2 for _, row in table.rows)


def test_quotes_are_plain_in_tsv(tmp_path: Path) -> None:
    table = read_table(write(tmp_path / "a.tsv", 'text\tlabel\n"He said\tx\nso" he\ty\n'))
    assert [row["text"] for _, row in table.rows] == ['"He said', 'so" he']


@pytest.mark.parametrize("header", ["text\tlabel\n", ""])
def test_a_few_rows_that_a_line_break_parted(tmp_path: Path, header: str) -> None:
    rows = [f"number {n}\t{'xy'[n % 2]}\n" for n in range(3000)]
    part = "parted\n"
    file = write(tmp_path / "a.tsv", header + "".join([*rows[:5], part, *rows[5:]]))
    line = 6 + bool(header)
    with pytest.raises(SesameError, match=rf"a\.tsv:{line}: the row has 1 cell where the first one has 2"):
        read_table(file)
    table = read_table(file, whole=False)
    assert [tuple(row.values()) for _, row in table.rows] == [tuple(row.strip().split("\t")) for row in rows]
    assert table.header == bool(header)
    assert table.warnings == (
        f"{file}: left out 1 of {len(rows) + 1 + bool(header):,} lines that have not 2 cells, as the first one has, "
        f"first at {file}:{line}",
    )
    read = read_labelled(file, "classify")
    assert (len(read.examples), read.warnings) == (3000, [*table.warnings])
    with pytest.raises(SesameError, match="cell where"):  # a prediction answers every row
        read_labelled(file, "classify", labels=False)
    fails(write(tmp_path / "b.tsv", "text\tlabel\n" + "".join([*rows[:900], part])), "the row has 1 cell")


def test_byte_order_mark_and_windows_newlines(tmp_path: Path) -> None:
    table = read_table(write(tmp_path / "a.csv", "\ufefftext,label\r\nä,x\r\n".encode()))
    assert table.rows == [(2, {"text": "ä", "label": "x"})]


def test_a_cell_keeps_its_line_breaks(tmp_path: Path) -> None:
    """Places that were counted in the text of a file must point into the text that is read."""
    data = 'sep=,\r\ntext,answer_start\r\n"one\r\ntwo\nthree\rfour",10\r\n\r\nx,0\r\n'
    table = read_table(write(tmp_path / "a.csv", data))
    assert table.rows == [
        (3, {"text": "one\r\ntwo\nthree\nfour", "answer_start": "10"}),
        (8, {"text": "x", "answer_start": "0"}),
    ]
    assert read_table(write(tmp_path / "b.csv", "text,label\ra,x\rb,y\r")).rows[1] == (3, {"text": "b", "label": "y"})


@pytest.mark.parametrize("first", ["Отзыв,Оценка", "good,pos"])
def test_header_in_another_language(tmp_path: Path, first: str) -> None:
    table = read_table(write(tmp_path / "a.csv", first + "\n" + "so,pos\nla,neg\nre,pos\nmi,neg\nfa,neg\n"))
    assert table.header == (first != "good,pos")
    assert len(table.rows) == (6 if first == "good,pos" else 5)


def test_a_class_that_is_called_like_a_column(tmp_path: Path) -> None:
    table = read_table(write(tmp_path / "a.csv", "who?,question\nme,statement\nwhy?,question\n"))
    assert not table.header


@pytest.mark.parametrize("rows", [60, 3])
def test_a_quote_that_swallows_lines(tmp_path: Path, rows: int) -> None:
    data = 'text,label\nfine,x\n"not\nfine",y\nc,"stray\n' + "more,x\n" * rows
    fails(write(tmp_path / "a.csv", data), "a.csv:5: a quote that opens here", "remove the quote", "TSV")


def test_a_quote_that_swallows_characters(tmp_path: Path) -> None:
    data = 'text,label\n"' + ("a" * 600_000 + "\n") * 3 + '",x\n'
    fails(write(tmp_path / "a.csv", data), "a.csv:2: a quote", "runs on")


def test_a_cell_may_run_over_many_lines(tmp_path: Path) -> None:
    long = "line\n" * (csv_rows.CELL_LINES - 1) + "end"
    table = read_table(write(tmp_path / "a.csv", f'text,label\n"{long}","{long}"\nb,y\n'))
    assert table.rows[0][1] == {"text": long, "label": long}
    fails(write(tmp_path / "b.csv", f'text,label\n"x","line\n{long}"\n'), "b.csv:2:")


def test_text_behind_a_closing_quote(tmp_path: Path) -> None:
    fails(write(tmp_path / "a.csv", 'text,label\na,x\n"so" he said,x\n'), "a.csv:3:", "closing quote", "twice")
    fails(write(tmp_path / "b.csv", 'text,label\n"open,x\nb,y\nc "d",x\n'), "b.csv:2:", "(line 4)")


def test_a_cell_may_hold_a_whole_book(tmp_path: Path) -> None:
    book = "word " * 100_000
    table = read_table(write(tmp_path / "a.csv", f'text,label\na,x\n{book},x\n"{book}",y\n'))
    assert [row["text"].strip() for _, row in table.rows[1:]] == [book.strip(), book.strip()]


@pytest.mark.parametrize(
    ("name", "data", "parts"),
    [
        ("a.csv", "text,label\na,x\nb,c,x\n", ["a.csv:3:", "3 cells", "2", "quotes"]),
        ("a.csv", 'text,label\n"a\nb",x\nb\n', ["a.csv:4:", "1 cell where", "2", "fill in"]),
        ("a.tsv", "text\tlabel\na\tx\ty\n", ["a.tsv:2:", "3 cells", "tabs"]),
        ("a.csv", "text,text,label\na,b,x\n", ["a.csv:1:", "'text'", "twice"]),
        ("a.csv", "text,label\n", ["no row"]),
        ("a.csv", "\n\n", ["no rows"]),
        ("a.jsonl", '{"text": 1}\n{"text": \n', ["a.jsonl:2:", "mend"]),
        ("a.jsonl", '{"text": "a"}\n5\n', ["a.jsonl:2:", "not a JSON object"]),
        ("a.jsonl", "\n[{}]", ["a.jsonl:2:", "jq"]),
        ("a.jsonl", "\n", ["no rows"]),
        ("a.doc", "text", ["call it", ".csv"]),
        ("a.parquet", "text", ["parquet", "copy it again"]),
        ("a.csv", b"text,label\na,x\n\xe9t\xe9,y\n", ["a.csv:3:", "iconv -f latin-1 -t utf-8 a.csv > new.csv"]),
        ("a.csv.gz", b"text,label\n", ["a.csv.gz", "mend its name"]),
    ],
)
def test_bad_files(tmp_path: Path, name: str, data: str | bytes, parts: list[str]) -> None:
    fails(write(tmp_path / name, data), *parts)


def test_half_a_surrogate_pair(tmp_path: Path) -> None:
    table = read_table(write(tmp_path / "a.jsonl", '{"text": "a\\ud800b", "list": ["\\ud83d\\ude00"]}\n'))
    assert table.rows[0][1] == {"text": "a\ufffdb", "list": ["😀"]}
