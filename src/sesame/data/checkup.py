"""Figures about a corpus, and about a tokenizer on it: what `sesame doctor` judges by.

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sesame.data.readers import LONGEST_DOCUMENT, Document, file_kind, read_documents
from sesame.data.sentences import split_sentences
from sesame.data.streams import Progress
from sesame.errors import SesameError
from sesame.text import Tokenizer
from sesame.text.train import sample_texts

SAMPLE = 20_000_000  # bytes that the sentence splitter looks at
TOKENIZER_SAMPLE = 5_000_000  # bytes that the tokenizer looks at
BLOCK = 1 << 21  # characters that are counted at once
SHORTEST = 40  # characters: shorter paragraphs (headings, "Yes.") repeat by nature
MOST_HASHES = 4_000_000
LONG_SENTENCE = {"words": 128, "characters": 256}
NEEDED_ROLES = ("pad", "unk", "cls", "sep", "mask")
SPACELESS = ("Han", "Hiragana", "Katakana", "Thai", "Lao", "Khmer", "Myanmar", "Tibetan")

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
_SPACELESS_RUN = re.compile(
    "([\u0e00-\u0eff\u0f00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+)"
)


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


_SCRIPT_NAMES = (
    "Latin Cyrillic Greek Armenian Georgian Hebrew Arabic Syriac Thaana Ethiopic Devanagari Bengali Gurmukhi Gujarati "
    "Oriya Tamil Telugu Kannada Malayalam Sinhala Thai Lao Tibetan Myanmar Khmer Mongolian Cherokee Hangul Hiragana "
    "Katakana Bopomofo Han"
)
_SCRIPTS = frozenset(_SCRIPT_NAMES.split())


def script_of(letter: str) -> str:
    """Latin, Cyrillic, Han ... by the first word of the character's name."""
    words = unicodedata.name(letter, "").replace("KATAKANA-HIRAGANA", "KATAKANA").replace("CJK", "HAN").title().split()
    return next((word for word in words[:2] if word in _SCRIPTS), "Other")


def script_shares(characters: Mapping[str, int]) -> dict[str, float]:
    """The share of each script in the letters, the largest first."""
    counts: Counter[str] = Counter()
    for char, count in characters.items():
        if char.isalpha():
            counts[script_of(char)] += count
    total = max(1, counts.total())
    return {script: count / total for script, count in counts.most_common()}


_FUNCTION_WORDS = {
    "English": "the of and to in is that was for with",
    "German": "der die und das ist nicht ein zu den mit",
    "French": "le la les des et est une dans que pour",
    "Spanish": "el la los las y es una en que por",
    "Italian": "il che di la non è per una sono del",
    "Portuguese": "o a os que de não uma em para do",
    "Dutch": "de het een en van is dat niet op voor",
    "Polish": "nie się na jest że do to jak po przez",
    "Turkish": "ve bir bu için ile da de olarak çok daha",
    "Russian": "и в не на что с как это по из",
    "Ukrainian": "і в не на що з як це та до",
    "Bulgarian": "и на да се за от не това са като",
    "Arabic": "في من على أن إلى عن ما هذا التي لا",
    "Persian": "و در به از که این را با است می",
}
_ONE_LANGUAGE = {"Hangul": "Korean", "Greek": "Greek", "Hebrew": "Hebrew", "Thai": "Thai", "Georgian": "Georgian"}


def guess_language(sample: Sequence[str], scripts: Mapping[str, float]) -> str | None:
    """The language of most of the text by its script and its commonest words; None when nothing stands out."""
    if scripts.get("Hiragana", 0) + scripts.get("Katakana", 0) > 0.1:
        return "Japanese"
    main = next(iter(scripts), "")
    if main == "Han":
        return "Chinese"
    if main in _ONE_LANGUAGE:
        return _ONE_LANGUAGE[main]
    words: Counter[str] = Counter()
    for text in sample[:: max(1, len(sample) // 500)]:
        words.update(text[:2000].lower().split())
    shares = {name: sum(words[w] for w in known.split()) for name, known in _FUNCTION_WORDS.items()}
    best, second = sorted(shares, key=shares.__getitem__, reverse=True)[:2]
    return best if shares[best] > max(1.2 * shares[second], 0.05 * words.total(), 3) else None


# ---- the tokenizer ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Merge:
    """Different letters that the tokenizer makes one; `becomes` is empty for marks that it drops."""

    becomes: str
    letters: dict[str, int]  # with how often they stand in the text, the commonest first
    lost: int  # how many of them can no longer be told from the letter that they became


@dataclass(frozen=True)
class SplitWord:
    word: str
    count: int
    pieces: list[str]


@dataclass(frozen=True)
class TokenizerFigures:
    name: str
    pieces: int
    sampled_bytes: int
    missing_roles: list[str]
    pieces_per_word: float  # in scripts that have spaces
    pieces_per_word_by_script: dict[str, float]  # the worst first; scripts without spaces: pieces per character
    unknown_share: float  # of all tokens
    unknown_characters: list[tuple[str, str, int]]  # character, code point, count in the whole text
    unknown_words: list[tuple[str, int]]  # count in the sample
    merged: list[Merge]
    merged_share: float  # letters lost by merging, of all letters
    changed_words: float  # share of words that normalization changes beyond their case
    most_split: list[SplitWord]
    unused: float  # share of the vocabulary that the sample never needs


def check_tokenizer(tokenizer: Tokenizer, checked: Checked) -> TokenizerFigures:
    """Push the words of the sample and every character of the text through the tokenizer."""
    raw: Counter[str] = Counter()
    texts = sample_texts(checked.sample, cap=TOKENIZER_SAMPLE)
    for text in texts:
        raw.update(text.split())
    unk = tokenizer.id("unk") if tokenizer.has("unk") else -1
    used, unknown_words, unknown, total = np.zeros(len(tokenizer), bool), Counter[str](), 0, 0
    for word, count, ids, offsets in _encoded(tokenizer, raw):
        used[ids] = True
        total += count * len(ids)
        if unk in ids:
            unknown += count * ids.count(unk)
            for id, (start, end) in zip(ids, offsets, strict=True):
                if id == unk:
                    unknown_words[word[max(0, start - 1) : max(0, end - 1)]] += count
    merged = merged_letters(tokenizer, checked.characters)
    letters = sum(count for char, count in checked.characters.items() if char.isalpha())
    cores = _cores(raw, checked.characters)
    mean, by_script, most_split = _fertility(tokenizer, cores)
    changed = sum(count for word, count in cores.items() if _changed(tokenizer, word))
    return TokenizerFigures(
        name=tokenizer.name,
        pieces=len(tokenizer),
        sampled_bytes=sum(len(text.encode("utf-8", "replace")) for text in texts),
        missing_roles=[role for role in NEEDED_ROLES if not tokenizer.has(role)],
        pieces_per_word=mean,
        pieces_per_word_by_script=by_script,
        unknown_share=unknown / max(1, total),
        unknown_characters=_unknown_characters(tokenizer, checked.characters, unk),
        unknown_words=unknown_words.most_common(20),
        merged=merged,
        merged_share=sum(merge.lost for merge in merged) / max(1, letters),
        changed_words=changed / max(1, cores.total()),
        most_split=most_split,
        unused=float(1 - used.mean()),
    )


def _encoded(
    tokenizer: Tokenizer, words: Mapping[str, int]
) -> Iterator[tuple[str, int, list[int], list[tuple[int, int]]]]:
    """(word, count, ids, offsets); a word goes in behind a space, as in running text, which shifts offsets by one."""
    known = list(words.items())
    for start in range(0, len(known), 20_000):
        part = known[start : start + 20_000]
        for (word, count), found in zip(
            part, tokenizer.encode_batch([" " + w for w, _ in part], literal=True), strict=True
        ):
            yield word, count, found.ids, found.offsets


def _cores(raw: Mapping[str, int], characters: Mapping[str, int]) -> Counter[str]:
    """Words without the punctuation around them, runs of text without spaces apart; what has no letter is no word."""
    edges = "".join(char for char in characters if unicodedata.category(char)[0] in "PSC")
    cores: Counter[str] = Counter()
    for word, count in raw.items():
        for part in [word] if word.isascii() else _SPACELESS_RUN.split(word):
            core = part.strip(edges)
            if core and (core[0].isalpha() or core[-1].isalpha()):
                cores[core] += count
    return cores


def _fertility(tokenizer: Tokenizer, cores: Counter[str]) -> tuple[float, dict[str, float], list[SplitWord]]:
    """Pieces per word: the mean, by script, and the common words that are cut most."""
    pieces, units = Counter[str](), Counter[str]()
    common = {word for word, count in cores.most_common(3000) if count > 1 and len(word) > 3}
    split: list[tuple[int, int, str, list[int]]] = []
    for word, count, ids, _ in _encoded(tokenizer, cores):
        script = script_of(word[0] if word[0].isalpha() else word[-1])
        pieces[script] += count * len(ids)
        units[script] += count * (len(word) if script in SPACELESS else 1)
        if word in common and len(ids) > 1 and script not in SPACELESS:
            split.append((-len(ids), -count, word, ids))
    enough = 0.001 * units.total()
    rates = {script: pieces[script] / units[script] for script in units if units[script] >= enough}
    spaced = [script for script in units if script not in SPACELESS]
    mean = sum(pieces[script] for script in spaced) / max(1, sum(units[script] for script in spaced))
    shown = [SplitWord(word, -count, [tokenizer.token(id) for id in ids]) for _, count, word, ids in sorted(split)[:15]]
    return mean, dict(sorted(rates.items(), key=lambda pair: -pair[1])), shown


def _unknown_characters(tokenizer: Tokenizer, characters: Mapping[str, int], unk: int) -> list[tuple[str, str, int]]:
    seen = {char: count for char, count in characters.items() if not char.isspace()}
    found = [(word, count) for word, count, ids, _ in _encoded(tokenizer, seen) if unk in ids]
    found.sort(key=lambda pair: (-pair[1], pair[0]))
    return [(char, f"U+{ord(char):04X}", count) for char, count in found[:20]]


def _normalized(tokenizer: Tokenizer, text: str) -> str:
    normalizer = tokenizer.backend.normalizer
    return text if normalizer is None else str(normalizer.normalize_str(text)).strip(" ▁")


def _plain(text: str) -> str:
    """Without case, and in one spelling of those that Unicode calls equivalent."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).lower())


def merged_letters(tokenizer: Tokenizer, characters: Mapping[str, int]) -> list[Merge]:
    """Groups of different letters that become the same, beyond case and width: й and и, ё and е, ö and o."""
    groups: dict[str, Counter[str]] = {}
    for char, count in characters.items():
        if char.isalpha() or unicodedata.category(char) in ("Mn", "Mc"):
            becomes = unicodedata.normalize("NFC", _normalized(tokenizer, char))
            groups.setdefault(_plain(becomes), Counter())[_plain(char)] += count
    found = []
    for becomes, letters in groups.items():
        lost = letters.total() - letters[becomes]
        if lost and (len(letters) > 1 or not becomes):
            shown = {letter: count for letter, count in letters.most_common() if count}
            found.append(Merge(becomes, shown, lost))
    return sorted(found, key=lambda merge: -merge.lost)


def _changed(tokenizer: Tokenizer, word: str) -> bool:
    return not word.isascii() and _plain(_normalized(tokenizer, word)).replace(" ", "") != _plain(word)
