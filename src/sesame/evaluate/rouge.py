"""ROUGE: how much of a summary's words are the reference's, as Google's `rouge-score` counts them.

Paper: Lin 2004, "ROUGE: A Package for Automatic Evaluation of Summaries" (https://aclanthology.org/W04-1013).
    rouge1, rouge2   F1 over n-grams, repeated ones as often as both have them
    rougeL           F1 over the words of the longest common subsequence
    rougeLsum        the same for texts of several lines, a sentence each: a reference sentence gets the union of its common
                     subsequences with all sentences said, and no word counts more often than it is there
Best reference of each example, mean over examples. Words are runs of a-z and 0-9 after lower-casing; with `stem` those of
more than three letters are stemmed by Porter 1980 (https://tartarus.org/martin/PorterStemmer/def.txt) with NLTK's changes.

Why our own: `rouge-score` drags NLTK, absl and others along, and sees nothing but a-z: every Russian text scores 0 there.
`letters="all"` counts the words of all alphabets, with their vowel signs and accents: left out, as by `re`, a word of Hindi
or Thai would fall apart into consonants. Where there are no words of a-z the default tells so.

Unusual: the table of the common subsequence is kept as one whole number a word (Hyyrö 2004): bit i of row j is 0 where word
i of the reference makes the subsequence with the first j words longer. A row costs a few operations on long integers, and
the bits suffice to walk back along the same path as `rouge-score`.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Literal, get_args
from unicodedata import category

import numpy as np

from sesame.errors import SesameError
from sesame.evaluate.statistics import Floats, Interval, bootstrap_interval
from sesame.evaluate.translation import Gold, references
from sesame.progress import say

Letters = Literal["ascii", "all"]
NAMES = ("rouge1", "rouge2", "rougeL", "rougeLsum")
_ASCII = re.compile("[a-z0-9]+")


def rouge_scores(
    gold: Gold, said: Sequence[str], stem: bool = False, letters: Letters = "ascii", rounds: int = 1000, seed: int = 0
) -> dict[str, Interval]:
    """Mean F1 of each of `NAMES`, with its 95 % interval over examples."""
    table = rouge_each(gold, said, stem, letters)
    return {name: bootstrap_interval(table[name], rounds=rounds, seed=seed) for name in NAMES}


def rouge_each(gold: Gold, said: Sequence[str], stem: bool = False, letters: Letters = "ascii") -> dict[str, Floats]:
    """F1 of each example, by name; two systems are compared by `statistics.paired_bootstrap` of such rows."""
    if letters not in get_args(Letters):
        raise SesameError(f"letters are {letters!r}; choose one of {', '.join(get_args(Letters))}")
    wanted = references(gold, said)
    _warn_without_words(wanted, letters)
    rows = [
        np.max([_example(_lines(text, stem, letters), _lines(given, stem, letters)) for text in texts], axis=0)
        for texts, given in zip(wanted, said, strict=True)
    ]
    return dict(zip(NAMES, np.array(rows, dtype=np.float64).T, strict=True))


def _example(gold: list[list[str]], said: list[list[str]]) -> list[float]:
    """F1 of one text against one reference, both as lines of words, in the order of `NAMES`."""
    wanted, given = ([word for line in lines for word in line] for lines in (gold, said))
    return [
        _ngrams(wanted, given, 1),
        _ngrams(wanted, given, 2),
        _f1(len(common(wanted, given)), len(wanted), len(given)),
        _f1(_union(gold, said), len(wanted), len(given)),
    ]


def _f1(same: int, wanted: int, given: int) -> float:
    return 2 * same / (wanted + given) if same else 0.0


def _ngrams(wanted: list[str], given: list[str], size: int) -> float:
    a, b = (Counter(zip(*(words[at:] for at in range(size)), strict=False)) for words in (wanted, given))
    return _f1((a & b).total(), a.total(), b.total())


def common(wanted: Sequence[str], given: Sequence[str]) -> list[int]:
    """Places in `wanted` of a longest common subsequence; of several, the one that `rouge-score` takes."""
    places: dict[str, int] = {}
    for at, word in enumerate(wanted):
        places[word] = places.get(word, 0) | 1 << at
    full = (1 << len(wanted)) - 1
    rows = [full]
    for word in given:
        above, here = rows[-1], rows[-1] & places.get(word, 0)
        rows.append((above + here | above - here) & full)
    found: list[int] = []
    i, j = len(wanted), len(given)
    while i and j:
        if wanted[i - 1] == given[j - 1]:
            found.append(i - 1)
            i, j = i - 1, j - 1
        elif rows[j] >> (i - 1) & 1:
            i -= 1
        else:
            j -= 1
    return found[::-1]


def _union(gold: list[list[str]], said: list[list[str]]) -> int:
    left = Counter(word for line in gold for word in line) & Counter(word for line in said for word in line)
    hits = 0
    for line in gold:
        for at in sorted({place for other in said for place in common(line, other)}):
            if left[line[at]]:
                left[line[at]] -= 1
                hits += 1
    return hits


def _lines(text: str, stem: bool, letters: Letters) -> list[list[str]]:
    lines = [_words(line, letters) for line in text.lower().split("\n")]
    return [[porter(word) if len(word) > 3 else word for word in line] for line in lines] if stem else lines


def _words(text: str, letters: Letters) -> list[str]:
    if letters == "ascii" or text.isascii():
        return _ASCII.findall(text)
    runs = "".join(sign if sign.isalnum() or category(sign)[0] == "M" else " " for sign in text).split()
    return [run for run in runs if any(map(str.isalnum, run))]  # an emoji may end in a mark, which is no word


def _warn_without_words(wanted: list[list[str]], letters: Letters) -> None:
    none = [
        number
        for number, texts in enumerate(wanted, 1)
        if any(text.strip() and not _words(text.lower(), letters) for text in texts)
    ]
    if none:
        advice = '; go by chrf, or in Python by rouge_scores(..., letters="all")' if letters == "ascii" else ""
        say(
            f"{len(none):,} of {len(wanted):,} examples have a reference without any word of ROUGE and score 0 on it, the "
            f"first is example {none[0]:,}{advice}"
        )


# ---- Porter's stemmer ------------------------------------------------------------------------------------------------


def _rules(table: str) -> list[tuple[str, str]]:
    return [(suffix, new) for suffix, _, new in (rule.partition(":") for rule in table.split())]


_IRREGULAR = dict(
    _rules("""sky:sky skies:sky dying:die lying:lie tying:tie news:news inning:inning innings:inning outing:outing
    outings:outing canning:canning cannings:canning howe:howe proceed:proceed exceed:exceed succeed:succeed""")
)
_STEP_2 = _rules("""ational:ate tional:tion enci:ence anci:ance izer:ize bli:ble alli:al entli:ent eli:e ousli:ous
    ization:ize ation:ate ator:ate alism:al iveness:ive fulness:ful ousness:ous aliti:al iviti:ive biliti:ble fulli:ful""")
_STEP_3 = _rules("icate:ic ative: alize:al iciti:ic ical:ic ful: ness:")
_STEP_4 = _rules("al: ance: ence: er: ic: able: ible: ant: ement: ment: ent: ion: ou: ism: ate: iti: ous: ive: ize:")


@lru_cache(maxsize=1 << 16)
def porter(word: str) -> str:
    """The stem of a lower-case English word of three letters or more."""
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    word = _endings(_plural(word))
    if word.endswith("y") and len(word) > 2 and _shape(word)[-2] == "c":
        word = word[:-1] + "i"
    while word.endswith("alli") and _measure(word[:-4]) > 0:  # NLTK: first and again
        word = word[:-2]
    if word.endswith("logi"):  # NLTK: the l belongs to the stem
        word = word[:-1] if _measure(word[:-3]) > 0 else word
    else:
        word = _first(word, _STEP_2, 0)
    word = _first(_first(word, _STEP_3, 0), _STEP_4, 1)
    if word.endswith("e"):
        measure = _measure(word[:-1])
        if measure > 1 or (measure == 1 and not _short(word[:-1])):
            word = word[:-1]
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word


def _plural(word: str) -> str:
    """Step 1a."""
    if word.endswith("ies"):
        return word[:-1] if len(word) == 4 else word[:-2]  # NLTK: dies is die, flies is fli
    if word.endswith("sses"):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _endings(word: str) -> str:
    """Step 1b: -ed and -ing."""
    if word.endswith("ied"):  # NLTK, as above
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for suffix in ("ed", "ing"):
        stem = word.removesuffix(suffix)
        if stem != word and "v" in _shape(stem):
            break
    else:
        return word
    if stem.endswith(("at", "bl", "iz")):
        return stem + "e"
    if len(stem) > 1 and stem[-1] == stem[-2] and _shape(stem)[-1] == "c":
        return stem if stem[-1] in "lsz" else stem[:-1]
    return stem + "e" if _measure(stem) == 1 and _short(stem) else stem


def _first(word: str, rules: list[tuple[str, str]], least: int) -> str:
    """The first rule whose suffix fits decides: the suffix is replaced if the measure of what is before it is > least."""
    for suffix, new in rules:
        if word.endswith(suffix):
            stem = word[: -len(suffix)]
            fits = _measure(stem) > least and (suffix != "ion" or stem[-1] in "st")
            return stem + new if fits else word
    return word


def _measure(stem: str) -> int:
    """How often vowels are followed by consonants: m of [C](VC)^m[V]."""
    return _shape(stem).count("vc")


def _short(stem: str) -> bool:
    """Consonant, vowel, consonant but not w, x or y at the end; NLTK: or a word of vowel and consonant."""
    shape = _shape(stem)
    return (shape[-3:] == "cvc" and stem[-1] not in "wxy") or shape == "vc"


def _shape(word: str) -> str:
    return "".join(_kinds(word))


def _kinds(word: str) -> Iterator[str]:
    """c or v for each letter; y is a vowel behind a consonant."""
    before = "v"
    for letter in word:
        before = "v" if letter in "aeiou" or (letter == "y" and before == "c") else "c"
        yield before
