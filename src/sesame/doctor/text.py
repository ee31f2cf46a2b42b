"""Figures about a corpus: what `sesame doctor` judges a text by.

One pass over the text keeps a histogram of code points, counters of lengths and eight bytes for each paragraph; what
costs more (sentences, words, the tokenizer) looks at an even sample of some megabytes.

What is unusual: nothing is asked of every character in Python. The histogram tells whether a block of text has a
suspicious character at all, and only such blocks are searched for the place.
"""

import hashlib
import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sesame.data.corpus_files import file_kind
from sesame.data.readers import LONGEST_DOCUMENT, Document, read_documents
from sesame.data.sentences import split_sentences
from sesame.data.streams import Progress
from sesame.doctor.scripts import SPACELESS, guess_language, script_shares
from sesame.errors import SesameError
from sesame.text.train import sample_texts

SAMPLE = 20_000_000  # bytes that the sentence splitter looks at
BLOCK = 1 << 21  # characters that are counted at once
SHORTEST = 40  # characters: shorter paragraphs (headings, "Yes.") repeat by nature
MOST_HASHES = 4_000_000
LONG_SENTENCE = {"words": 128, "characters": 256}

# UTF-8 that was read as another encoding. A set in front lets the engine skip to the next candidate; where a pair could
# be an accident (capital Ð or Р before a quote), several in a row are asked for.
_CP1252 = "\u0080-\u00bf€‚ƒ„…†‡ˆ‰Š‹Œ‘’“”•–—˜™š›œžŸŽ"
_CP1251 = "\u00a0-\u00bfЂЃ‚ѓ„…†‡€‰Љ‹ЊЌЋЏђ‘’“”•–—™љ›њќћџЎўЈҐЁЄЇІіґё№єјЅѕї"
_SIGNS = {
    "replacement": re.compile("\ufffd"),
    "control": re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"),
    "invisible": re.compile("[\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]"),
    "mojibake": re.compile(
        "[ÃÂÐÑâïРС锟](?:"
        "(?<=Ã)[\u0080-\u009f\u00a1-\u00aa\u00ac-\u00ba\u00bc-\u00bf€ƒ†‡ˆ‰Š‹ŒŽ•˜™š›œžŸ]"
        "|(?<=Â)[\u00a0-\u00aa\u00ac-\u00ba\u00bc-\u00bf]"
        f"|(?<=[ÐÑ])[{_CP1252}][ÐÑ][{_CP1252}]"
        f"|(?<=[РС])[{_CP1251}](?:[РС][{_CP1251}]){{2}}"
        f"|(?<=â)€[{_CP1252}]|(?<=ï)(?:¿½|»¿)|(?<=锟)斤拷)"
    ),
    "html": re.compile(
        r"</?(?:p|br|div|span|a|b|i|u|em|strong|ul|ol|li|table|tr|td|th|h[1-6]|img|script|style|sup|sub|ref|font|code|pre"
        r"|blockquote|center|html|body|head|meta|link|section|article|form|input)(?:\s[^<>]{0,300})?/?>"
        r"|&(?:amp|lt|gt|quot|apos|nbsp|[lr]aquo|[mn]dash|hellip|[lr]squo|[lr]dquo|#\d{2,6}|#x[0-9a-f]{2,5});",
        re.IGNORECASE,
    ),
}
_COUNTED = ("replacement", "control", "invisible")  # by the histogram; the others by a search


@dataclass
class Sign:
    """How often something suspicious stands in the text, and where first ("file:line")."""

    count: int = 0
    first: str | None = None


@dataclass(frozen=True)
class Repeats:
    """Copies beyond the first: how many, their share of the characters, the most repeated."""

    count: int
    share: float
    examples: list[tuple[int, str]]  # times, beginning


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
        self.signs = {name: Sign() for name in (*_SIGNS, "not_nfc")}
        self.lengths: dict[str, Counter[int]] = {"words": Counter(), "characters": Counter()}
        self.repeated_paragraphs, self.repeated_documents = _Repeated(), _Repeated()
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
        for name in _COUNTED:
            if counts[_codes(name)].any():
                self._find_first(name, joined)
            self.signs[name].count = int(self.histogram[_codes(name)].sum())
        self._find_first("mojibake", joined)
        self.signs["mojibake"].count += len(_SIGNS["mojibake"].findall(joined))
        if counts[ord("<")] or counts[ord("&")]:
            for document in self.block:
                text = document.text
                if ("<" in text or "&" in text) and _SIGNS["html"].search(text):
                    self._mark("html", document, map(bool, map(_SIGNS["html"].search, text.split("\n"))))
        self.block, self.held = [], 0

    def _find_first(self, name: str, joined: str) -> None:
        pattern = _SIGNS[name]
        if self.signs[name].first is None and pattern.search(joined):
            self.signs[name].first = next((place for d in self.block if (place := _place(d, pattern))), None)

    def _mark(self, name: str, document: Document, paragraphs: Iterable[bool]) -> None:
        """Count the paragraphs that are so, and remember the first."""
        marked = [at for at, yes in enumerate(paragraphs) if yes]
        sign = self.signs[name]
        sign.count += len(marked)
        if marked and sign.first is None:
            sign.first = _line(document, marked[0])


@cache
def _codes(name: str) -> list[int]:
    """The code points that count as this sign."""
    return [code for code in range(0x10000) if not 0xD800 <= code < 0xE000 and _SIGNS[name].match(chr(code))]


def _place(document: Document, pattern: re.Pattern[str]) -> str | None:
    found = pattern.search(document.text)
    return _line(document, document.text.count("\n", 0, found.start())) if found else None


def _line(document: Document, paragraph: int) -> str:
    """A paragraph of a text file is a line; in the other formats the whole document is one."""
    inside = paragraph if file_kind(Path(document.file)) == "text" else 0
    return f"{document.file}:{document.line + inside}"


class _Repeated:
    """Finds copies by hash, in bounded memory: above some millions only hashes that end in zero bits are kept."""

    def __init__(self) -> None:
        self.hashes, self.sizes = array("Q"), array("I")
        self.mask = 0
        # One bit for each hash seen: only what was probably there before is kept as text, to be shown.
        self.seen = bytearray(1 << 23)
        self.heads: dict[int, str] = {}

    def add(self, text: str) -> None:
        digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
        key = int.from_bytes(digest, "little")
        if key & self.mask:
            return
        self.hashes.append(key)
        self.sizes.append(len(text))
        byte, bit = key >> 41, 1 << (key >> 38 & 7)
        if self.seen[byte] & bit:
            if len(self.heads) < 50_000:
                self.heads.setdefault(key, text[:120])
        else:
            self.seen[byte] |= bit
        if len(self.hashes) >= MOST_HASHES:
            self._thin()

    def _thin(self) -> None:
        self.mask = 2 * self.mask + 1
        hashes, sizes = np.array(self.hashes, np.uint64), np.array(self.sizes, np.uint32)
        kept = hashes & np.uint64(self.mask) == 0
        self.hashes, self.sizes = array("Q", hashes[kept].tobytes()), array("I", sizes[kept].tobytes())
        self.heads = {key: head for key, head in self.heads.items() if not key & self.mask}

    def figures(self) -> Repeats:
        hashes, sizes = np.array(self.hashes, np.uint64), np.array(self.sizes, np.int64)
        keys, first, counts = np.unique(hashes, return_index=True, return_counts=True)
        extra = counts - 1
        times = dict(zip(keys[extra > 0].tolist(), counts[extra > 0].tolist(), strict=True))
        shown = sorted(
            ((times[key], head) for key, head in self.heads.items() if key in times), key=lambda e: (-e[0], e[1])
        )
        share = float((extra * sizes[first]).sum() / max(1, int(sizes.sum())))
        return Repeats(int(extra.sum()) * (self.mask + 1), share, shown[:3])


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
