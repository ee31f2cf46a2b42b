"""Calibration: of the answers given with 80 %, are 80 % right? (Guo et al. 2017, "On Calibration of Modern Neural Networks")

ECE   = sum over bins of (count / N) |accuracy - confidence|,  the bins cutting (0, 1] evenly by the highest probability
Brier = mean of sum_k (p_k - [gold = k])^2, between 0 and 2
NLL   = mean of -log p_gold
temperature: p = softmax(logits / T) with the T of lowest NLL on held-out rows; it changes no answer, only its confidence
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sesame.errors import SesameError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
FEWEST_ROWS = 20  # one number cannot be fitted to fewer with any profit
COLDEST, HOTTEST = 0.05, 20.0


def reliability(probabilities: ArrayLike, gold: ArrayLike, bins: int = 15) -> list[dict[str, Any]]:
    """For each bin (low, high]: mean confidence, accuracy and count; confidence and accuracy are None in an empty one."""
    p, labels = _checked(probabilities, gold)
    if bins < 1:
        raise SesameError(f"{bins} bins; take at least one")
    edges = np.linspace(0.0, 1.0, bins + 1)
    confidence, right = p.max(1), p.argmax(1) == labels
    place = np.searchsorted(edges[1:-1], confidence, side="left")
    rows = []
    for at in range(bins):
        inside = place == at
        count = int(inside.sum())
        rows.append(
            {
                "low": float(edges[at]),
                "high": float(edges[at + 1]),
                "confidence": float(confidence[inside].mean()) if count else None,
                "accuracy": float(right[inside].mean()) if count else None,
                "count": count,
            }
        )
    return rows


def ece(probabilities: ArrayLike, gold: ArrayLike, bins: int = 15) -> float:
    """Expected calibration error. Shape: probabilities (N, C), gold (N,) class numbers."""
    rows = [row for row in reliability(probabilities, gold, bins) if row["count"]]
    gaps = sum(row["count"] * abs(row["accuracy"] - row["confidence"]) for row in rows)
    return float(gaps / sum(row["count"] for row in rows))


def brier(probabilities: ArrayLike, gold: ArrayLike) -> float:
    p, labels = _checked(probabilities, gold)
    return float(((p - np.eye(p.shape[1])[labels]) ** 2).sum(1).mean())


def nll(probabilities: ArrayLike, gold: ArrayLike) -> float:
    """A probability of 0 counts as the smallest step from 1 (2e-16), so that the mean stays finite."""
    p, labels = _checked(probabilities, gold)
    taken = p[np.arange(len(p)), labels]
    return float(-np.log(np.clip(taken, np.finfo(np.float64).eps, 1.0)).mean())


def softmax(logits: ArrayLike, temperature: float = 1.0) -> Floats:
    return np.exp(_log_softmax(np.asarray(logits, dtype=np.float64) / temperature))


def fit_temperature(logits: ArrayLike, gold: ArrayLike) -> float:
    """The temperature between 0.05 and 20 with the lowest NLL; 1.0 where the rows cannot tell.

    They cannot if there are fewer than 20, if all answers are right (ever colder would be ever better: these rows hold
    nothing about being wrong), or if no temperature beats 1.
    """
    scores, labels = _checked(logits, gold, probabilities=False)
    if len(scores) < FEWEST_ROWS or (scores.argmax(1) == labels).all():
        return 1.0
    from scipy.optimize import minimize_scalar  # type: ignore[import-untyped]

    rows = np.arange(len(scores))

    def loss(log_temperature: float) -> float:
        return float(-_log_softmax(scores / np.exp(log_temperature))[rows, labels].mean())

    # The NLL is convex in 1/T, so along log T it has one valley, and a search between bounds finds it.
    found = minimize_scalar(loss, bounds=(np.log(COLDEST), np.log(HOTTEST)), method="bounded", options={"xatol": 1e-6})
    return float(np.exp(found.x)) if found.fun < loss(0.0) else 1.0


def _log_softmax(logits: Floats) -> Floats:
    shifted = logits - logits.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))


def _checked(values: ArrayLike, gold: ArrayLike, probabilities: bool = True) -> tuple[Floats, Ints]:
    p, labels = np.asarray(values, dtype=np.float64), np.asarray(gold)
    if p.ndim != 2 or labels.shape != p.shape[:1] or p.size == 0:
        raise SesameError(f"scores of shape {p.shape} and labels of shape {labels.shape}; give (N, C) and (N,), N >= 1")
    labels = labels.astype(np.int64)
    if not np.isfinite(p).all():
        raise SesameError("some scores of the model are not finite; the training diverged: lower the learning rate")
    if labels.min() < 0 or labels.max() >= p.shape[1]:
        raise SesameError(f"a label is outside 0..{p.shape[1] - 1}; give the numbers of the columns")
    if probabilities and (p.min() < 0 or np.abs(p.sum(1) - 1).max() > 1e-3):
        raise SesameError("some rows are not probabilities that sum to 1; give softmax(logits)")
    return p, labels
