"""The names that masks hide whole: a list of them, or texts in which they are marked.

    New York                                                                        a list: one a line, as a text has it
    {"text": "She left New York.", "spans": [[9, 17]]}                              .jsonl: a text a line, and its spans
    {"text": "She left New York.", "entities": [{"start": 9, "end": 17, "label": "GPE"}]}                     likewise

A span is where a name begins and ends, in characters; kinds are not read. What is marked once is a name of the list, and so
hidden wherever it stands: who marks a sample of the text has all of it.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sesame.data.corpus_files import JSON_LINES
from sesame.data.readers import LONGEST_JSON_LINE
from sesame.data.streams import PACKED, lines
from sesame.errors import SesameError

LONGEST_LINE = 10_000  # characters of a name
FIELDS = ("spans", "entities")
_MARKED = '{"text": "She left New York.", "spans": [[9, 17]]}'


def read_entities(path: str | Path) -> list[str]:
    """The names of a file, each once, in its order."""
    file = Path(path)
    if not file.is_file():
        raise SesameError(f"{file}: no such file; --entities names a text file with one entity a line")
    suffix = (Path(file.stem) if file.suffix.lower() in PACKED else file).suffix.lower()
    if suffix in (".csv", ".tsv"):
        raise SesameError(f"{file}: is a table; save its column of entities alone as .txt, one a line")
    named = _marked(file) if suffix in JSON_LINES else _listed(file)
    found = [" ".join(name.split()) for name in named if name.strip()]
    if not found:
        raise SesameError(f"{file}: has no entity; write one a line, or leave --entities out to hide phrases instead")
    return list(dict.fromkeys(found))


def _listed(file: Path) -> Iterator[str]:
    for number, line, whole in lines(file, LONGEST_LINE):
        if not whole:
            raise SesameError(f"{file}:{number}: is longer than {LONGEST_LINE:,} characters; write one entity a line")
        yield line


def _marked(file: Path) -> Iterator[str]:
    """What the spans of each text cover."""
    for number, line, _ in lines(file, LONGEST_JSON_LINE):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            text, spans = _characters(row["text"]), next(row[field] for field in FIELDS if row.get(field) is not None)
            edges = [_edges(span) for span in spans]
        except (ValueError, TypeError, KeyError, StopIteration, AttributeError, IndexError, RecursionError) as error:
            raise SesameError(f"{file}:{number}: is no text with spans; write lines like {_MARKED}") from error
        for start, end in edges:
            if not 0 <= start < end <= len(text):
                raise SesameError(
                    f"{file}:{number}: the span {start} to {end} does not lie in a text of {len(text)} characters; "
                    "count in characters, from 0"
                )
            yield text[start:end]


def _characters(text: str) -> str:
    """A lone half of a surrogate pair, which only JSON can hold, becomes U+FFFD: one character as well."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _edges(span: Any) -> tuple[int, int]:
    start, end = (span["start"], span["end"]) if isinstance(span, dict) else span[:2]
    if type(start) is not int or type(end) is not int:
        raise TypeError(span)
    return start, end
