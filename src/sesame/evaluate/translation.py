"""Translations against references: corpus BLEU and chrF by sacrebleu, with the signature that makes them comparable.

Papers: Papineni et al. 2002 (BLEU), Popović 2015 (chrF), Post 2018 (https://aclanthology.org/W18-6319: say how you scored).
    BLEU = min(1, e^(1 - r/c)) (p1 p2 p3 p4)^(1/4)     p_n: share of the n-grams said that are in a reference; lengths c, r
    chrF = 5 P R / (4 P + R)                           precision and recall of character n-grams, mean of n = 1 ... 6
Both are computed from counts summed over the corpus; no mean of sentences equals them.

Nothing of the counting is ours: sacrebleu tokenizes and counts. Ours are the intervals, from the same draws as all others of
this room (`statistics`): the counts of each sentence are taken once, a draw of sentences is scored from their sum.

Unusual: as in the whole room values are shares between 0 and 1; `str` of a score prints a hundred times that with the
signature, as papers do. References come by example, [["a cat", "one cat"], ["a dog"]], not in files as sacrebleu wants
them; examples may have different numbers of them.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sesame.errors import SesameError
from sesame.evaluate import check_pairs
from sesame.evaluate.baselines import UNSPACED
from sesame.evaluate.statistics import Floats, Ints, bootstrap_interval, each, paired_bootstrap_metric
from sesame.progress import say

Gold = Sequence[str | Sequence[str]]  # the reference, or the references, of each example
TOKENIZERS = ("13a", "intl", "zh", "char", "none")
SMOOTHINGS = ("exp", "floor", "add-k", "none")


@dataclass(frozen=True)
class Bleu:
    """How BLEU is counted; what stands here is what papers mean by "sacrebleu"."""

    tokenizer: str = "13a"  # intl: all of Unicode's punctuation and symbols; zh, char: for scripts without spaces
    lowercase: bool = False
    smoothing: str = "exp"

    def __post_init__(self) -> None:
        for what, given, known in (
            ("tokenizer", self.tokenizer, TOKENIZERS),
            ("smoothing", self.smoothing, SMOOTHINGS),
        ):
            if given not in known:
                raise SesameError(f"BLEU has no {what} {given!r} here; choose one of {', '.join(known)}")


@dataclass(frozen=True)
class ChrF:
    words: int = 0  # n-grams of words up to this length count too; 2 is chrF++
    lowercase: bool = False


@dataclass(frozen=True)
class CorpusScore:
    """A share, its 95 % interval over sentences (None: not asked for), and how it was counted."""

    name: str
    value: float
    low: float | None
    high: float | None
    signature: str

    def __str__(self) -> str:
        text = f"{self.name} {100 * self.value:.2f}"
        if self.low is not None and self.high is not None:
            text += f" (95 % of resamples: {100 * self.low:.2f} to {100 * self.high:.2f})"
        return f"{text}  {self.name}|{self.signature}"


def corpus_score(how: Bleu | ChrF, gold: Gold, said: Sequence[str], rounds: int = 0, seed: int = 0) -> CorpusScore:
    """The score of a whole test set; with `rounds` of resampling also its interval."""
    wanted = references(gold, said)
    columns = _columns(wanted)
    if isinstance(how, Bleu):
        _warn_if_tokenized(how, said)
        _warn_if_unspaced(how, wanted)
    metric = _metric(how)
    found = metric.corpus_score(list(said), columns)
    signature = str(metric.get_signature())
    if not rounds:
        return CorpusScore(found.name, found.score / 100, None, None, signature)
    counts, score = _counts(metric, columns, said)
    interval = bootstrap_interval(counts, lambda rows: score(rows.sum(0)), rounds, seed)
    return CorpusScore(found.name, found.score / 100, interval.low, interval.high, signature)


def compare_systems(
    how: Bleu | ChrF, gold: Gold, a: Sequence[str], b: Sequence[str], rounds: int = 1000, seed: int = 0
) -> dict[str, float]:
    """difference (a - b), low, high, p: the paired bootstrap (Koehn 2004), both systems on the same draws of sentences."""
    columns = _columns(references(gold, a))
    check_pairs(gold, b)
    metric = _metric(how)
    sides = [_drawn(*_counts(metric, columns, said)) for said in (a, b)]
    differing = sum(x != y for x, y in zip(a, b, strict=True))
    return paired_bootstrap_metric(sides[0], sides[1], len(gold), rounds, seed, differing)


def sentence_chrf(gold: Gold, said: Sequence[str], how: ChrF | None = None) -> list[float]:
    """chrF of each sentence by itself, to sort the worst to the top; BLEU is mostly 0 on single sentences."""
    metric = _metric(how or ChrF())
    pairs = zip(references(gold, said), said, strict=True)
    return [metric.sentence_score(given, wanted).score / 100 for wanted, given in pairs]


def references(gold: Gold, said: Sequence[str]) -> list[list[str]]:
    """The references of each example as a list; at least one each. Blank ones are told, and kept."""
    if isinstance(said, str) or isinstance(gold, str):
        raise SesameError("one text is given where a list of texts is needed; put it in brackets")
    check_pairs(gold, said)
    found = [[one] if isinstance(one, str) else list(one) for one in gold]
    for number, texts in enumerate(found, 1):
        if not texts:
            raise SesameError(f"example {number:,} has no reference; give at least one for each example")
    blank = [number for number, texts in enumerate(found, 1) if not any(text.strip() for text in texts)]
    if blank:
        say(f"{len(blank):,} of {len(found):,} examples have a blank reference, the first is example {blank[0]:,}")
    return found


def _columns(found: list[list[str]]) -> list[list[str | None]]:
    """First references, second references ...; None where an example has fewer."""
    most = max(map(len, found))
    return [[texts[at] if at < len(texts) else None for texts in found] for at in range(most)]


def _counts(
    metric: Any, columns: list[list[str | None]], said: Sequence[str]
) -> tuple[Floats, Callable[[Floats], float]]:
    """A row of counts for each sentence, and the score of summed rows. Sacrebleu's own resampling uses the same two."""
    counts = np.array(metric._extract_corpus_statistics(said, columns), dtype=np.float64)
    return counts, lambda total: float(metric._compute_score_from_stats(total.tolist()).score) / 100


def _drawn(counts: Floats, score: Callable[[Floats], float]) -> Callable[[Ints], Floats]:
    return each(lambda row: score(counts[row].sum(0)))


def _metric(how: Bleu | ChrF) -> Any:
    try:
        from sacrebleu.metrics.bleu import BLEU  # type: ignore[import-not-found, unused-ignore]
        from sacrebleu.metrics.chrf import CHRF  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise SesameError("BLEU and chrF need a package; pip install sacrebleu") from None
    if isinstance(how, ChrF):
        return CHRF(word_order=how.words, lowercase=how.lowercase)
    return BLEU(lowercase=how.lowercase, tokenize=how.tokenizer, smooth_method=how.smoothing, force=True)


def _warn_if_tokenized(how: Bleu, said: Sequence[str]) -> None:
    apart = sum(text.endswith(" .") for text in said)
    if how.tokenizer != "none" and 2 * apart > len(said):
        say(
            f"{apart:,} of {len(said):,} translations end in a full stop that stands apart: they look tokenized, and BLEU "
            "would count other words than in plain text; give plain text on both sides"
        )


def _warn_if_unspaced(how: Bleu, wanted: list[list[str]]) -> None:
    letters = [letter for texts in wanted for text in texts for letter in text if letter.isalpha()]
    apart = sum(map(bool, map(re.compile(f"[{UNSPACED}]").match, letters)))
    if how.tokenizer not in ("zh", "char") and 2 * apart > len(letters):
        say(
            "BLEU counts what stands between spaces, and the script of these references has none: go by chrF, or in Python "
            'by Bleu("zh") or Bleu("char")'
        )
