"""Corpora as a stream of documents, in constant memory.

Three shapes of text, each plain or packed (.gz .xz .zst .bz2; parquet only plain, it packs itself):
- text: one paragraph a line, a blank line between documents;
- JSON lines: an object a line, the document in its field `text` (or another one); a list there is a dialogue;
- parquet: a document a row, in the column `text` (or another one).

What is unusual: a document longer than a million characters goes on as the next document, so that a book, or a dump
without a single blank line, never has to be held whole.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sesame.data.corpus_files import corpus_files, file_kind
from sesame.data.dialogues import read_turns
from sesame.data.streams import Progress, lines
from sesame.errors import SesameError

LONGEST_DOCUMENT = 1 << 20  # characters
LONGEST_JSON_LINE = 1 << 28


@dataclass(frozen=True)
class Document:
    """Paragraphs joined by newlines, and where they start: the line from 1 (for parquet the row)."""

    text: str
    file: str
    line: int
    roles: bytes = b""  # of a dialogue: who speaks in each line, see `dialogues.py`


def read_documents(
    paths: Sequence[str | Path], field: str = "text", progress: Progress | None = None
) -> Iterator[Document]:
    """Stream the documents of all files in order; `progress` gets the bytes on disk that were used up.

    Missing files are reported at the call, broken ones when they are reached. A document over a million characters
    comes as several. A lone half of a surrogate pair, which only JSON can hold, becomes U+FFFD.
    """
    return _documents(corpus_files(paths), field, progress)


def _documents(files: list[Path], field: str, progress: Progress | None) -> Iterator[Document]:
    readers = {"text": _read_text, "jsonl": _read_json_lines, "parquet": _read_parquet}
    nothing = True
    for file in files:
        for document in readers[file_kind(file)](file, field, progress):
            nothing = False
            yield document
    if nothing:
        named = f"{files[0]}" if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
        raise SesameError(f"{named}: there is no text inside, only white space; give files with text")


def _read_text(path: Path, field: str, progress: Progress | None) -> Iterator[Document]:
    held: list[str] = []
    start = size = 0
    for number, line, whole in lines(path, LONGEST_DOCUMENT, progress):
        line = line.strip()
        if line:
            if not held:
                start = number
            held.append(line)
            size += len(line) + 1
        if held and (not line or not whole or size >= LONGEST_DOCUMENT):
            yield Document("\n".join(held), str(path), start)
            held, size = [], 0
    if held:
        yield Document("\n".join(held), str(path), start)


def read_texts(path: Path, field: str = "text") -> Iterator[tuple[str, str]]:
    """Place and text of every record of JSON lines or parquet, also of an empty one: answer n must belong to row n."""
    parquet = file_kind(path) == "parquet"
    for number, text, _ in _parquet_records(path, field, None) if parquet else _json_records(path, field, None):
        place = f"{path}: row {number}" if parquet else f"{path}:{number}"
        if len(text) > LONGEST_DOCUMENT:
            raise SesameError(
                f"{place}: is longer than a million characters; a record is one text, so cut it into several"
            )
        yield place, _clean(text)


def _read_json_lines(path: Path, field: str, progress: Progress | None) -> Iterator[Document]:
    for number, text, roles in _json_records(path, field, progress):
        if roles is None:
            yield from _pieces(text, path, number)
        elif text:
            yield Document(text, str(path), number, roles)


def _json_records(path: Path, field: str, progress: Progress | None) -> Iterator[tuple[int, str, bytes | None]]:
    """Line, text and, of a dialogue, who speaks in each line of it."""
    for number, line, whole in lines(path, LONGEST_JSON_LINE, progress):
        if not whole:
            raise SesameError(
                f"{path}:{number}: the line is too long for JSON lines; put each object on a line of its own"
            )
        if not line or line.isspace():
            continue
        if number == 1 and line.lstrip().startswith("[") and not _turns_alone(line):
            raise SesameError(
                f"{path}: is one JSON list; put each object on a line of its own, for example with jq -c '.[]'"
            )
        value = _parse(line, path, number)
        if isinstance(value, dict) and isinstance(value.get(field), list):
            turns, roles = read_turns(value[field], f"{path}:{number}")
            yield number, "\n".join(turns), roles
            continue
        text = _field_of(value, field, f"{path}:{number}")
        if "\\u" in line:
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        yield number, text, None


def _turns_alone(line: str) -> bool:
    """Whether a line is the turns of a dialogue without the object around them, rather than a list of records."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return any(isinstance(one, str) or (isinstance(one, dict) and "role" in one) for one in value)


def _parse(line: str, path: Path, number: int) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        why = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise SesameError(
            f"{path}:{number}: is not a JSON object on one line ({why}); mend or remove the line"
        ) from None


def _field_of(value: Any, field: str, place: str) -> str:
    if not isinstance(value, dict):
        dialogue = f" or, of a dialogue, {{{json.dumps(field)}: [...]}}" if isinstance(value, list) else ""
        raise SesameError(f'{place}: is not a JSON object; write lines like {{{json.dumps(field)}: "..."}}{dialogue}')
    if field not in value:
        known = ", ".join(list(map(str, value))[:20]) or "none at all"
        raise SesameError(f"{place}: has no field {field!r}; its fields are {known}, choose one of them")
    text = value[field]
    if not isinstance(text, str):
        raise SesameError(
            f"{place}: the field {field!r} holds {json.dumps(text)[:40]}, not a text; mend or remove the line"
        )
    return text


def _read_parquet(path: Path, field: str, progress: Progress | None) -> Iterator[Document]:
    for row, text, _ in _parquet_records(path, field, progress):
        yield from _pieces(text, path, row)


def _parquet_records(path: Path, field: str, progress: Progress | None) -> Iterator[tuple[int, str, None]]:
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise SesameError(f"{path}: reading .parquet files needs a package; pip install pyarrow") from None
    try:
        with parquet.ParquetFile(path) as table:
            _check_column(table.schema_arrow, field, path)
            size, rows, row, told = path.stat().st_size, max(1, table.metadata.num_rows), 0, 0
            for batch in table.iter_batches(batch_size=128, columns=[field]):
                for text in _values(batch.column(field), path, row, field):
                    row += 1
                    if text is None:
                        raise SesameError(f"{path}: row {row} of {field!r} is null; drop such rows first")
                    yield row, text, None
                if progress:
                    progress(size * row // rows - told)
                    told = size * row // rows
    except (arrow.ArrowException, OSError) as error:
        why = str(error).splitlines()[0]
        raise SesameError(f"{path}: is damaged or not a parquet file ({why}); copy it again") from error


def _values(column: Any, path: Path, before: int, field: str) -> list[Any]:
    """A column of a batch; nobody who writes parquet need check that its strings are UTF-8."""
    try:
        found: list[Any] = column.to_pylist()
        return found
    except UnicodeDecodeError as error:
        for number, value in enumerate(column, before + 1):
            try:
                value.as_py()
            except UnicodeDecodeError:
                byte = error.object[error.start]
                raise SesameError(
                    f"{path}: row {number} of {field!r} is not UTF-8 (byte 0x{byte:02x}); mend or drop such rows first"
                ) from None
        raise


def _check_column(schema: Any, field: str, path: Path) -> None:
    import pyarrow.types as types

    if field not in schema.names:
        raise SesameError(
            f"{path}: has no column {field!r}; its columns are {', '.join(schema.names)}, choose one of them"
        )
    if schema.names.count(field) > 1:
        raise SesameError(f"{path}: the column {field!r} is there twice; rename one of them")
    kind = schema.field(field).type
    kind = kind.value_type if types.is_dictionary(kind) else kind
    if not (types.is_string(kind) or types.is_large_string(kind) or str(kind) == "string_view"):
        raise SesameError(f"{path}: the column {field!r} holds {kind}, not text; choose another column")


def _pieces(text: str, path: Path, line: int) -> Iterator[Document]:
    """Clean the text of one record and cut it where it is too long."""
    text = _clean(text)
    start = 0
    while start < len(text):
        end = start + LONGEST_DOCUMENT
        if end < len(text):
            half = start + LONGEST_DOCUMENT // 2
            end = max(text.rfind("\n", half, end), text.rfind(" ", half, end)) + 1 or end
        if piece := text[start:end].strip():
            yield Document(piece, str(path), line)
        start = end


def _clean(text: str) -> str:
    if "\n" in text or "\r" in text:
        text = "\n".join(part.strip() for part in re.split(r"[\r\n]+", text) if not part.isspace())
    return text.strip()
