"""Which examples belong to which step, while the batch grows too; and who prepares them."""

import threading
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sesame.data.batch import Batch
from sesame.data.loader import STAIRS, Loader, Prefetcher


@dataclass
class _Rows:
    count: int

    def __len__(self) -> int:
        return self.count


def _loader(batch: int, ramp: int, rank: int = 0, ranks: int = 1, rows: int = 10_000) -> Loader:
    return Loader(_Rows(rows), batch, 1, 0, lambda batch, progress: batch, ramp=ramp, rank=rank, ranks=ranks)  # type: ignore[arg-type]


@given(st.integers(1, 64), st.integers(0, 50), st.integers(1, 4), st.integers(0, 80))
def test_the_position_is_the_sum_of_all_batches_before(each: int, ramp: int, ranks: int, step: int) -> None:
    loader = _loader(each * ranks * STAIRS, ramp, ranks=ranks)
    assert loader.before(step) == ranks * sum(loader.share(before) for before in range(step))


def test_the_batch_climbs_eight_stairs() -> None:
    loader = _loader(64, 16)
    assert [loader.share(step) for step in range(18)] == [8 * (step // 2 + 1) for step in range(16)] + [64, 64]
    assert _loader(64, 0).share(0) == 64
    assert _loader(STAIRS // 2, 100).share(0) == 1


def test_ranks_and_steps_share_an_epoch_without_gaps() -> None:
    rows = 2 * sum(_loader(32, 12, ranks=2).share(step) for step in range(20))
    seen = [_loader(32, 12, rank, 2, rows).rows(step)[1] for step in range(20) for rank in range(2)]
    assert sorted(np.concatenate(seen).tolist()) == list(range(rows))


class _Source:
    """Gives the number of the step, and notes who asks."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.gate = threading.Semaphore(0)
        self.held = False

    def load(self, step: int) -> list[Batch]:
        self.asked.append(step)
        if self.held:
            self.gate.acquire()
        if step == 13:
            raise ValueError("thirteen")
        return [Batch(torch.full((1, 1), step), torch.ones(1))]


def _number(batches: list[Batch]) -> int:
    return int(batches[0].ids)


CPU = torch.device("cpu")


def test_steps_come_in_order_by_one_thread_and_again_after_going_back() -> None:
    source = _Source()
    fetcher = Prefetcher(source.load, CPU, 3, threads=4)
    try:
        assert [_number(fetcher.get(step)) for step in (3, 4, 5, 6)] == [3, 4, 5, 6]
        assert len(fetcher.threads) == 1
        assert source.asked == sorted(source.asked)  # the one that is needed next comes first
        assert _number(fetcher.get(4)) == 4
        assert _number(fetcher.get(5)) == 5
        assert _number(fetcher.get(9)) == 9
    finally:
        fetcher.close()
    assert not any(thread.is_alive() for thread in fetcher.threads)


def test_a_thread_joins_when_the_device_had_to_wait_up_to_the_most() -> None:
    source = _Source()
    source.held = True
    fetcher = Prefetcher(source.load, CPU, 0, threads=3)
    for _ in range(5):
        fetcher.hurry()
    assert len(fetcher.threads) == 3
    for _ in range(100):
        source.gate.release()
    assert [_number(fetcher.get(step)) for step in range(8)] == list(range(8))
    fetcher.close()


def test_what_fails_is_told_to_whoever_asks() -> None:
    fetcher = Prefetcher(_Source().load, CPU, 12, threads=2)
    assert _number(fetcher.get(12)) == 12
    with pytest.raises(ValueError, match="thirteen"):
        fetcher.get(13)
    assert _number(fetcher.get(14)) == 14
    fetcher.close()
