"""A budget's seconds: what the start takes of it, and what is kept for the end."""

import time

import pytest

from sesame.pretraining import timing
from sesame.pretraining.timing import RESERVE, Timing
from sesame.train.loop import Clock


@pytest.mark.parametrize(
    ("budget", "began", "left"), [(100.0, 10.0, 87.0), (10.0, 9.0, 1.0), (2.0, 0.0, 1.0), (None, 5.0, None)]
)
def test_what_is_left(
    budget: float | None, began: float, left: float | None, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    now = [0.0]
    monkeypatch.setattr(timing.time, "monotonic", lambda: now[0])
    seconds = Timing(budget)
    now[0] = began
    seconds.begin(0.0)
    assert seconds.stage(5, 0.0, 1.0).budget == left
    assert RESERVE == 3
    told = (
        ""
        if left != 1
        else f"the budget of {budget:.0f} s is spent: what comes before the first step took {began:.0f} s"
    )
    assert told in capsys.readouterr().err
    assert bool(told) == (left == 1)
    seconds.begin(1.0)
    assert not capsys.readouterr().err, "a run that goes on"


def test_a_budget_takes_one_step_at_least() -> None:
    """A start that took it all left a model of 0 steps, which passed for a trained one."""
    clock = Clock(budget=1.0, before=100.0, started=time.monotonic())
    assert clock.elapsed() > 1
    assert [clock.done(step) for step in (0, 1)] == [False, True]
