"""Tables as rows: CSV, TSV, JSON lines and Parquet, and which of their columns is which.

A row is a dict by column name, with the number of the line on which it starts (for parquet the row).

What is unusual:
- in TSV a quote is a plain character, as in the files of GLUE; what a CSV may do is in `csv_rows.py`;
- a CSV or TSV whose first row names nothing known may have no header: its columns are then called "1", "2" ...
- a TSV knows no quotes, so a line break inside a cell parts its row in two: GLUE's own QQP has such rows. Where labels are
  learnt from, fewer than one row in a thousand may be broken; they are left out and counted.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from sesame.data.csv_rows import csv_rows
from sesame.data.streams import PACKED, whole_lines
from sesame.errors import SesameError

TABLES = (".csv", ".tsv", ".tab", ".jsonl", ".ndjson", ".json", ".parquet")


def listed(names: str) -> list[str]:
    return names.split()


TEXTS = listed("""text sentence question content review review_text document tweet message utterance query body comment sms
    post description headline abstract title sentence1 text_a premise question1 text1 sentence_a context""")
PAIRS = listed("""sentence1:sentence2 text_a:text_b premise:hypothesis question1:question2 text1:text2 sentence_a:sentence_b
    question:sentence question:passage question:context context:hypothesis query:passage query:document claim:evidence
    text:pair sentence:pair text:text_pair""")
LABELS = listed("""label labels class category target intent sentiment tag gold gold_label y emotion topic stars score rating
    similarity value answer""")
SCORES = listed("score rating similarity value label target stars gold y labels")
IDS = listed("id idx guid uid index qid example_id sentence_id")
_NAMES = frozenset([*TEXTS, *LABELS, *SCORES, *IDS, *chain(*(pair.split(":") for pair in PAIRS))])
_OTHER_NAMES = frozenset(  # of choices and of tagged words
    listed(
        "startphrase sent1 sent2 ctx article stem options choices endings ending0 answer tokens words tags ner_tags ner"
    )
)


Cells = tuple[int, list[str]]  # of a row, with its line
MOST_BROKEN = 0.001  # of the rows of a TSV: more are a table that was written wrong


@dataclass(frozen=True)
class Table:
    path: Path
    columns: list[str]
    rows: list[tuple[int, dict[str, Any]]]
    header: bool = True
    warnings: tuple[str, ...] = ()

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


def read_table(path: Path, given: Collection[str] = (), whole: bool = True) -> Table:
    """All rows of a file; `given` are column names of the user, which tell a header from data.

    Not `whole`: a few broken rows of a TSV are left out, with a warning.
    """
    suffix = inner_suffix(path)
    if suffix == ".parquet":
        return _read_parquet(path)
    if suffix in (".csv", ".tsv", ".tab"):
        return _read_cells(path, given, whole)
    if suffix in TABLES:
        return _read_json_lines(path)
    raise SesameError(f"{path}: the name does not tell the format; call it {' '.join(TABLES)}, packed or not")


# ---- CSV and TSV ----------------------------------------------------------------------------------------------------


def _read_cells(path: Path, given: Collection[str], whole: bool) -> Table:
    names = _NAMES | _OTHER_NAMES | {fold(name) for name in given}
    if inner_suffix(path) == ".csv":
        found = csv_rows(path, lambda cell: fold(cell) in names)
    else:
        found = ((number, line.split("\t")) for number, line in whole_lines(path))
    rows = _without_blank_lines(found)
    if not rows:
        raise SesameError(f"{path}: there are no rows inside; give a file with rows")
    first_line, first = rows[0]
    rows, warnings = _without_broken_rows(path, rows, whole)
    header = _has_header([cells for _, cells in rows], names, given)
    if header:
        columns = [cell.strip() or f"column {number}" for number, cell in enumerate(first, 1)]
        for name in columns:
            if columns.count(name) > 1:
                raise SesameError(f"{path}:{first_line}: the column {name!r} is there twice; rename one of them")
        rows = rows[1:]
    else:
        columns = [str(number) for number in range(1, len(first) + 1)]
    if not rows:
        raise SesameError(f"{path}: there is a header but no row below it; give a file with rows")
    named = [(line, dict(zip(columns, cells, strict=True))) for line, cells in rows]
    return Table(path, columns, named, header, warnings)


def _without_blank_lines(found: Iterable[Cells]) -> list[Cells]:
    """A row of empty cells is one, also a quoted nothing where there is one column; a line with nothing on it is none."""
    rows = [(line, cells) for line, cells in found if cells]
    while rows and not any(cell.strip() for cell in rows[0][1]):
        rows.pop(0)
    one_column = bool(rows) and len(rows[0][1]) == 1
    return [(line, cells) for line, cells in rows if one_column or len(cells) > 1 or cells[0].strip()]


def _without_broken_rows(path: Path, rows: list[Cells], whole: bool) -> tuple[list[Cells], tuple[str, ...]]:
    """The rows that are as wide as the first one, and what is to be said of others, unless they are an error."""
    width = len(rows[0][1])
    broken = [(line, cells) for line, cells in rows if len(cells) != width]
    if not broken:
        return rows, ()
    line, cells = broken[0]
    if whole or inner_suffix(path) == ".csv" or len(broken) >= MOST_BROKEN * len(rows):
        raise _wrong_width(path, line, len(cells), width)
    said = f"{path}: left out {len(broken):,} of {len(rows):,} lines that have not {width} cells, as the first one has"
    return [row for row in rows if len(row[1]) == width], (f"{said}, first at {path}:{line}",)


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


# ---- JSON lines and Parquet -----------------------------------------------------------------------------------------

JSON_LIST = "is a JSON list; put each object on a line of its own, for example with jq -c '.[]'"


def _read_json_lines(path: Path) -> Table:
    rows: list[tuple[int, dict[str, Any]]] = []
    columns: dict[str, None] = {}
    for number, line in whole_lines(path):
        if not line or line.isspace():
            continue
        if not rows and line.lstrip().startswith("["):
            raise SesameError(f"{path}:{number}: {JSON_LIST}")
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
    except UnicodeDecodeError as error:  # the format's libraries take any bytes for a string
        byte = f"0x{error.object[error.start]:02x}"
        raise SesameError(f"{path}: holds a string that is not UTF-8 (byte {byte}); mend or drop such rows") from None
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
