"""Trainings whose seconds count: a clock is alone, all else runs side by side, whoever dies is said and holds nothing up."""

import importlib
import json
import multiprocessing
import time
from collections import Counter
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests import trials

ROOT = Path(__file__).parent.parent
JOBS = 3


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("pipeline")


def build(pipeline: ModuleType, logs: Path, seed: int = 0, **more: Any) -> tuple[Any, list[str]]:
    """A pipeline, and a list that gets the names of those that are finished."""
    finished: list[str] = []

    def jobs(name: str) -> list[Any]:
        return [pipeline.Job(name, (name, number), logs / f"{name}.{number}.log") for number in range(JOBS)]

    given = {
        "train": partial(trials.train, seed=seed),
        "teach": partial(trials.teach, seed=seed),
        "jobs": jobs,
        "finished": lambda name, seconds: finished.append(name),
        "workers": 2,
        "ahead": 2,
    }
    return pipeline.Pipeline(logs=logs, **(given | more)), finished


def times(logs: Path) -> list[tuple[str, str, float, float]]:
    return [tuple(json.loads(line)) for line in (logs / "times.jsonl").read_text().splitlines()]


def overlaps(found: list[tuple[str, str, float, float]]) -> list[Any]:
    """Whatever ran while a clock did."""
    clocks = [line for line in found if line[0] == "clock"]
    return [(a, b) for a in clocks for b in found if a != b and a[2] < b[3] and b[2] < a[3]]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_clock_is_alone(pipeline: ModuleType, tmp_path: Path, seed: int) -> None:
    one, finished = build(pipeline, tmp_path, seed)
    names = ["a", "b", "gateless", "c", "d"]
    assert one.run(names) == []
    found = times(tmp_path)
    assert sorted(finished) == sorted(names)
    assert Counter(what for what, *_ in found) == {"prepare": 5, "clock": 4, "job": 5 * JOBS}
    assert overlaps(found) == []
    assert all(b[3] <= c[2] for b in found for c in found if b[:2] == ("prepare", c[1]) and c[0] == "clock")


def test_overlaps_are_seen() -> None:
    assert overlaps([("clock", "a", 0.0, 2.0), ("job", "b", 1.0, 1.5)])
    assert not overlaps([("clock", "a", 0.0, 1.0), ("job", "b", 1.0, 1.5), ("prepare", "c", 1.2, 1.5)])


def test_jobs_run_beside_each_other_and_beside_preparations(pipeline: ModuleType, tmp_path: Path) -> None:
    train, teach = partial(trials.train_beside, place=tmp_path), partial(trials.teach_beside, place=tmp_path)
    one, finished = build(pipeline, tmp_path, train=train, teach=teach, ahead=1)
    assert one.run(["a", "b"]) == []
    assert finished == ["a", "b"]
    workers = (tmp_path / "workers").read_text().split()
    assert len(workers) == 2 * JOBS
    assert len(set(workers)) == 2  # they live on


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed-early", "killed-waiting", "killed-late", "wrong"])
def test_a_training_that_dies_is_said(
    pipeline: ModuleType, tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    one, finished = build(pipeline, tmp_path)
    assert one.run([how, "slow", "after"]) == []
    assert sorted(finished) == ["after", "slow"]
    assert capsys.readouterr().out == f"{how}: the training failed; see {tmp_path / how}.txt\n"
    assert ("a training that went wrong" in (tmp_path / f"{how}.txt").read_text()) == (how == "wrong")
    assert overlaps(times(tmp_path)) == []


def test_a_death_at_the_gate_begins_nothing_beside_a_clock(pipeline: ModuleType, tmp_path: Path) -> None:
    one, finished = build(pipeline, tmp_path)
    assert one.run(["long", "killed-waiting", "after"]) == []
    assert finished == ["long", "after"]
    assert overlaps(times(tmp_path)) == []


@pytest.mark.slow
@pytest.mark.parametrize("how", ["deadly", "faulty"])
def test_a_worker_that_dies_is_replaced(
    pipeline: ModuleType, tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    one, finished = build(pipeline, tmp_path, workers=1)
    assert one.run([how, "after"]) == []
    assert finished == ["after"]
    assert capsys.readouterr().out == f"{how}: 1 jobs failed; see {tmp_path / how}.1.log\n"
    assert Counter(name for what, name, *_ in times(tmp_path) if what == "job") == {how: JOBS - 1, "after": JOBS}


def test_no_clock_is_begun_that_might_end_too_late(pipeline: ModuleType, tmp_path: Path) -> None:
    one, finished = build(pipeline, tmp_path, began=time.monotonic() - 100, until=110.0, expected=20.0)
    assert one.run(["a", "b"]) == ["a", "b"]
    assert finished == []
    one, _ = build(pipeline, tmp_path, until=1e6, expected=1.0)
    one.finished = lambda name, seconds: one.seen.append(1e7)  # jobs turn out to take long
    left = one.run(["a", "b", "c"])
    assert left in (["a", "c"], ["b", "c"])  # whoever came first to the gate was the only one to pass it
    found = Counter((what, name) for what, name, *_ in times(tmp_path) if what != "job")
    assert found == {("prepare", "a"): 1, ("prepare", "b"): 1, ("clock", "b" if left[0] == "a" else "a"): 1}
    assert multiprocessing.active_children() == []


def test_nothing_is_left_running_when_the_loop_breaks(pipeline: ModuleType, tmp_path: Path) -> None:
    def finished(name: str, seconds: dict[str, float]) -> None:
        raise KeyboardInterrupt

    one, _ = build(pipeline, tmp_path, finished=finished)
    with pytest.raises(KeyboardInterrupt):
        one.run(["a", "b", "c"])
    assert multiprocessing.active_children() == []
