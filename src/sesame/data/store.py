"""The token store: a corpus as arrays on disk, mapped into memory, cheap to open whatever its size.

    tokens      (T,)    uint16 or uint32   all ids, one after the other
    word_starts (T,)    uint8              1 where a word starts (whole-word masks need it)
    sentences   (S+1,)  int64              sentence i is tokens[sentences[i]:sentences[i+1]]
    documents   (D+1,)  int64              document j is sentences documents[j] to documents[j+1]
    sources     (D, 2)  int64              number of the file, line in it
    roles       (S,)    uint8              of dialogues only: who says a sentence, query 0 or response 1

Each is a plain file of numbers (little-endian); `meta.json` says how many and what of. `sesame.data.build` writes it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sesame.data.encode import token_dtype
from sesame.errors import SesameError
from sesame.files import read_json

FORMAT = 2  # raise it when the files, the sentence splitter or the encoding change


class Store:
    def __init__(self, path: Path, meta: dict[str, Any], files: list[str] | None = None) -> None:
        """Use `Store.open`. `files` are the present names of the text files, where they were renamed since then."""
        self.path, self.meta = path, meta
        self.files = files or list(meta["files"])
        tokens, sentences, documents = meta["tokens"], meta["sentences"], meta["documents"]
        self.tokens: NDArray[Any] = _map(path, "tokens", token_dtype(meta["vocabulary"]), (tokens,))
        self.word_starts: NDArray[np.uint8] = _map(path, "word_starts", np.dtype("u1"), (tokens,))
        self.sentences: NDArray[np.int64] = _map(path, "sentences", np.dtype("<i8"), (sentences + 1,))
        self.documents: NDArray[np.int64] = _map(path, "documents", np.dtype("<i8"), (documents + 1,))
        self.sources: NDArray[np.int64] = _map(path, "sources", np.dtype("<i8"), (documents, 2))
        told = (path / "roles.bin").exists()
        self.roles: NDArray[np.uint8] | None = _map(path, "roles", np.dtype("u1"), (sentences,)) if told else None
        if self.sentences[-1] != tokens or self.documents[-1] != sentences:
            raise _damaged(path, "its parts do not fit together")

    @classmethod
    def open(cls, path: Path, files: list[str] | None = None) -> "Store":
        """Map a store into memory; one that is cut off or of another format is an error."""
        path = Path(path)
        meta = read_json(path / "meta.json")
        if not isinstance(meta, dict) or meta.get("format") != FORMAT:
            raise SesameError(f"{path}: is not a token store of this version; remove the folder to build it again")
        try:
            return cls(path, meta, files)
        except KeyError as error:
            raise _damaged(path, f"meta.json lacks {error}") from None

    def source(self, document: int) -> str:
        """Where a document came from, as "file:line"."""
        file, line = self.sources[document]
        return f"{self.files[file]}:{line}"

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r}, {self.meta['tokens']:,} tokens, {self.meta['documents']:,} documents)"

    def __reduce__(self) -> tuple[Callable[..., "Store"], tuple[Any, ...]]:
        """Another process maps the files itself; the arrays never travel."""
        return Store.open, (self.path, self.files)


def _map(path: Path, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    file = path / f"{name}.bin"
    if not file.exists():
        raise _damaged(path, f"{file.name} is missing")
    expected = dtype.itemsize * int(np.prod(shape))
    if file.stat().st_size != expected:
        raise _damaged(path, f"{file.name} has {file.stat().st_size} bytes instead of {expected}")
    return np.memmap(file, dtype, "r", shape=shape)


def _damaged(path: Path, why: str) -> SesameError:
    return SesameError(f"{path}: the token store is damaged ({why}); remove the folder to build it again")
