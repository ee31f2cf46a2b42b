"""How sure is a number: over seeds, over examples, and between two models on the same examples.

    over seeds     mean +- t(0.975, n - 1) std / sqrt(n), std with n - 1: "what would another seed give on average?"
    over examples  bootstrap: draw as many examples with replacement, score, repeat; the middle 95 % of the scores
    paired         both models are scored on the same draws; p is how often the difference strays from the one seen by
                   at least that difference, which is how often it would come by chance if there were none:
                   p = (1 + #{|d* - d| >= |d|}) / (1 + rounds)
                   and never less than the sign test could give, 2^(1 - m) for m examples that differ: resamples of three
                   examples that all speak for one model never stray, but three examples prove nothing

Seeds and examples are different sources of chance: a small interval over seeds says nothing about other test examples.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sesame.errors import SesameError
from sesame.evaluate import check_pairs
from sesame.evaluate.classification import share

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Metric = Callable[[Ints], Floats]  # which examples are taken, (rounds, examples) -> scores (rounds,)
_LARGEST_BLOCK = 1 << 22  # drawn numbers that are held at once


@dataclass(frozen=True)
class Summary:
    """Over seeds. With one seed nothing is known about the others: std, low and high are None."""

    mean: float
    std: float | None
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class Interval:
    """A score and the middle 95 % of its resamples."""

    value: float
    low: float
    high: float


def summary(values: Sequence[float], least: float = -np.inf, most: float = np.inf) -> Summary:
    """Mean, standard deviation (n - 1) and the 95 % t-interval of the mean, within what a score can be."""
    x = _finite(values)
    if len(x) == 1:
        return Summary(float(x[0]), None, None, None, 1)
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    mean, std = float(x.mean()), float(x.std(ddof=1))
    half = float(stdtrit(len(x) - 1, 0.975)) * std / len(x) ** 0.5
    return Summary(mean, std, max(mean - half, least), min(mean + half, most), len(x))


def bootstrap_interval(
    scores: ArrayLike, metric: Callable[[Floats], float] | None = None, rounds: int = 1000, seed: int = 0
) -> Interval:
    """The 95 % interval of `metric` (the mean, if None) over examples; `scores` has an example a row."""
    x = _finite(scores)
    if metric is None:
        means = x.mean(0)
        if means.ndim:
            raise SesameError("scores with several columns have no single mean; give a metric")
        return _interval(float(means), np.concatenate([x[taken].mean(1) for taken in _draws(len(x), rounds, seed)]))
    values = [metric(x[row]) for taken in _draws(len(x), rounds, seed) for row in taken]
    return _interval(float(metric(x)), np.array(values, dtype=np.float64))


def paired_bootstrap(a: ArrayLike, b: ArrayLike, rounds: int = 10_000, seed: int = 0) -> dict[str, float]:
    """difference (mean of a - mean of b), low, high, p; a and b are scores (or right and wrong) of the same examples."""
    x, y = _finite(a), _finite(b)
    check_pairs(x, y)
    gaps = x - y  # the mean is linear: one array to draw from
    resampled = np.concatenate([gaps[taken].mean(1) for taken in _draws(len(gaps), rounds, seed)])
    return _compared(float(gaps.mean()), resampled, int(np.count_nonzero(gaps)))


def paired_bootstrap_metric(
    a: Metric, b: Metric, examples: int, rounds: int = 10_000, seed: int = 0, differing: int | None = None
) -> dict[str, float]:
    """As `paired_bootstrap` for scores that are no means, such as F1 or Matthews.

    `a` and `b` score draws of examples, many at once: `classification.resampled`, `micro_f1`, or `each` of any function.
    `differing`: of how many examples the two have different answers; of all, where it is not said.
    """
    if examples < 1:
        raise SesameError("there is nothing to compare; give at least one example")
    everything = np.arange(examples)[None]
    differences = [a(taken) - b(taken) for taken in _draws(examples, rounds, seed)]
    difference = float((a(everything) - b(everything))[0])
    return _compared(difference, np.concatenate(differences), examples if differing is None else differing)


def each(score: Callable[[Ints], float]) -> Metric:
    """Lift a score of one draw (examples,) to many."""
    return lambda taken: np.array([score(row) for row in taken], dtype=np.float64)


def micro_f1(counts: ArrayLike) -> Metric:
    """F1 over draws of rows (right, said, gold): `entities.entity_counts`, `classification.multilabel_counts`."""
    table = np.asarray(counts)

    def score(taken: Ints) -> Floats:
        right, said, gold = (table[:, at][taken].sum(1) for at in range(3))
        return share(2 * right, said + gold)

    return score


def _draws(examples: int, rounds: int, seed: int) -> Iterator[Ints]:
    """Draws with replacement, (some rounds, examples) at a time, `rounds` in all; the same for the same seed."""
    if rounds < 1:
        raise SesameError(f"{rounds} rounds of resampling; take at least one, better a thousand")
    random = np.random.default_rng(seed)
    block = max(1, _LARGEST_BLOCK // examples)
    for at in range(0, rounds, block):
        yield random.integers(examples, size=(min(block, rounds - at), examples))


def _interval(value: float, resampled: Floats) -> Interval:
    low, high = np.quantile(resampled, [0.025, 0.975])
    return Interval(value, float(low), float(high))


def _compared(difference: float, resampled: Floats, differing: int) -> dict[str, float]:
    seen = _interval(difference, resampled)
    strayed = np.abs(resampled - difference) >= abs(difference) - 1e-12  # ties count, also after rounding
    p = max((1 + int(strayed.sum())) / (1 + len(resampled)), 2.0 ** (1 - differing))
    return {"difference": difference, "low": seen.low, "high": seen.high, "p": min(p, 1.0)}


def _finite(values: ArrayLike) -> Floats:
    x = np.asarray(values, dtype=np.float64)
    if x.ndim == 0 or len(x) == 0:
        raise SesameError("there are no scores to summarize; give at least one")
    if not np.isfinite(x).all():
        at = int(np.argmin(np.isfinite(x.reshape(len(x), -1)).all(1)))
        raise SesameError(f"score {at + 1} is not a finite number; leave out the run or example that failed")
    return x
