"""Answers to questions, by the rules of SQuAD's scripts (1.1 and 2.0).

An answer is compared after lower-casing and without ASCII punctuation, English articles and extra white space:

    exact = 1 if both are then equal
    f1    = 2 same / (words said + words gold), `same` counting repeated words as often as both have them

The best over the gold answers counts. A question without gold answers is answered right by the empty text alone. Scores
are shares; the scripts print a hundred times these. Of 1.1 and 2.0, which differ only where nothing of an answer is left
after the cleaning ("The" for the film "A"), the rule of 2.0 holds: both empty is 1, one empty is 0.
"""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from sesame.errors import SesameError
from sesame.progress import say

Gold = Mapping[str, Sequence[str]]
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalize_answer(text: str) -> str:
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(gold: str, said: str) -> float:
    return float(normalize_answer(gold) == normalize_answer(said))


def answer_f1(gold: str, said: str) -> float:
    """F1 over words; if one of the two has none, 1 if both have none, else 0."""
    wanted, given = normalize_answer(gold).split(), normalize_answer(said).split()
    if not wanted or not given:
        return float(wanted == given)
    same = (Counter(wanted) & Counter(given)).total()
    return 2 * same / (len(wanted) + len(given))


def best_over_gold(gold: Sequence[str], said: str) -> tuple[float, float]:
    """(exact, f1) of one question. Gold answers of which nothing is left are dropped, as in the script of 2.0."""
    wanted = [answer for answer in gold if normalize_answer(answer)] or [""]
    return max(exact_match(one, said) for one in wanted), max(answer_f1(one, said) for one in wanted)


def answer_scores(gold: Gold, said: Mapping[str, str]) -> dict[str, tuple[float, float]]:
    """(exact, f1) of each question of `gold`, for `statistics`; a question without a prediction gets 0, and is told."""
    if not gold:
        raise SesameError("there is nothing to score; give at least one question with its answers")
    missing = [question for question in gold if question not in said]
    if missing:
        say(f"{len(missing):,} of {len(gold):,} questions have no prediction and score 0, the first is {missing[0]!r}")
    return {
        question: best_over_gold(answers, said[question]) if question in said else (0.0, 0.0)
        for question, answers in gold.items()
    }


def squad_scores(gold: Gold, said: Mapping[str, str]) -> dict[str, float]:
    """exact, f1, total; where some questions have no answer (2.0) also HasAns_* and NoAns_* of each."""
    return _totals(gold, answer_scores(gold, said))


def _totals(gold: Gold, scores: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    groups = {"": list(gold)}
    if not all(gold.values()):
        groups["HasAns_"] = [question for question in gold if gold[question]]
        groups["NoAns_"] = [question for question in gold if not gold[question]]
    totals: dict[str, float] = {}
    for prefix, questions in groups.items():
        if questions:
            for at, name in enumerate(("exact", "f1")):
                totals[prefix + name] = sum(scores[question][at] for question in questions) / len(questions)
            totals[prefix + "total"] = len(questions)
    return totals


def best_null_threshold(
    gold: Gold, said: Mapping[str, str], null_scores: Mapping[str, float], by: Literal["exact", "f1"] = "f1"
) -> tuple[float, dict[str, float]]:
    """The threshold t with the best score if questions with null_scores > t are answered by nothing, and its scores.

    The sweep of the script of 2.0: walk up the sorted null scores and let one more question speak at each step. The
    smallest of equally good thresholds is taken; unlike there, equal null scores are let in together (no threshold could
    part them), a threshold below all null scores stands for "never answer", and it lies halfway to the next null score: the
    last question that speaks must not fall silent because another machine rounds otherwise.
    """
    spoken = answer_scores(gold, said)
    wrong = [question for question in gold if not np.isfinite(null_scores.get(question, np.nan))]
    if wrong:
        raise SesameError(f"question {wrong[0]!r} has no finite null score; give one for each of the questions")
    silent = {question: best_over_gold(answers, "") for question, answers in gold.items()}
    questions = sorted(gold, key=lambda question: null_scores[question])
    values = np.array([null_scores[question] for question in questions], dtype=np.float64)
    column = ("exact", "f1").index(by)
    gains = [spoken[question][column] - silent[question][column] for question in questions]
    total = np.concatenate([[0.0], np.cumsum(gains)])
    total[1:-1][values[1:] == values[:-1]] = -np.inf  # between equal null scores is no threshold
    best = int(np.argmax(total.round(9)))  # rounded: sums of thirds must tie as the fractions do
    threshold = _between(values, best)
    chosen = {
        question: spoken[question] if null_scores[question] <= threshold else silent[question] for question in gold
    }
    return threshold, _totals(gold, chosen)


def _between(values: npt.NDArray[np.float64], count: int) -> float:
    """A number that `count` of the sorted values do not exceed, as far from all of them as can be."""
    low = float(values[count - 1]) if count else float(values[0]) - 1.0
    high = float(values[count]) if count < len(values) else float(values[-1]) + 1.0
    middle = low + (high - low) / 2
    return middle if low <= middle < high else low
