"""Equal to SciPy, and 0 instead of NaN for constants."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from sesame.errors import SesameError
from sesame.evaluate.regression import mae, mse, pearson, regression_scores, spearman

NUMBERS = st.integers(-50, 50).map(lambda whole: whole / 4)  # many ties


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=2, max_size=30))
def test_equals_scipy(pairs: list[tuple[float, float]]) -> None:
    gold, said = [g for g, _ in pairs], [s for _, s in pairs]
    assume(len(set(gold)) > 1 and len(set(said)) > 1)
    assert pearson(gold, said) == pytest.approx(stats.pearsonr(gold, said).statistic, abs=1e-9)
    assert spearman(gold, said) == pytest.approx(stats.spearmanr(gold, said).statistic, abs=1e-9)
    assert mse(gold, said) == pytest.approx(sum((g - s) ** 2 for g, s in pairs) / len(pairs))
    assert mae(gold, said) == pytest.approx(sum(abs(g - s) for g, s in pairs) / len(pairs))


@pytest.mark.parametrize("scale", [1e-200, 1e-12, 1.0, 1e12, 1e200])
def test_any_scale(scale: float) -> None:
    random = np.random.default_rng(1)
    gold, noise = random.normal(size=100), random.normal(size=100)
    wanted = stats.pearsonr(gold, gold + noise).statistic
    assert pearson(gold * scale, (gold + noise) * scale) == pytest.approx(wanted, abs=1e-9)
    assert spearman(gold * scale, gold * scale) == pytest.approx(1.0)
    assert pearson(gold * scale, -gold * scale) == pytest.approx(-1.0)


@pytest.mark.parametrize(
    ("gold", "said"), [([1, 2, 3], [5, 5, 5]), ([0.1] * 3, [1, 2, 3]), ([0, 0], [0, 0]), ([1], [2])]
)
def test_constants_give_zero(gold: list[float], said: list[float]) -> None:
    scores = regression_scores(gold, said)
    assert scores["pearson"] == scores["spearman"] == 0.0
    assert all(math.isfinite(score) for score in scores.values())


def test_order_is_not_a_line() -> None:
    gold = [1.0, 2.0, 3.0, 4.0]
    said = [1.0, 10.0, 100.0, 1000.0]
    assert spearman(gold, said) == pytest.approx(1.0)
    assert pearson(gold, said) < 0.9


def test_mistakes_are_sentences() -> None:
    with pytest.raises(SesameError, match="said number of example 2 is nan"):
        pearson([1.0, 2.0], [1.0, math.nan])
    with pytest.raises(SesameError, match="nothing to score"):
        mse([], [])
    with pytest.raises(SesameError, match="1 examples but 2 answers"):
        mae([1.0], [1.0, 2.0])
