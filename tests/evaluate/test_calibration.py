"""Confidence against what came true."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss, log_loss

from sesame.errors import SesameError
from sesame.evaluate.calibration import brier, ece, fit_temperature, nll, reliability, softmax


def slow_ece(p: np.ndarray, gold: np.ndarray, bins: int) -> float:
    """Row by row, from the definition."""
    groups: dict[int, list[tuple[float, bool]]] = {}
    for row, label in zip(p, gold, strict=True):
        at = next(b for b in range(bins) if row.max() <= np.linspace(0, 1, bins + 1)[b + 1])
        groups.setdefault(at, []).append((row.max(), int(np.argmax(row)) == label))
    return sum(abs(sum(c for c, _ in rows) - sum(r for _, r in rows)) for rows in groups.values()) / len(p)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(2, 5), st.sampled_from([1, 2, 10, 15]))
def test_equals_the_definitions(seed: int, rows: int, classes: int, bins: int) -> None:
    random = np.random.default_rng(seed)
    p = softmax(random.normal(size=(rows, classes)).round(1) * 3)
    gold = random.integers(classes, size=rows)
    assert ece(p, gold, bins) == pytest.approx(slow_ece(p, gold, bins))
    assert nll(p, gold) == pytest.approx(log_loss(gold, p, labels=range(classes)))
    assert brier(p, gold) == pytest.approx(brier_score_loss(gold, p, labels=range(classes), scale_by_half=False))
    table = reliability(p, gold, bins)
    assert len(table) == bins
    assert sum(row["count"] for row in table) == rows
    assert all((row["accuracy"] is None) == (row["confidence"] is None) == (row["count"] == 0) for row in table)
    assert all(row["low"] < row["confidence"] <= row["high"] for row in table if row["count"])


def test_certain_answers() -> None:
    sure = np.eye(2)[[0, 0, 1, 1]]
    assert ece(sure, [0, 0, 1, 1]) == 0.0
    assert ece(sure, [1, 1, 0, 0]) == 1.0
    assert brier(sure, [1, 1, 0, 0]) == 2.0
    assert np.isfinite(nll(sure, [1, 1, 0, 0]))
    assert nll(sure, [0, 0, 1, 1]) == 0.0
    assert ece([[1.0]], [0]) == 0.0  # one class


@pytest.mark.parametrize("true", [0.3, 1.0, 4.0])
def test_finds_the_temperature_that_was_put_in(true: float) -> None:
    random = np.random.default_rng(0)
    logits = random.normal(size=(20_000, 4)) * 2
    gold = (softmax(logits).cumsum(1) > random.random((20_000, 1))).argmax(1)  # drawn at temperature 1
    found = fit_temperature(logits * true, gold)
    assert found == pytest.approx(true, rel=0.06)
    assert ece(softmax(logits * true, found), gold) < 0.02
    assert nll(softmax(logits * true, found), gold) <= nll(softmax(logits * true), gold)


def test_guards() -> None:
    random = np.random.default_rng(0)
    logits = random.normal(size=(100, 3)) * 5
    assert fit_temperature(logits, logits.argmax(1)) == 1.0  # no mistake
    assert fit_temperature(logits[:19], random.integers(3, size=19)) == 1.0  # too few
    assert fit_temperature(logits[:, :1], np.zeros(100)) == 1.0  # one class
    assert fit_temperature(np.zeros((50, 3)), random.integers(3, size=50)) == 1.0  # nothing to scale
    assert 1.0 < fit_temperature(logits, random.integers(3, size=100)) <= 20.0
    assert np.isfinite(fit_temperature(logits * 1e6, random.integers(3, size=100)))


@pytest.mark.parametrize(
    ("p", "gold", "what"),
    [
        (np.zeros((0, 2)), [], "N >= 1"),
        ([[0.5, 0.5]], [0, 1], "give .N, C. and .N,."),
        ([[0.5, 0.5]], [2], "outside 0..1"),
        ([[0.5, 0.9]], [0], "sum to 1"),
        ([[np.nan, 0.5]], [0], "not finite"),
    ],
)
def test_mistakes_are_sentences(p: object, gold: list[int], what: str) -> None:
    with pytest.raises(SesameError, match=what):
        ece(p, gold)  # type: ignore[arg-type]


def test_no_bins() -> None:
    with pytest.raises(SesameError, match="at least one"):
        ece([[1.0, 0.0]], [0], bins=0)


def test_an_edge_belongs_to_the_bin_below() -> None:
    assert [row["count"] for row in reliability([[0.5, 0.5], [0.75, 0.25]], [0, 0], bins=4)] == [0, 1, 1, 0]
