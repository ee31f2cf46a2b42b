"""Which files a corpus is in: a folder stands for the text files below it. How each is read, its name says."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from sesame.data.streams import PACKED
from sesame.errors import SesameError

TEXT = (".txt", ".text", ".md", ".tokens")
JSON_LINES = (".jsonl", ".ndjson", ".json")
PARQUET = ".parquet"
_NOT_CORPORA = {
    ".csv": "is a table; save its text column as .jsonl or .parquet",
    ".tsv": "is a table; save its text column as .jsonl or .parquet",
    ".zip": "is an archive; unpack it first",
    ".tar": "is an archive; unpack it first",
    ".tgz": "is an archive; unpack it first",
    ".7z": "is an archive; unpack it first",
    ".pdf": "is a PDF; turn it into text first, for example with pdftotext",
}

Kind = Literal["text", "jsonl", "parquet"]


def corpus_files(paths: Sequence[str | Path]) -> list[Path]:
    """The files behind `paths`. A folder stands for all text files below it, sorted; hidden and empty ones left out."""
    files: list[Path] = []
    if "" in paths:
        raise SesameError("the name of a text is empty; name a file or a folder")
    for path in map(Path, paths):
        if path.is_dir():
            files += _files_below(path)
            continue
        if not path.exists():
            raise SesameError(f"{path}: no such file or folder; check the name")
        if not path.is_file():
            raise SesameError(f"{path}: is not a regular file; save the text to a file first")
        file_kind(path)
        if path.stat().st_size == 0:
            raise SesameError(f"{path}: is empty; give a file with text")
        files.append(path)
    if not files:
        raise SesameError("no text was given; name at least one file or folder")
    for file in files:
        _check_name(file)
    return files


def _check_name(file: Path) -> None:
    """A run and a store keep the names of their files as text."""
    try:
        str(file).encode()
    except UnicodeEncodeError:
        shown = ascii(str(file))[1:-1]
        raise SesameError(f"{shown}: the name of the file is not UTF-8; rename it") from None


def corpus_size(paths: Sequence[str | Path]) -> int:
    """Bytes on disk, the total that the `progress` of `read_documents` counts up to."""
    return sum(file.stat().st_size for file in corpus_files(paths))


def file_kind(path: Path) -> Kind:
    """How a file is read, by its name; a name that says nothing means text."""
    inner, packed = _inner_suffix(path)
    if inner == PARQUET and packed:
        raise SesameError(f"{path}: parquet is read only when not packed again; unpack it first")
    if inner in _NOT_CORPORA:
        raise SesameError(f"{path}: {_NOT_CORPORA[inner]}")
    if inner == PARQUET:
        return "parquet"
    return "jsonl" if inner in JSON_LINES else "text"


def _inner_suffix(path: Path) -> tuple[str, bool]:
    packed = path.suffix.lower() in PACKED
    return (Path(path.stem) if packed else path).suffix.lower(), packed


def _files_below(folder: Path) -> list[Path]:
    known = (*TEXT, *JSON_LINES, PARQUET)
    found, seen = [], set()
    for place, folders, names in os.walk(folder, onerror=_unreadable, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:  # a link that leads back up
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            file = Path(place, name)
            if not name.startswith(".") and _inner_suffix(file)[0] in known and file.is_file() and file.stat().st_size:
                found.append(file)
    if not found:
        raise SesameError(f"{folder}: no text in this folder; read are {' '.join(known)}, also with {' '.join(PACKED)}")
    for file in found:
        file_kind(file)
    return sorted(found)


def _unreadable(error: OSError) -> None:
    """A folder that cannot be looked into would be missing in silence."""
    raise SesameError(f"{error.filename}: cannot be read ({error.strerror}); check the folder and its permissions")
