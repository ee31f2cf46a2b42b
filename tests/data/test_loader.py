"""Which examples belong to which step, while the batch grows too."""

from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sesame.data.loader import STAIRS, Loader


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
