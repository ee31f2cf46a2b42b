"""Trainings and jobs that only sleep, meet or die, for `test_pipeline.py`: light to import, because processes import them."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random


def rest(*key: object) -> None:
    time.sleep(Random(str(key)).choice([0.0, 0.01, 0.05]))


def die(after: float = 0.0) -> None:
    time.sleep(after)
    os.kill(os.getpid(), signal.SIGKILL)


def train(name: str, gate: Callable[[], None], seed: int) -> None:
    """The name says what happens: "killed-early", "killed-waiting", "killed-late", "wrong", "gateless", "slow", "long"."""
    rest("prepare", name, seed)
    if "killed-early" in name:
        die()
    if "slow" in name:
        time.sleep(0.6)
    if "killed-waiting" in name:
        threading.Thread(target=die, args=(0.1,)).start()
    if "gateless" not in name:
        gate()
    rest("clock", name, seed)
    if "long" in name:
        time.sleep(0.8)
    if "killed-late" in name:
        die()
    if "wrong" in name:
        raise ValueError("a training that went wrong")


def teach(what: tuple[str, int], seed: int) -> None:
    rest("job", what, seed)
    if what == ("deadly", 1):
        die()
    if what == ("faulty", 1):
        raise ValueError("a job that went wrong")


def meet(place: Path, mine: str, other: str) -> None:
    """Two processes that run at the same time."""
    (place / mine).touch()
    end = time.monotonic() + 60
    while not (place / other).exists():
        if time.monotonic() > end:
            raise TimeoutError(f"{mine}: nobody came")
        time.sleep(0.01)


def train_beside(name: str, gate: Callable[[], None], place: Path) -> None:
    if name == "b":
        meet(place, "prepare-b", "job-a-0")
    gate()


def teach_beside(what: tuple[str, int], place: Path) -> None:
    """Two jobs of a meet each other and the preparation of b."""
    if what == ("a", 0):
        meet(place, "job-a-0", "prepare-b")
        meet(place, "again-0", "again-1")
    if what == ("a", 1):
        meet(place, "again-1", "again-0")
    with (place / "workers").open("a") as handle:
        handle.write(f"{os.getpid()}\n")
