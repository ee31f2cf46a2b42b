"""Several tasks, one model: the law of their shares."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sesame.data.languages import Turns, shares
from sesame.data.mixing import mixing_rates
from sesame.errors import SesameError

SIZES = st.dictionaries(st.text(max_size=3), st.integers(1, 10**9), min_size=1, max_size=8)


@given(SIZES, st.floats(0.1, 100), st.integers(1, 10**9))
def test_the_law(sizes: dict[str, int], temperature: float, cap: int) -> None:
    found = mixing_rates(sizes, temperature, cap)
    assert list(found) == list(sizes)
    assert sum(found.values()) == pytest.approx(1)
    for one in sizes:
        for other in sizes:
            ratio = (min(sizes[one], cap) / min(sizes[other], cap)) ** (1 / temperature)
            assert found[one] == pytest.approx(ratio * found[other], rel=1e-6, abs=1e-12)


@given(SIZES)
def test_its_ends(sizes: dict[str, int]) -> None:
    total = sum(sizes.values())
    assert mixing_rates(sizes) == pytest.approx({name: size / total for name, size in sizes.items()})
    alike = pytest.approx({name: 1 / len(sizes) for name in sizes})
    assert mixing_rates(sizes, temperature=math.inf) == alike
    assert mixing_rates(sizes, cap=1) == alike
    assert list(mixing_rates(sizes, temperature=2).values()) == pytest.approx(shares(list(sizes.values()), 0.5))


def test_turns_follow_the_rates() -> None:
    rates = mixing_rates({"translate": 1_000_000, "question": 50_000, "sentiment": 2_000}, cap=100_000)
    assert rates == pytest.approx({"translate": 100 / 152, "question": 50 / 152, "sentiment": 2 / 152})
    turns = Turns(list(rates.values()), seed=3)
    turns.at(20_000)
    counts = np.bincount([turns.at(step)[0] for step in range(0, 20_000, 4)], minlength=3) / 5000
    assert counts == pytest.approx(list(rates.values()), abs=0.02)


def test_what_cannot_be_mixed() -> None:
    for wrong, words in (
        (({},), "no task"),
        (({"a": 0},), "task a has 0 examples"),
        (({"a": 5}, 0.0), "temperature is 0"),
        (({"a": 5}, math.nan), "temperature is nan"),
        (({"a": 5}, 1.0, 0), "cap is 0"),
    ):
        with pytest.raises(SesameError, match=words):
            mixing_rates(*wrong)  # type: ignore[arg-type]
