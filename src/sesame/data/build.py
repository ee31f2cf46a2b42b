"""Building a token store: once for each text and tokenizer, on all cores, in memory that does not grow with the text.

The folder's name is a hash of what decides its content: the bytes of the text files, how they are read, the tokenizer.
So the same text is never encoded twice, whatever its name, and a changed one never meets an old store. When two
processes want the same store at once, one builds it and the other waits.
"""

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from sesame.data.corpus_files import corpus_files, file_kind
from sesame.data.encode import DocumentEncoder, EncodedDocuments
from sesame.data.parallel import Counted, read_pairs
from sesame.data.parallel_columns import named_fields
from sesame.data.readers import Document, read_documents
from sesame.data.store import FORMAT, Store
from sesame.data.sums import content_sums, stamp
from sesame.data.workers import Workers
from sesame.errors import SesameError
from sesame.files import disk_errors, whole_folder, write_json
from sesame.progress import bar, say
from sesame.text import Tokenizer

CHUNK = 1 << 20  # characters of text that a worker gets at once
Read = Callable[[Callable[[int], None]], Iterator[Document]]
UNKNOWN = 0.01  # a larger share of unknown words is told
SMALL = 2_000_000  # bytes on disk up to which starting processes costs more than it brings


def build_store(
    paths: Sequence[str | Path],
    tokenizer: Tokenizer,
    cache: Path,
    *,
    field: str = "text",
    workers: int | None = None,
    turns: bool = False,
    verbatim: bool = False,
) -> Store:
    """The store of `paths` encoded with `tokenizer`, from the folder `cache` if it is there, else built into it.

    `turns`: the field holds dialogues; a sentence is a turn, and who speaks is kept.
    `verbatim`: white space between sentences is part of the text, see `DocumentEncoder`.
    """
    files = corpus_files(paths)
    kinds = [file_kind(file) for file in files]

    def read(progress: Callable[[int], None]) -> Iterator[Document]:
        documents = read_documents(files, field, progress)
        return _dialogues(documents, field) if turns else documents

    return _build(
        files, kinds, read, tokenizer, Path(cache), field, workers, lines=turns, turns=turns, verbatim=verbatim
    )


def build_pairs(
    paths: Sequence[str | Path],
    languages: tuple[str, str],
    tokenizer: Tokenizer,
    cache: Path,
    *,
    workers: int | None = None,
) -> Store:
    """The store of parallel text: a document is a pair, its two sentences are the sides."""
    files = [Path(path) for path in paths]
    fields = named_fields(files, languages)
    kind = "pairs" if fields is None else "pairs of " + " and ".join(fields)

    def read(progress: Callable[[int], None]) -> Iterator[Document]:
        counted = Counted()
        for pair in read_pairs(files, fields, counted, progress):
            file, _, line = pair.place.rpartition(":")
            number = int(line.removeprefix(" row "))  # of a line, or of a row where a file has no lines
            yield Document("\n".join(" ".join(side.split()) for side in (pair.source, pair.target)), file, number)
        if counted.empty:
            say(f"{files[0]}: {counted.empty:,} pairs are left out, because a side is empty")

    return _build(files, [kind] * len(files), read, tokenizer, Path(cache), "", workers, lines=True)


def _build(
    files: list[Path], kinds: Sequence[str], read: Read, tokenizer: Tokenizer, cache: Path, field: str,
    workers: int | None, lines: bool = False, turns: bool = False, verbatim: bool = False,
) -> Store:  # fmt: skip
    """`lines`: a line is a sentence; `turns`: and somebody's turn."""
    names, stamps = [str(file) for file in files], [stamp(file) for file in files]
    folder = (
        cache
        / f"{'turns' if turns else 'verbatim' if verbatim else 'store'}-{_key(files, kinds, tokenizer, field, cache)}"
    )
    if not folder.exists():
        with alone(folder):
            if not folder.exists():
                with whole_folder(folder) as aside:
                    _write(aside, files, read, tokenizer, field, workers, lines, turns, verbatim)
                    _check_still(files, stamps)
    return Store.open(folder, names)


def _check_still(files: list[Path], stamps: list[list[int]]) -> None:
    """The store's name tells what the files held before they were read; one that somebody writes to held something else."""
    for file, before in zip(files, stamps, strict=True):
        if not file.is_file() or stamp(file) != before:
            raise SesameError(f"{file}: has changed while it was read; wait until it is written, then run it again")


def _write(
    folder: Path, files: list[Path], read: Read, tokenizer: Tokenizer, field: str, workers: int | None, lines: bool,
    turns: bool, verbatim: bool,
) -> None:  # fmt: skip
    size = sum(file.stat().st_size for file in files)
    if workers is None:
        workers = 1 if size < SMALL else len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 4
    if workers < 1:
        raise SesameError(f"workers = {workers} makes no sense; give 1 or more")
    started = time.monotonic()
    tokenizer = tokenizer.changed(answers=None) if turns else tokenizer  # in a dialogue no line is an answer
    with ExitStack() as stack:
        shown = stack.enter_context(bar("encoding text", size, "B"))
        unknown = tokenizer.id("unk") if tokenizer.has("unk") else None
        writer = stack.enter_context(_Writer(folder, files, turns, unknown))
        chunks = writer.remember(_chunks(read(shown.advance)))
        if workers == 1:
            results: Iterable[EncodedDocuments] = map(DocumentEncoder(tokenizer, lines, verbatim).encode, chunks)
        else:
            results = stack.enter_context(Workers(tokenizer, workers, lines, verbatim)).map(chunks)
        for result in results:
            writer.append(result)
    meta = writer.meta()
    if not meta["tokens"]:
        raise SesameError(f"{files[0]}: the tokenizer makes no tokens of this text; check that it fits the language")
    write_json(
        folder / "meta.json",
        {"format": FORMAT, "vocabulary": len(tokenizer), "tokenizer": tokenizer.fingerprint(), "field": field, **meta},
    )
    _report(meta, time.monotonic() - started)


def _report(meta: dict[str, Any], seconds: float) -> None:
    seconds = max(seconds, 1e-3)
    say(
        f"encoded {meta['bytes'] / 1e6:.1f} MB of text in {seconds:.1f} s ({meta['bytes'] / 1e6 / seconds:.1f} MB/s, "
        f"{meta['tokens'] / seconds:,.0f} tokens/s): {meta['tokens']:,} tokens, {meta['sentences']:,} sentences, "
        f"{meta['documents']:,} documents"
    )
    if meta["unknown"] > UNKNOWN * meta["tokens"]:
        say(
            f"{100 * meta['unknown'] / meta['tokens']:.0f} % of the tokens are unknown words, of which nothing can be "
            "learnt: `sesame doctor TEXT --tokenizer ...` tells which; tokenizer.kind=unigram knows every letter"
        )


def _chunks(documents: Iterable[Document]) -> Iterator[list[Document]]:
    chunk: list[Document] = []
    size = 0
    for document in documents:
        chunk.append(document)
        size += len(document.text)
        if size >= CHUNK:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _dialogues(documents: Iterable[Document], field: str) -> Iterator[Document]:
    """Pass on dialogues, and complain of anything else."""
    talks = False
    for document in documents:
        if not document.roles:
            raise SesameError(
                f"{document.file}:{document.line}: is no dialogue; write .jsonl lines like "
                f'{{{json.dumps(field)}: [{{"role": "user", "text": "..."}}, ...]}}'
            )
        talks = talks or len(document.roles) > 1
        yield document
    if not talks:
        raise SesameError(f"{document.file}: no dialogue has two turns; put all turns of a dialogue on one line")


class _Writer:
    """Appends encoded chunks to the files of a store; holds nothing but counts."""

    def __init__(self, folder: Path, files: list[Path], turns: bool, unknown: int | None) -> None:
        self.folder, self.turns, self.unknown = folder, turns, unknown
        self.names = [str(file) for file in files]
        self.numbers = {name: number for number, name in reversed(list(enumerate(self.names)))}
        self.sent: list[np.ndarray[Any, np.dtype[np.int64]]] = []  # sources of the chunks on their way, oldest first
        self.spoken: list[bytes] = []  # the roles of those chunks
        self.count = dict.fromkeys(
            ("documents", "sentences", "tokens", "unknown", "words", "bytes", "dropped_documents", "dropped_sentences"),
            0,
        )

    def __enter__(self) -> "_Writer":
        with ExitStack() as stack:
            self.open: dict[str, IO[bytes]] = {
                name: stack.enter_context((self.folder / f"{name}.bin").open("wb"))
                for name in ("tokens", "word_starts", "sentences", "documents", "sources", "roles")
                if name != "roles" or self.turns
            }
            for name in ("sentences", "documents"):
                self.open[name].write(np.zeros(1, "<i8").tobytes())
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self.stack.close()

    def remember(self, chunks: Iterable[list[Document]]) -> Iterator[list[str]]:
        """Pass on the texts of each chunk and keep where they came from until its result arrives."""
        for chunk in chunks:
            self.sent.append(np.array([(self.numbers[part.file], part.line) for part in chunk], "<i8"))
            self.spoken.append(b"".join(part.roles for part in chunk))
            self.count["bytes"] += sum(len(part.text.encode()) for part in chunk)
            yield [part.text for part in chunk]

    def append(self, result: EncodedDocuments) -> None:
        count, kept = self.count, result.document_lengths > 0
        parts = {
            "tokens": result.tokens,
            "word_starts": result.word_starts,
            "sentences": (np.cumsum(result.sentence_lengths) + count["tokens"]).astype("<i8"),
            "documents": (np.cumsum(result.document_lengths[kept]) + count["sentences"]).astype("<i8"),
            "sources": self.sent.pop(0)[kept],
        }
        spoken = self.spoken.pop(0)
        if self.turns:
            parts["roles"] = np.frombuffer(spoken, np.uint8)[result.kept]
        for name, part in parts.items():
            self.open[name].write(part.tobytes())
        count["tokens"] += len(result.tokens)
        count["unknown"] += 0 if self.unknown is None else int(np.count_nonzero(result.tokens == self.unknown))
        count["words"] += int(result.word_starts.sum())
        count["sentences"] += len(result.sentence_lengths)
        count["documents"] += int(kept.sum())
        count["dropped_documents"] += int((~kept).sum())
        count["dropped_sentences"] += result.dropped_sentences

    def meta(self) -> dict[str, Any]:
        return {"files": self.names, **self.count}


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Let one process at a time build `folder`; what a killed one left of it is removed."""
    with ExitStack() as stack:
        with disk_errors(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context((folder.parent / f".{folder.name}.lock").open("w"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"another process is building {folder}; waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            for left in folder.parent.glob(f".{folder.name}.*.part"):
                shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)
        yield


def _key(files: list[Path], kinds: Sequence[str], tokenizer: Tokenizer, field: str, cache: Path) -> str:
    hashes = content_sums(files, cache / "hashes.json")
    packed = [file.suffix.lower() for file in files]
    parts = [FORMAT, list(zip(hashes, kinds, packed, strict=True)), tokenizer.fingerprint(), field]
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=12).hexdigest()
