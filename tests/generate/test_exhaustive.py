"""Beams against every text there is, and against a search that never stops early."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from sesame.generate import Hypothesis, Settings, generate
from tests.generate.reference import close, exhaustive, patient_beam
from tests.generate.speakers import Toy, sources

END = 0
WISHES = st.fixed_dictionaries(
    {
        "beams": st.integers(2, 6),
        "alpha": st.sampled_from([-1.0, -0.3, 0.0, 0.6, 2.0]),
        "penalty": st.sampled_from(["plain", "gnmt"]),
        "coverage": st.sampled_from([0.0, 0.2, 1.0]),
        "fewest": st.integers(0, 2),
        "most": st.integers(3, 7),
        "no_repeat": st.sampled_from([0, 0, 2]),
    }
)


def text(one: Hypothesis) -> tuple[int, ...]:
    return (*one.ids, *([] if one.end is None else [one.end]))


def check(found: list[Hypothesis], wanted: list[tuple[float, tuple[int, ...]]]) -> None:
    assert [text(one) for one in found] == [ids for _, ids in wanted]
    assert all(close(one.score, score) for one, (score, _) in zip(found, wanted, strict=True))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "wishes",
    [
        Settings(beams=81, best=5, most=4),
        Settings(beams=81, best=5, most=4, alpha=0.0),
        Settings(beams=81, best=3, most=4, alpha=2.0, penalty="gnmt", coverage=0.4),
        Settings(beams=81, best=3, most=4, alpha=-1.0, fewest=1),
        Settings(beams=81, best=3, most=4, no_repeat=2, fewest=2),
    ],
)
def test_wide_beams_find_the_optimum(seed: int, wishes: Settings) -> None:
    toy, rows = Toy(4, seed, end=END, lift=1.0), [[3, 1, 1], [5], [2, 2]]
    for row, found in zip(rows, generate(toy, sources(rows), wishes, END), strict=True):
        check(found, exhaustive(toy, row, wishes, END)[: wishes.best])


def test_narrow_beams_may_miss_it() -> None:
    """Otherwise the test above would show nothing."""
    wishes, missed = Settings(beams=2, most=4, alpha=0.0), 0
    for seed in range(20):
        toy = Toy(4, seed, sharp=1.0)
        missed += text(generate(toy, sources([[1]]), wishes, END)[0][0]) != exhaustive(toy, [1], wishes, END)[0][1]
    assert 0 < missed < 20


@pytest.mark.slow
@given(
    seed=st.integers(0, 10**6),
    sharp=st.sampled_from([1.0, 3.0, 8.0]),
    best=st.integers(1, 6),
    wishes=WISHES,
)
@hypothesis_settings(max_examples=200, deadline=None)
def test_the_provable_stop_changes_nothing(seed: int, sharp: float, best: int, wishes: dict[str, object]) -> None:
    """Sharp tables have tokens that cost nearly nothing: long texts win late, which a hasty stop would miss."""
    settings = Settings(**wishes)  # type: ignore[arg-type]
    settings = replace(settings, best=min(best, settings.beams))
    toy, rows = Toy(7, seed, sharp, END, sharp / 2), [[number, 1, 5][: number + 1] for number in range(8)]
    for row, found in zip(rows, generate(toy, sources(rows), settings, END), strict=True):
        check(found, patient_beam(toy, row, settings, END))


@pytest.mark.parametrize("early", ["provable", "never", "present", "full"])
@pytest.mark.parametrize("seed", range(3))
def test_a_source_finds_alone_what_it_finds_in_company_and_costs_as_much(early: str, seed: int) -> None:
    settings = Settings(beams=3, best=2, most=20, alpha=0.6, coverage=0.2, early=early)  # type: ignore[arg-type]
    toy, rows = Toy(9, seed, end=END, lift=2.0), [[4, 1, 5], [1], [6, 2], [3, 3, 3, 3]]
    together, cost = generate(toy, sources(rows), settings, END), toy.rows
    toy.rows = 0
    assert [generate(toy, sources([row]), settings, END)[0] for row in rows] == together
    assert toy.rows == cost < 4 * 3 * 20


def test_stopping_early_saves_work() -> None:
    costs = []
    for early in ("full", "provable", "never"):
        toy = Toy(9, 3, end=END, lift=2.0)
        generate(
            toy, sources([[number] for number in range(8)]), Settings(beams=4, most=30, alpha=0.6, early=early), END
        )  # type: ignore[arg-type]
        costs.append(toy.rows)
    assert costs[1] < costs[2]
    assert costs[2] < 8 * 4 * 30
