"""XLNet against its own definition: relative attention by the formula, memory, padding, both reading directions."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from sesame.backbones import State, XLNet, XLNetConfig
from sesame.backbones.xlnet import Order
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.nn.attention.multihead import take
from sesame.nn.attention.relative import shift
from sesame.nn.positions import relative_sinusoids


def model(seed: int = 0, **settings: object) -> XLNet:
    torch.manual_seed(seed)
    found = XLNet(XLNetConfig(50, 16, 3, 2, init=0.3, **settings))  # type: ignore[arg-type]
    for parameter in found.parameters():
        nn.init.normal_(parameter, std=0.3)
    return found.double().eval()


def rows(length: int = 9, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 50, (3, length), generator=generator)
    segments = torch.randint(0, 2, (3, length), generator=generator)
    return Batch(ids, torch.full((3,), length), segments=segments, full=True)


def near(found: Tensor, wanted: Tensor, tolerance: float = 1e-11) -> None:
    assert found.shape == wanted.shape
    assert (found - wanted).abs().max() < tolerance


def test_shift_is_its_definition() -> None:
    x = torch.randn(2, 3, 5, 4 + 2 * 5)
    whole, at = shift(x, 9), torch.tensor([[4, 0], [2, 2]])
    assert whole.shape == (2, 3, 5, 9)
    for i in range(5):
        for j in range(9):
            assert torch.equal(whole[:, :, i, j], x[:, :, i, 5 - i + j])
    picked = shift(x[:, :, :2], 9, at)
    for row in range(2):
        for slot in range(2):
            first = 5 - int(at[row, slot])
            assert torch.equal(picked[row, :, slot], x[row, :, slot, first : first + 9])


def test_distances_are_clamped() -> None:
    table = relative_sinusoids(6, 10, 8, 2, torch.device("cpu"))  # 6, 5, ..., -3
    assert torch.equal(table[0], table[4])  # 6 as 2
    assert torch.equal(table[-1], table[8])  # -3 as -2
    assert not torch.equal(table[4], table[5])
    assert table[6].tolist() == [0.0] * 4 + [1.0] * 4  # distance 0
    near(table[5, :4].double(), torch.tensor([10000.0 ** (-i / 4) for i in range(4)]).double().sin(), 1e-6)


@torch.no_grad()
def test_a_layer_is_its_formula() -> None:
    xlnet, batch = model(), rows(7)
    attention, x = xlnet.blocks[0].attention, xlnet.tokens(batch.ids)
    seen: list[Tensor] = []
    far = xlnet._distances(7, None, both=False)
    attention(x, attention.keys(x, far), xlnet._content_sight(batch, None, None), seen)
    for head in range(2):
        part = slice(head * 8, head * 8 + 8)
        q = x @ attention.q.weight.T[:, part]
        k = x @ attention.kv.weight[:16].T[:, part]
        u, v, w = (b[part] for b in (attention.content_bias, attention.distance_bias, attention.segment_bias))
        scores = torch.zeros(3, 7, 7, dtype=torch.float64)
        for i in range(7):
            for j in range(7):
                r = relative_sinusoids(i - j, 1, 16, 0, far.device)[0].double() @ attention.far.weight.T[:, part]
                differ = (batch.segments[:, i] != batch.segments[:, j]).long()  # type: ignore[index]
                s = attention.segments[differ, head]
                scores[:, i, j] = ((q[:, i] + u) * k[:, j]).sum(-1) + (q[:, i] + v) @ r + ((q[:, i] + w) * s).sum(-1)
        near(seen[0][:, head], (scores / math.sqrt(8)).softmax(-1))


@torch.no_grad()
def test_padding_never_leaks_and_places_can_be_chosen() -> None:
    xlnet, batch = model(), replace(rows(), full=False, lengths=torch.tensor([9, 4, 1]))
    both = xlnet(batch, maps=True)
    assert batch.segments is not None
    for row, length in enumerate(batch.lengths.tolist()):
        alone = xlnet(
            Batch(
                batch.ids[row : row + 1, :length], batch.lengths[row : row + 1], full=True,
                segments=batch.segments[row : row + 1, :length],
            )
        )  # fmt: skip
        near(both.last[row, :length], alone.last[0])
        assert not both.maps[1][row, :, :length, length:].any()
    only = torch.tensor([[8, 0], [3, 1], [0, 0]])
    found = xlnet(batch, only)
    near(found.last, take(both.last, only))
    near(found.take(only[:, 1:]), take(both.last, only[:, 1:]))
    assert [layer.shape[1] for layer in both.layers] == [9] * 4
    assert len(both.maps) == 3


@torch.no_grad()
def test_memory_is_the_same_as_one_pass_that_cannot_look_ahead() -> None:
    """Two segments one after the other, or both at once with the first half blind for the second."""
    xlnet, batch = model(), rows(12)
    assert batch.segments is not None
    first = Batch(batch.ids[:, :7], torch.full((3,), 7), segments=batch.segments[:, :7], full=True)
    second = Batch(batch.ids[:, 7:], torch.full((3,), 5), segments=batch.segments[:, 7:], full=True)
    order = Order(torch.cat([torch.full((3, 7), -1), torch.zeros(3, 5, dtype=torch.long)], 1), torch.tensor([[8]] * 3))
    once = xlnet(batch, order=order)
    before = xlnet(first)
    after = xlnet(second, state=before.state)
    for one, a, b in zip(once.layers[:-1], before.layers, after.layers, strict=False):
        near(one, torch.cat([a, b], dim=1))
    for kept, one in zip(after.state.layers, once.layers, strict=False):
        near(kept, one)
    assert torch.equal(after.state.segments, batch.segments)
    forgetful = model(memory=4)
    state = forgetful(second, state=forgetful(first).state).state
    assert [layer.shape[1] for layer in state.layers] == [4] * 3
    assert torch.equal(state.segments, batch.segments[:, -4:])
    reusing = model(memory=4, reuse=3)
    assert torch.equal(
        reusing(second, state=reusing(first).state).state.segments, batch.segments[:, [2, 7, 8, 9]][:, :4]
    )


@torch.no_grad()
def test_padding_in_the_memory_is_not_looked_at() -> None:
    xlnet, batch = model(), rows()
    state = xlnet(replace(batch, full=False, lengths=torch.tensor([9, 4, 9]))).state
    assert state.real.tolist()[1] == [True] * 4 + [False] * 5
    layers = tuple(layer.clone() for layer in state.layers)
    for layer in layers:
        layer[1, 4:] = 7.0
    other = rows(seed=1)
    near(xlnet(other, state=replace(state, layers=layers)).last, xlnet(other, state=state).last)
    assert not torch.allclose(xlnet(other, state=State(layers)).last, xlnet(other, state=State(state.layers)).last)


@torch.no_grad()
def test_a_text_read_backwards_is_the_same_text() -> None:
    xlnet, batch = model(), rows()
    assert batch.segments is not None
    turned = replace(batch, ids=batch.ids.flip(1), segments=batch.segments.flip(1))
    near(xlnet(turned, backward=torch.ones(3, dtype=torch.bool)).last.flip(1), xlnet(batch).last)
    mixed = xlnet(replace(batch, ids=torch.cat([turned.ids[:1], batch.ids[1:]]),
        segments=torch.cat([turned.segments[:1], batch.segments[1:]])),  # type: ignore[index]
        backward=torch.tensor([1, 0, 0]))  # fmt: skip
    near(mixed.last[0].flip(0), xlnet(batch).last[0])
    near(mixed.last[1:], xlnet(batch).last[1:])


def test_training_moves_every_weight() -> None:
    """With dropout, two segments and both streams: each parameter has a gradient, and all are finite."""
    xlnet = XLNet(XLNetConfig(50, 16, 2, 2)).train()
    order = Order(torch.tensor([[-1, 3, -1, 1, 2, -1, -1, 0, -1]] * 3), torch.tensor([[1, 4]] * 3))
    state = xlnet(rows()).state
    assert not any(layer.requires_grad for layer in state.layers)
    xlnet(rows(seed=1), state=state, order=order).last.square().sum().backward()
    for name, parameter in xlnet.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


def test_parameters_are_as_many_as_in_the_published_models() -> None:
    """`xlnet-base-cased` and `xlnet-large-cased`, with the bias of the output layer."""
    for width, depth, heads, count in ((768, 12, 12, 116_750_336), (1024, 24, 16, 360_300_800)):
        with torch.device("meta"):
            ours = XLNet(XLNetConfig(32000, width, depth, heads))
        assert sum(parameter.numel() for parameter in ours.parameters()) + 32000 == count


def test_bad_settings_are_told() -> None:
    for settings in ({"heads": 3}, {"width": 15, "heads": 1}, {"memory": -1}, {"dropout": 1.0}, {"depth": 0}):
        with pytest.raises(SesameError, match="backbone"):
            XLNetConfig(**{"vocab": 10, "width": 16, "depth": 1, "heads": 2, **settings})  # type: ignore[arg-type]
