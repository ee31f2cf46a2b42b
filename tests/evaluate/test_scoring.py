"""Intervals and comparisons of every task against the definition: score each draw of examples by itself."""

import random
from typing import Any

import numpy as np
import pytest

from sesame.evaluate.scoring import compare, interval, score
from sesame.tasks.base import TaskConfig

ROWS = 12
CONFIGS = {
    "classify": TaskConfig("classify", labels=("a", "b", "c")),
    "multi": TaskConfig("classify", labels=("a", "b", "c"), multi=True),
    "regress": TaskConfig("regress"),
    "tag": TaskConfig("tag", labels=("O", "B-X", "I-X")),
    "qa": TaskConfig("qa"),
    "choice": TaskConfig("choice"),
}
METRICS = [
    *(("classify", metric) for metric in ("accuracy", "macro_f1", "weighted_f1", "matthews")),
    *(("multi", metric) for metric in ("micro_f1", "macro_f1", "exact_match")),
    *(("regress", metric) for metric in ("pearson", "spearman", "mse", "mae")),
    *(("tag", metric) for metric in ("f1", "precision", "recall")),
    *(("qa", metric) for metric in ("exact", "f1")),
    ("choice", "accuracy"),
]


def one(kind: str, luck: random.Random, gold: bool) -> Any:
    if kind == "classify":
        return luck.choice("abc")
    if kind == "multi":
        return tuple(name for name in "abc" if luck.random() < 0.5)
    if kind == "regress":
        return luck.choice([0.0, 1.5, -2.0, luck.random()])  # with ties
    if kind == "tag":
        return tuple(luck.choices(("O", "B-X", "I-X"), k=4))
    if kind == "qa":
        answers = [luck.choice(("a red sun", "red", "moon", "")) for _ in range(2)]
        return [answer for answer in answers if answer] if gold else answers[0]
    return luck.randrange(3)


def rows(kind: str) -> tuple[list[Any], list[Any], list[Any]]:
    luck = random.Random(kind)
    gold, a, b = ([one(kind, luck, side == 0) for _ in range(ROWS)] for side in range(3))
    return gold, [g if luck.random() < 0.5 and kind != "qa" else x for g, x in zip(gold, a, strict=True)], b


@pytest.mark.parametrize(("kind", "metric"), METRICS)
def test_intervals_are_those_of_scores_of_draws(kind: str, metric: str) -> None:
    config, (gold, said, _) = CONFIGS[kind], rows(kind)
    drawn = np.random.default_rng(0).integers(ROWS, size=(1000, ROWS))
    values = [score(config, [gold[i] for i in row], [said[i] for i in row])[metric] for row in drawn]
    np.testing.assert_allclose(interval(config, metric, gold, said), np.quantile(values, [0.025, 0.975]), atol=1e-12)


@pytest.mark.parametrize(
    ("kind", "metric"), [("classify", "macro_f1"), ("regress", "pearson"), ("tag", "f1"), ("qa", "f1")]
)
def test_comparisons_are_those_of_scores_of_draws(kind: str, metric: str) -> None:
    config, (gold, a, b) = CONFIGS[kind], rows(kind)

    def gap(row: Any) -> float:
        taken = [[side[i] for i in row] for side in (gold, a, b)]
        return score(config, taken[0], taken[1])[metric] - score(config, taken[0], taken[2])[metric]

    seen = gap(range(ROWS))
    gaps = np.array([gap(row) for row in np.random.default_rng(0).integers(ROWS, size=(10_000, ROWS))])
    found = compare(config, metric, gold, a, b)
    low, high = np.quantile(gaps, [0.025, 0.975])
    assert (found["difference"], found["low"], found["high"]) == pytest.approx((seen, low, high), abs=1e-12)
    strayed = int((np.abs(gaps - seen) >= abs(seen) - 1e-12).sum())
    assert found["p"] == pytest.approx((1 + strayed) / 10_001)
