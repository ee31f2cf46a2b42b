"""Training without padding: gradients equal those of the padded way, and every shape is a round one."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sesame.backbones import Encoder, EncoderConfig
from sesame.data.batch import Batch


def _batch(lengths: list[int]) -> Batch:
    torch.manual_seed(len(lengths))
    width = max(lengths)
    ids = torch.randint(1, 40, (len(lengths), width))
    segments = torch.randint(0, 2, ids.shape)
    return Batch(ids, torch.tensor(lengths), segments=segments)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(1, 20), st.integers(0, 50))
def test_real_tokens_come_in_order_and_the_rest_is_fill(lengths: list[int], multiple: int, anchor: int) -> None:
    batch = _batch(lengths)
    real = batch.unpadded(multiple, anchor).real
    assert real is not None
    assert (len(real.at) - anchor) % multiple == 0
    assert len(real.at) - sum(lengths) < multiple
    found = torch.nn.functional.pad(batch.ids.flatten(), (0, 1), value=-1)[real.at]
    wanted = [batch.ids[row, :length] for row, length in enumerate(lengths)]
    assert torch.equal(found, torch.cat([*wanted, torch.full((len(real.at) - sum(lengths),), -1)]))
    rows, fills = real.offsets[: len(lengths) + 1], real.offsets[len(lengths) :]
    assert rows.tolist() == [0, *torch.tensor(lengths).cumsum(0).tolist()]
    assert fills[-1] == len(real.at)
    assert len(fills) == 1 + -(-(multiple - 1) // max(lengths))  # one shape, whatever the fill
    assert (real.offsets[1:] - real.offsets[:-1]).min() >= 0
    assert real.longest >= (real.offsets[1:] - real.offsets[:-1]).max()


@pytest.mark.parametrize("positions", ["learned", "rotary"])
@pytest.mark.parametrize("limited", [False, True])
@settings(max_examples=10, deadline=None)
@given(lengths=st.lists(st.integers(1, 7), min_size=1, max_size=4))
def test_gradients_are_those_of_the_padded_way(positions: str, limited: bool, lengths: list[int]) -> None:
    torch.manual_seed(0)
    config = EncoderConfig(40, 8, 2, 2, positions=positions, dropout=0, attention_dropout=0)  # type: ignore[arg-type]
    encoder = Encoder(config).double().train()
    batch = _batch(lengths)
    only = torch.zeros(len(lengths), 1, dtype=torch.long) if limited else None
    real = torch.arange(max(lengths))[None] < batch.lengths[:, None]
    weights = torch.randn(len(lengths), max(lengths), 8, dtype=torch.float64) * real[:, :, None]
    losses = []
    for given_batch in (batch, batch.unpadded(5)):
        last = encoder(given_batch, only).last
        losses.append((last * (weights[:, :1] if limited else weights)).sum())
    ours, theirs = (torch.autograd.grad(loss, list(encoder.parameters()), allow_unused=True) for loss in losses)
    assert torch.allclose(losses[0], losses[1], atol=1e-12)
    for a, b in zip(ours, theirs, strict=True):
        assert (a is None) == (b is None)
        assert a is None or torch.allclose(a, b, atol=1e-11)
