"""Figures about a corpus: what `sesame doctor` judges a text by.

One pass over the text keeps a histogram of code points, counters of lengths and eight bytes for each paragraph; what
costs more (sentences, words, the tokenizer) looks at an even sample of some megabytes.

What is unusual: nothing is asked of every character in Python. The histogram tells whether a block of text has a
suspicious character at all, and only such blocks are searched for the place.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sesame.data.readers import LONGEST_DOCUMENT, Document, read_documents
from sesame.data.sentences import split_sentences
from sesame.data.streams import Progress
from sesame.doctor.repeats import Repeated, Repeats
from sesame.doctor.scripts import SPACELESS, guess_language, script_shares
from sesame.doctor.signs import COUNTED, SIGNS, Sign, code_points, first_place, line_of
from sesame.errors import SesameError
from sesame.text.train import sample_texts

SAMPLE = 20_000_000  # bytes that the sentence splitter looks at
BLOCK = 1 << 21  # characters that are counted at once
SHORTEST = 40  # characters: shorter paragraphs (headings, "Yes.") repeat by nature
LONG_SENTENCE = {"words": 128, "characters": 256}


@dataclass(frozen=True)
class Lengths:
    unit: str  # "words", or "characters" for text without spaces
    min: int
    median: int
    p90: int
    p99: int
    max: int
    histogram: list[tuple[int, int, int]]  # from, to, how many


@dataclass(frozen=True)
class TextFigures:
    files: int
    unreadable: list[str]  # one sentence for each file that could not be read to its end
    documents: int
    paragraphs: int
    words: int
    characters: int
    bytes: int
    sampled_bytes: int
    signs: dict[str, Sign]  # replacement, control, invisible: characters; mojibake: places; html, not_nfc: paragraphs
    repeated_paragraphs: Repeats
    repeated_documents: Repeats
    scripts: dict[str, float]  # share of the letters, the largest first
    language: str | None  # a guess
    document_lengths: Lengths
    sentence_lengths: Lengths
    cut_documents: int  # so long that the reader cuts them
    one_sentence_documents: float  # share
    long_sentences: float  # share of the text that stands in very long ones


@dataclass(frozen=True)
class Checked:
    """The figures, and what the check of a tokenizer needs of the text."""

    figures: TextFigures
    sample: list[str]
    characters: dict[str, int] = field(repr=False)


def check_text(files: Sequence[Path], name: str = "text", progress: Progress | None = None) -> Checked:
    """Read all files once. One that is broken is remembered and left; no text at all is an error."""
    scan = _Scan()
    sample = sample_texts(scan.read(files, name, progress), cap=SAMPLE)
    if not scan.documents:
        more = f" (and {len(scan.unreadable) - 1} more files without usable text)" if len(scan.unreadable) > 1 else ""
        raise SesameError(scan.unreadable[0] + more)
    characters = {chr(code): int(scan.histogram[code]) for code in np.flatnonzero(scan.histogram).tolist()}
    scripts = script_shares(characters)
    unit = "characters" if sum(scripts.get(script, 0) for script in SPACELESS) > 0.5 else "words"
    sentences = [split_sentences(text) for text in sample]
    sizes = [len(s.split()) if unit == "words" else len(s) for part in sentences for s in part]
    limit = LONG_SENTENCE[unit]
    figures = TextFigures(
        files=len(files),
        unreadable=scan.unreadable,
        documents=scan.documents,
        paragraphs=scan.paragraphs,
        words=scan.words,
        characters=sum(characters.values()),
        bytes=sum(count * len(char.encode("utf-8", "replace")) for char, count in characters.items()),
        sampled_bytes=sum(len(text.encode("utf-8", "replace")) for text in sample),
        signs=scan.signs,
        repeated_paragraphs=scan.repeated_paragraphs.figures(),
        repeated_documents=scan.repeated_documents.figures(),
        scripts=scripts,
        language=guess_language(sample, scripts),
        document_lengths=_lengths(scan.lengths[unit], unit),
        sentence_lengths=_lengths(Counter(sizes), unit),
        cut_documents=scan.cut,
        one_sentence_documents=sum(len(part) <= 1 for part in sentences) / max(1, len(sentences)),
        long_sentences=sum(size for size in sizes if size > limit) / max(1, sum(sizes)),
    )
    return Checked(figures, sample, characters)


class _Scan:
    """The one pass over all of the text."""

    def __init__(self) -> None:
        self.unreadable: list[str] = []
        self.documents = self.paragraphs = self.words = self.cut = 0
        self.histogram: NDArray[np.int64] = np.zeros(0x110000, np.int64)
        self.signs = {name: Sign() for name in (*SIGNS, "not_nfc")}
        self.lengths: dict[str, Counter[int]] = {"words": Counter(), "characters": Counter()}
        self.repeated_paragraphs, self.repeated_documents = Repeated(), Repeated()
        self.block: list[Document] = []
        self.held = 0

    def read(self, files: Sequence[Path], name: str, progress: Progress | None) -> Iterator[str]:
        """Pass on every document after counting it."""
        for file in files:
            try:
                for document in read_documents([file], name, progress):
                    self._add(document)
                    yield document.text
            except SesameError as error:
                self.unreadable.append(str(error))
        self._count_block()

    def _add(self, document: Document) -> None:
        text, words = document.text, len(document.text.split())
        self.documents += 1
        self.cut += len(text) >= LONGEST_DOCUMENT // 2
        self.words += words
        self.lengths["words"][words] += 1
        self.lengths["characters"][len(text)] += 1
        paragraphs = text.split("\n")
        self.paragraphs += len(paragraphs)
        self.repeated_documents.add(text)
        for paragraph in paragraphs:
            if len(paragraph) >= SHORTEST:
                self.repeated_paragraphs.add(paragraph)
        if not text.isascii() and not unicodedata.is_normalized("NFC", text):
            self._mark("not_nfc", document, [not unicodedata.is_normalized("NFC", part) for part in paragraphs])
        self.block.append(document)
        self.held += len(text)
        if self.held >= BLOCK:
            self._count_block()

    def _count_block(self) -> None:
        joined = "\n".join(document.text for document in self.block)
        codes = np.frombuffer(joined.encode("utf-32-le", "replace"), np.uint32)
        counts = np.bincount(codes, minlength=0x110000)
        self.histogram += counts
        for name in COUNTED:
            if counts[code_points(name)].any():
                self._find_first(name, joined)
            self.signs[name].count = int(self.histogram[code_points(name)].sum())
        self._find_first("mojibake", joined)
        self.signs["mojibake"].count += len(SIGNS["mojibake"].findall(joined))
        if counts[ord("<")] or counts[ord("&")]:
            for document in self.block:
                text = document.text
                if ("<" in text or "&" in text) and SIGNS["html"].search(text):
                    self._mark("html", document, map(bool, map(SIGNS["html"].search, text.split("\n"))))
        self.block, self.held = [], 0

    def _find_first(self, name: str, joined: str) -> None:
        pattern = SIGNS[name]
        if self.signs[name].first is None and pattern.search(joined):
            self.signs[name].first = next((place for d in self.block if (place := first_place(d, pattern))), None)

    def _mark(self, name: str, document: Document, paragraphs: Iterable[bool]) -> None:
        """Count the paragraphs that are so, and remember the first."""
        marked = [at for at, yes in enumerate(paragraphs) if yes]
        sign = self.signs[name]
        sign.count += len(marked)
        if marked and sign.first is None:
            sign.first = line_of(document, marked[0])


def _lengths(counts: Counter[int], unit: str) -> Lengths:
    """Quantiles, and a histogram in powers of two."""
    sizes = np.array(sorted(counts), np.int64)
    weights = np.array([counts[size] for size in sizes.tolist()], np.int64)
    if not len(sizes):
        return Lengths(unit, 0, 0, 0, 0, 0, [])
    ends = np.cumsum(weights)

    def quantile(share: float) -> int:
        return int(sizes[np.searchsorted(ends, share * ends[-1])])

    edges = [0, *(1 << power for power in range(1, int(sizes[-1]).bit_length() + 1))]
    histogram = [(low, high - 1, int(weights[(sizes >= low) & (sizes < high)].sum())) for low, high in pairwise(edges)]
    while histogram and not histogram[0][2]:
        histogram.pop(0)
    return Lengths(unit, int(sizes[0]), quantile(0.5), quantile(0.9), quantile(0.99), int(sizes[-1]), histogram)
