"""A batch as one array of bytes."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from sesame.data.batch import ALIGNED, Batch, Targets


def _batch(rows: int, length: int, seed: int, unpadded: bool) -> Batch:
    luck = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 99, (rows, length), generator=luck)
    lengths = torch.randint(1, length + 1, (rows,), generator=luck)
    batch = Batch(ids, lengths, keys=lengths * 7, segments=(ids % 2).T.contiguous().T)  # one that is not contiguous
    batch = batch.with_targets(
        mlm=Targets(ids[:, :1], torch.zeros(rows, 1, dtype=torch.long)), score=Targets(torch.rand(rows, generator=luck))
    )
    return batch.unpadded(8) if unpadded else batch


@given(st.integers(1, 5), st.integers(1, 9), st.integers(0, 99), st.booleans())
def test_tensors_lie_over_one_array(rows: int, length: int, seed: int, unpadded: bool) -> None:
    batch = _batch(rows, length, seed, unpadded)
    found = batch.over(batch.joined())
    assert found.whole is not None
    assert found.layout() == batch.layout()
    assert (found.real is None) == (batch.real is None)
    for ours, given_one in zip(found.tensors(), batch.tensors(), strict=True):
        assert torch.equal(ours, given_one)
        assert ours.is_contiguous()
        assert not ours._is_view()
        assert ours.data_ptr() % ALIGNED == found.whole.data_ptr() % ALIGNED


def test_one_copy_changes_all_of_it() -> None:
    one, other = (_batch(3, 6, seed, False) for seed in (1, 2))
    into = one.over(one.joined())
    assert into.whole is not None
    into.whole.copy_(other.joined())
    assert all(torch.equal(a, b) for a, b in zip(into.tensors(), other.tensors(), strict=True))


def test_whatever_changes_single_tensors_leaves_the_array_behind() -> None:
    batch = _batch(2, 4, 0, False)
    moved = batch.over(batch.joined()).map(torch.clone)
    assert moved.whole is None
    assert all(torch.equal(a, b) for a, b in zip(moved.tensors(), batch.tensors(), strict=True))
