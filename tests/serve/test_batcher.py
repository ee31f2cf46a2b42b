"""The batcher: when a batch closes, who is in it, who is sent away, and what a failure costs."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, wait
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pytest

from sesame.serve.batcher import Batcher, Full, Stopping
from sesame.serve.figures import Figures
from sesame.serve.limits import Limits

PATIENT = 60.0  # a deadline that no test reaches
Made = Callable[..., tuple[Batcher, "Worker"]]


@dataclass
class Worker:
    """Doubles numbers; can be held, and fails on negative ones."""

    seen: list[list[int]] = field(default_factory=list)
    free: threading.Event = field(default_factory=threading.Event)
    busy: threading.Event = field(default_factory=threading.Event)

    def __call__(self, asked: Sequence[int]) -> list[int]:
        self.busy.set()
        assert self.free.wait(20)
        self.seen.append(list(asked))
        if any(number < 0 for number in asked):
            raise ValueError(f"{min(asked)} is below 0")
        return [2 * number for number in asked]


@pytest.fixture
def made() -> Iterator[Made]:
    found: list[tuple[Batcher, Worker]] = []

    def make(free: bool = True, figures: Figures | None = None, **limits: Any) -> tuple[Batcher, Worker]:
        worker = Worker()
        if free:
            worker.free.set()
        found.append((Batcher(worker, Limits(**limits), "toy", figures), worker))
        return found[-1]

    yield make
    for batcher, worker in found:
        worker.free.set()
        batcher.stop()


def held(batcher: Batcher, worker: Worker) -> Any:
    """The worker has begun with 100 and waits: what comes now must wait too."""
    first = batcher.submit(100, None, 1)
    assert worker.busy.wait(20)
    return first


def test_a_batch_closes_when_it_has_its_tokens(made: Made) -> None:
    batcher, worker = made(deadline=PATIENT, batch=10)
    futures = [batcher.submit(number, "a", 5) for number in (1, 2)]
    assert [future.result(20) for future in futures] == [2, 4]
    assert worker.seen == [[1, 2]]


def test_a_batch_closes_when_its_oldest_has_waited(made: Made) -> None:
    batcher, worker = made(deadline=0.05, batch=1000)
    futures = [batcher.submit(number, "a", 1) for number in (1, 2, 3)]
    assert [future.result(20) for future in futures] == [2, 4, 6]
    assert list(chain(*worker.seen)) == [1, 2, 3]


def test_a_batch_takes_no_more_than_its_tokens_and_only_its_key(made: Made) -> None:
    batcher, worker = made(free=False, batch=10, deadline=0.0)
    held(batcher, worker)
    asked = [(1, "a", 4), (2, "b", 4), (3, "a", 6), (4, "a", 1), (5, "b", 99), (6, None, 1), (7, None, 1)]
    futures = [batcher.submit(*each) for each in asked]
    worker.free.set()
    assert [future.result(20) for future in futures] == [2, 4, 6, 8, 10, 12, 14]
    assert worker.seen == [[100], [1, 3], [2], [4], [5], [6], [7]]


def test_a_full_queue_sends_away_and_recovers(made: Made) -> None:
    batcher, worker = made(free=False, queue=3, deadline=0.0)
    held(batcher, worker)
    futures = [batcher.submit(number, "a", 1) for number in range(3)]
    with pytest.raises(Full) as full:
        batcher.submit(9, "a", 1)
    assert full.value.seconds >= 1
    worker.free.set()
    wait(futures, 20)
    assert batcher.submit(9, "a", 1).result(20) == 18


def test_who_leaves_costs_nothing(made: Made) -> None:
    figures = Figures()
    batcher, worker = made(free=False, figures=figures, deadline=0.0)
    held(batcher, worker)
    futures = [batcher.submit(number, key, 1) for number, key in enumerate(("a", "a", "b"))]
    assert futures[1].cancel()
    assert futures[2].cancel()
    worker.free.set()
    assert futures[0].result(20) == 0
    assert batcher.submit(7, "c", 1).result(20) == 14
    assert worker.seen == [[100], [0], [7]]
    with pytest.raises(CancelledError):
        futures[1].result(0)


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_one_that_fails_spoils_no_other(made: Made, bad: int) -> None:
    batcher, worker = made(free=False, deadline=0.0)
    held(batcher, worker)
    numbers = [1, 2, 3]
    numbers[bad] = -5
    futures = [batcher.submit(number, "a", 1) for number in numbers]
    worker.free.set()
    for number, future in zip(numbers, futures, strict=True):
        if number < 0:
            with pytest.raises(ValueError, match="below 0"):
                future.result(20)
        else:
            assert future.result(20) == 2 * number
    assert batcher.submit(8, "a", 1).result(20) == 16


def test_the_end_finishes_what_was_taken(made: Made) -> None:
    batcher, worker = made(free=False, deadline=PATIENT)
    first = held(batcher, worker)
    futures = [batcher.submit(number, f"key {number % 2}", 1) for number in range(6)]
    batcher.stop(wait=False)
    with pytest.raises(Stopping):
        batcher.submit(9, "a", 1)
    worker.free.set()
    batcher.stop()
    assert [first.result(0), *(future.result(0) for future in futures)] == [200, 0, 2, 4, 6, 8, 10]
    assert not batcher.thread.is_alive()


def test_many_threads(made: Made) -> None:
    batcher, worker = made(queue=10_000, batch=7, deadline=0.001)
    found: dict[int, Any] = {}

    def send(start: int) -> None:
        for number in range(start, start + 50):
            found[number] = batcher.submit(number, number % 3, 1)

    threads = [threading.Thread(target=send, args=(50 * each,)) for each in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(future.result(20) == 2 * number for number, future in found.items())
    assert sorted(chain(*worker.seen)) == list(range(400))
    assert all(len(batch) <= 7 and len({number % 3 for number in batch}) == 1 for batch in worker.seen)
