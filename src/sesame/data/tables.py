"""Tables as rows: CSV, TSV, JSON lines and Parquet, and which of their columns is which.

A row is a dict by column name, with the number of the line on which it starts (for parquet the row).

What is unusual:
- a CSV cell in quotes may run over lines, so one stray quote can swallow the rest of a file. A cell that runs over more
  than 2,000 lines or a million characters is an error that names the line where it *started*, and so is text behind a closing
  quote, which other readers glue together in silence;
- in TSV a quote is a plain character, as in the files of GLUE;
- a CSV may begin with Excel's own "sep=;", which names the separator and is no row;
- a CSV or TSV whose first row names nothing known may have no header: its columns are then called "1", "2" ...
"""

import csv
import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any

from sesame.data.streams import PACKED, lines
from sesame.errors import SesameError

TABLES = (".csv", ".tsv", ".tab", ".jsonl", ".ndjson", ".json", ".parquet")
CELL_LINES = 2_000  # more than any letter
CELL_CHARACTERS = 1_000_000
_LONGEST_LINE = 1 << 28
_SAMPLE = 50  # lines that the delimiter is guessed from
_EXCEL = re.compile(r'"?sep=([,;|\t])"?', re.IGNORECASE)


def listed(names: str) -> list[str]:
    return names.split()


TEXTS = listed("""text sentence question content review review_text document tweet message utterance query body comment sms
    post description headline abstract title sentence1 text_a premise question1 text1 sentence_a context""")
PAIRS = listed("""sentence1:sentence2 text_a:text_b premise:hypothesis question1:question2 text1:text2 sentence_a:sentence_b
    question:sentence query:passage query:document claim:evidence text:pair sentence:pair text:text_pair""")
LABELS = listed("""label labels class category target intent sentiment tag gold gold_label y emotion topic stars score rating
    similarity value""")
SCORES = listed("score rating similarity value label target stars gold y labels")
IDS = listed("id idx guid uid index qid example_id sentence_id")
_NAMES = frozenset([*TEXTS, *LABELS, *SCORES, *IDS, *chain(*(pair.split(":") for pair in PAIRS))])
_OTHER_NAMES = frozenset(  # of choices and of tagged words
    listed(
        "startphrase sent1 sent2 ctx article stem options choices endings ending0 answer tokens words tags ner_tags ner"
    )
)


@dataclass(frozen=True)
class Table:
    path: Path
    columns: list[str]
    rows: list[tuple[int, dict[str, Any]]]
    header: bool = True

    def place(self, line: int) -> str:
        return f"{self._before_line}{line}"

    @cached_property
    def _before_line(self) -> str:
        return f"{self.path}: row " if inner_suffix(self.path) == ".parquet" else f"{self.path}:"

    @cached_property
    def folded(self) -> dict[str, str]:
        """Columns by their names without case; the first of several equal ones."""
        return {fold(name): name for name in reversed(self.columns)}

    def find(self, names: Sequence[str], taken: Collection[str | None] = ()) -> str | None:
        """The first of `names` that is a column and not yet taken."""
        found = (self.folded[name] for name in names if name in self.folded)
        return next((name for name in found if name not in taken), None)

    def given(self, role: str, name: str) -> str:
        """The column that the user named for `role`."""
        if name in self.columns:
            return name
        if fold(name) in self.folded:
            return self.folded[fold(name)]
        raise SesameError(
            f"{self.path}: has no column {name!r}; its columns are {self.shown()}, choose one with --{role}-column"
        )

    def shown(self) -> str:
        if not self.header:
            first = self.rows[0][1].values()
            return ", ".join(f"{name} ({str(cell)[:20]!r})" for name, cell in zip(self.columns, first, strict=True))
        return ", ".join(repr(name) for name in self.columns[:30]) or "none at all"


def fold(name: str) -> str:
    return name.strip().casefold().replace(" ", "_").replace("-", "_")


def inner_suffix(path: Path) -> str:
    """The suffix that tells the format: ".csv" for "a.csv.gz"."""
    return (Path(path.stem) if path.suffix.lower() in PACKED else path).suffix.lower()


def read_table(path: Path, given: Collection[str] = ()) -> Table:
    """All rows of a file; `given` are column names of the user, which tell a header from data."""
    suffix = inner_suffix(path)
    if suffix == ".parquet":
        return _read_parquet(path)
    if suffix in (".csv", ".tsv", ".tab"):
        return _read_cells(path, given)
    if suffix in TABLES:
        return _read_json_lines(path)
    raise SesameError(f"{path}: the name does not tell the format; call it {' '.join(TABLES)}, packed or not")


def whole_lines(path: Path, returns: bool = False) -> Iterator[tuple[int, str]]:
    for number, line, whole in lines(path, _LONGEST_LINE, returns=returns):
        if not whole:
            raise SesameError(f"{path}:{number}: the line is too long; put each row on a line of its own")
        yield number, line


# ---- CSV and TSV ----------------------------------------------------------------------------------------------------


def _read_cells(path: Path, given: Collection[str]) -> Table:
    names = _NAMES | _OTHER_NAMES | {fold(name) for name in given}
    if inner_suffix(path) == ".csv":
        found = _csv_rows(path, names)
    else:
        found = ((number, line.split("\t")) for number, line in whole_lines(path))
    rows = _without_blank_lines(found)
    if not rows:
        raise SesameError(f"{path}: there are no rows inside; give a file with rows")
    first_line, first = rows[0]
    header = _has_header([cells for _, cells in rows], names, given)
    if header:
        columns = [cell.strip() or f"column {number}" for number, cell in enumerate(first, 1)]
        for name in columns:
            if columns.count(name) > 1:
                raise SesameError(f"{path}:{first_line}: the column {name!r} is there twice; rename one of them")
        rows = rows[1:]
    else:
        columns = [str(number) for number in range(1, len(first) + 1)]
    for line, cells in rows:
        if len(cells) != len(columns):
            raise _wrong_width(path, line, len(cells), len(columns))
    if not rows:
        raise SesameError(f"{path}: there is a header but no row below it; give a file with rows")
    return Table(path, columns, [(line, dict(zip(columns, cells, strict=True))) for line, cells in rows], header)


def _without_blank_lines(found: Iterable[tuple[int, list[str]]]) -> list[tuple[int, list[str]]]:
    """A row of empty cells is one, also a quoted nothing where there is one column; a line with nothing on it is none."""
    rows = [(line, cells) for line, cells in found if cells]
    while rows and not any(cell.strip() for cell in rows[0][1]):
        rows.pop(0)
    one_column = bool(rows) and len(rows[0][1]) == 1
    return [(line, cells) for line, cells in rows if one_column or len(cells) > 1 or cells[0].strip()]


def _wrong_width(path: Path, line: int, cells: int, columns: int) -> SesameError:
    if inner_suffix(path) == ".csv":
        remedy = "put cells that hold the separator in quotes" if cells > columns else "fill in or remove the row"
    else:
        remedy = "replace tabs inside of cells by spaces" if cells > columns else "fill in or remove the row"
    return SesameError(
        f"{path}:{line}: the row has {cells} {'cell' if cells == 1 else 'cells'} where the first one has {columns}; "
        f"{remedy}"
    )


def _has_header(rows: list[list[str]], names: Collection[str], given: Collection[str]) -> bool:
    """Whether the first row names the columns.

    It does if its cells are known names; a single one must not come again below it, where it would be a value (the class
    "question"). Otherwise one or two columns may go without a header: then the first row is
    one if a column that repeats few values, or holds only numbers, breaks with that in its first cell.
    """
    first, *rest = rows
    known = [column for column, cell in enumerate(first) if fold(cell) in names]
    if len(known) > 1 or (known and all(cells[known[0] : known[0] + 1] != [first[known[0]]] for cells in rest)):
        return True
    if given and all(name.isdecimal() and 1 <= int(name) <= len(first) for name in given):
        return False
    if len(first) != 2 or any(len(cells) != 2 for cells in rest):
        return len(first) > 1
    for column in (0, 1):
        values = [cells[column] for cells in rest]
        distinct = set(values)
        repeats = len(values) >= 4 and 2 * len(distinct) <= len(values)
        if repeats and first[column] not in distinct and not is_number(first[column]):
            return True
        if values and all(map(is_number, distinct)) and not is_number(first[column]):
            return True
    return False


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _csv_rows(path: Path, names: Collection[str]) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_LINE))  # the module's own 128 KiB cut a long text short
    source = whole_lines(path, returns=True)  # places in a cell count its line breaks as they are written
    sample = list(islice(source, _SAMPLE))
    told = _told_delimiter(sample[0][1].rstrip("\r") if sample else "")
    sample = sample[1:] if told else sample
    feed = _Feed(path, chain(sample, source), told or _delimiter([line + "\n" for _, line in sample], names))
    reader = csv.reader(feed, delimiter=feed.delimiter, skipinitialspace=True, strict=True)
    while True:
        feed.row_line = feed.cell_line = 0
        try:
            cells = next(reader, None)
        except csv.Error:
            raise _bad_cell(path, feed) from None
        if cells is None:
            return
        yield feed.row_line, cells


def _bad_cell(path: Path, feed: "_Feed") -> SesameError:
    place = f"{path}:{feed.cell_line or feed.row_line}"
    return SesameError(
        f"{place}: text follows the closing quote of a cell (line {feed.number}); write each quote inside of a quoted "
        "cell twice, or save the table as TSV or JSON lines"
    )


def _told_delimiter(line: str) -> str | None:
    """The separator that a first line "sep=;" names, as Excel reads and spreadsheets' exports write it."""
    found = _EXCEL.fullmatch(line)
    return found[1] if found else None


def _delimiter(sample: list[str], names: Collection[str]) -> str:
    """The separator under which the first row holds most known names and most rows are as wide as the first."""

    def fitness(delimiter: str) -> tuple[int, float]:
        try:
            rows = [row for row in csv.reader(sample, delimiter=delimiter, skipinitialspace=True) if row]
        except csv.Error:
            return 0, 0.0
        if not rows or len(rows[0]) < 2:
            return 0, 0.0
        known = sum(fold(cell) in names for cell in rows[0])
        return known, sum(len(row) == len(rows[0]) for row in rows) / len(rows)

    return max(",;\t|", key=fitness)  # the first of equals


class _Feed(Iterator[str]):
    """Hands lines to the csv module and watches that no quote swallows them.

    The module asks for a line in the middle of a row only if a quote is open; then the lines it already has are followed to
    know where that quote is.
    """

    def __init__(self, path: Path, source: Iterator[tuple[int, str]], delimiter: str) -> None:
        self.path, self.source, self.delimiter = path, source, delimiter
        self.row_line = 0  # where the row starts; 0 between rows
        self.cell_line = 0  # where the open cell starts; 0 outside of quotes
        self.cell_size = self.number = 0
        self.line = ""

    def __next__(self) -> str:
        if self.row_line:
            self._follow()
            if self.number - self.cell_line + 1 >= CELL_LINES or self.cell_size > CELL_CHARACTERS:
                raise self._swallowed(f"runs on over line {self.number}")
        item = next(self.source, None)
        if item is None:
            if self.row_line:
                raise self._swallowed("is never closed")
            raise StopIteration
        self.number, self.line = item
        self.row_line = self.row_line or self.number
        return self.line + "\n"

    def _follow(self) -> None:
        """Move over the last line that was handed out, by the rules of CSV."""
        at, line = 0, self.line
        self.cell_size += len(line) + 1
        while True:
            if self.cell_line:
                at = line.find('"', at) + 1
                if not at:
                    return
                if line.startswith('"', at):  # two quotes stand for one
                    at += 1
                    continue
                self.cell_line = 0
                at = line.find(self.delimiter, at) + 1
                if not at:
                    return
            while line.startswith(" ", at):
                at += 1
            if line.startswith('"', at):
                self.cell_line, self.cell_size = self.number, len(line) - at
                at += 1
            else:
                at = line.find(self.delimiter, at) + 1
                if not at:
                    return

    def _swallowed(self, what: str) -> SesameError:
        return SesameError(
            f"{self.path}:{self.cell_line}: a quote that opens here {what}; remove the quote or write it twice inside of "
            "a quoted cell, or save the table as TSV or JSON lines"
        )


# ---- JSON lines and Parquet -----------------------------------------------------------------------------------------


def _read_json_lines(path: Path) -> Table:
    rows: list[tuple[int, dict[str, Any]]] = []
    columns: dict[str, None] = {}
    for number, line in whole_lines(path):
        if not line or line.isspace():
            continue
        if not rows and line.lstrip().startswith("["):
            raise SesameError(
                f"{path}:{number}: is a JSON list; put each object on a line of its own, for example with jq -c '.[]'"
            )
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            why = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            raise SesameError(
                f"{path}:{number}: is not a JSON object on one line ({why}); mend or remove the line"
            ) from None
        if not isinstance(row, dict):
            raise SesameError(f'{path}:{number}: is not a JSON object; write lines like {{"text": ..., "label": ...}}')
        rows.append((number, without_lone_surrogates(row) if "\\u" in line else row))
        columns.update(dict.fromkeys(rows[-1][1]))
    if not rows:
        raise SesameError(f"{path}: there are no rows inside; give a file with rows")
    return Table(path, list(columns), rows)


def without_lone_surrogates(value: Any) -> Any:
    """Half a surrogate pair, which only JSON can hold, becomes U+FFFD."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [without_lone_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {without_lone_surrogates(name): without_lone_surrogates(item) for name, item in value.items()}
    return value


def _read_parquet(path: Path) -> Table:
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise SesameError(f"{path}: reading .parquet files needs a package; pip install pyarrow") from None
    try:
        with parquet.ParquetFile(path) as table:
            columns = list(table.schema_arrow.names)
            for name in columns:
                if columns.count(name) > 1:
                    raise SesameError(f"{path}: the column {name!r} is there twice; rename one of them")
            names = _class_names(table.schema_arrow.metadata or {})
            rows = [row for batch in table.iter_batches(batch_size=1024) for row in batch.to_pylist()]
    except (arrow.ArrowException, OSError) as error:
        why = str(error).splitlines()[0]
        raise SesameError(f"{path}: is damaged or not a parquet file ({why}); copy it again") from error
    if not rows:
        raise SesameError(f"{path}: there are no rows inside; give a file with rows")
    for column, classes in names.items():
        for row in rows:
            row[column] = _named(row[column], classes)
    return Table(path, columns, list(enumerate(rows, 1)))


def _class_names(metadata: dict[bytes, bytes]) -> dict[str, list[str]]:
    """Names behind numbered labels, by column, which the `datasets` library keeps in the schema of its files."""
    try:
        features = json.loads(metadata.get(b"huggingface", b"{}")).get("info", {}).get("features", {})
    except (ValueError, AttributeError):
        return {}  # another program's note under the same name: the numbers stay numbers
    found = {}
    for column, feature in features.items():
        inner = feature[0] if isinstance(feature, list) and feature else feature
        inner = inner.get("feature", inner) if isinstance(inner, dict) else {}
        if isinstance(inner, dict) and inner.get("_type") == "ClassLabel" and inner.get("names"):
            found[column] = list(map(str, inner["names"]))
    return found


def _named(value: Any, names: list[str]) -> Any:
    if isinstance(value, list):
        return [_named(item, names) for item in value]
    if isinstance(value, int):
        return names[value] if 0 <= value < len(names) else None  # -1 stands for "no label"
    return value
