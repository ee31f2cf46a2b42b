"""Figures about a tokenizer on a text: pieces, unknowns, and what its normalisation merges."""

import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from sesame.doctor.scripts import SPACELESS, SPACELESS_RUN, script_of
from sesame.doctor.text import Checked
from sesame.text import Tokenizer
from sesame.text.train import sample_texts

TOKENIZER_SAMPLE = 5_000_000  # bytes that the tokenizer looks at
NEEDED_ROLES = ("pad", "unk", "cls", "sep", "mask")


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
        for part in [word] if word.isascii() else SPACELESS_RUN.split(word):
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
