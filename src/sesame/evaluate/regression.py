"""Scores of numbers: two correlations and two errors.

    pearson  = cov(gold, said) / (std(gold) std(said))
    spearman = pearson of the ranks, ties sharing their mean rank

A correlation with a constant is not defined; here it is 0.0: answers that never change tell nothing.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sesame.errors import SesameError
from sesame.evaluate import check_pairs

Floats = NDArray[np.float64]
Numbers = Sequence[float] | Floats


def regression_scores(gold: Numbers, said: Numbers) -> dict[str, float]:
    """pearson, spearman, mse, mae."""
    return {name: score(gold, said) for name, score in SCORES.items()}


def pearson(gold: Numbers, said: Numbers) -> float:
    """Is the relation a straight line? 0.0 where one side is constant."""
    return _correlation(*_pairs(gold, said))


def spearman(gold: Numbers, said: Numbers) -> float:
    """Is the order right? 0.0 where one side is constant."""
    x, y = _pairs(gold, said)
    return _correlation(_ranks(x), _ranks(y))


def mse(gold: Numbers, said: Numbers) -> float:
    x, y = _pairs(gold, said)
    return float(((x - y) ** 2).mean())


def mae(gold: Numbers, said: Numbers) -> float:
    x, y = _pairs(gold, said)
    return float(np.abs(x - y).mean())


SCORES = {score.__name__: score for score in (pearson, spearman, mse, mae)}


def _pairs(gold: Numbers, said: Numbers) -> tuple[Floats, Floats]:
    check_pairs(gold, said)
    x, y = np.asarray(gold, dtype=np.float64), np.asarray(said, dtype=np.float64)
    for name, values in (("gold", x), ("said", y)):
        if not np.isfinite(values).all():
            at = int(np.argmin(np.isfinite(values)))
            raise SesameError(f"the {name} number of example {at + 1} is {values[at]}; give finite numbers")
    return x, y


def _correlation(x: Floats, y: Floats) -> float:
    if (x == x[0]).all() or (y == y[0]).all():
        return 0.0
    x, y = _direction(x), _direction(y)
    return float(np.clip(x @ y, -1.0, 1.0))


def _direction(values: Floats) -> Floats:
    """Centered, of length one; scaled before squaring, so that neither huge nor tiny numbers overflow or vanish."""
    centered = values / np.abs(values).max()
    centered = centered - centered.mean()
    largest = np.abs(centered).max()
    if largest == 0.0:  # the numbers differ by less than their rounding
        return np.zeros_like(values)
    centered = centered / largest
    return np.asarray(centered / np.linalg.norm(centered))


def _ranks(values: Floats) -> Floats:
    """From 1; equal values share the mean of their places."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return np.asarray((last - (count - 1) / 2)[place], dtype=np.float64)
