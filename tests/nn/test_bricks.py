"""Bricks against their formulas."""

import math

import pytest
import torch

from sesame.backbones import Encoder, EncoderConfig
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.nn.attention import core
from sesame.nn.dropout import dropout
from sesame.nn.feedforward import FeedForward
from sesame.nn.positions import rotate, rotations, sinusoids


def heads(length: int = 7, batch: int = 3) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(batch, 2, length, 4, generator=generator, dtype=torch.float64) for _ in range(3))  # type: ignore[return-value]


def test_eager_attention_is_the_formula() -> None:
    q, k, v = heads()
    found, maps = core.eager(q, k, v, None)
    for b in range(3):
        for h in range(2):
            scores = q[b, h] @ k[b, h].T / math.sqrt(4)
            weights = scores.exp() / scores.exp().sum(-1, keepdim=True)
            assert torch.allclose(maps[b, h], weights, atol=1e-12)
            assert torch.allclose(found[b, h], weights @ v[b, h], atol=1e-12)


def test_all_cores_equal_eager() -> None:
    q, k, v = heads()
    lengths = torch.tensor([7, 3, 1])
    real = torch.arange(7)[None] < lengths[:, None]
    mask = real[:, None, None, :]
    wanted, maps = core.eager(q, k, v, mask)
    assert float((maps * ~mask).abs().max()) == 0.0
    assert torch.allclose(core.sdpa(q, k, v, mask), wanted, atol=1e-12)
    offsets = torch.tensor([0, 7, 10, 11], dtype=torch.int32)
    flat = [x.transpose(1, 2)[real] for x in (q, k, v)]
    rows = core.EndToEnd(offsets, 7, offsets, 7)
    assert torch.allclose(core.varlen(*flat, rows), wanted.transpose(1, 2)[real], atol=1e-12)
    first = core.EndToEnd(offsets, 7, torch.arange(4, dtype=torch.int32), 1)  # each row asks at its first place only
    found = core.varlen(flat[0][offsets[:-1].long()], *flat[1:], first)
    assert torch.allclose(found, wanted.transpose(1, 2)[:, 0], atol=1e-12)


@pytest.mark.parametrize("window", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("length", [1, 4, 8, 13, 20, 21, 64])
@pytest.mark.parametrize("padded", [False, True])
def test_windows_in_blocks_equal_eager(window: int, length: int, padded: bool) -> None:
    torch.manual_seed(length)
    q, k, v = (torch.randn(3, length, 2, 4, dtype=torch.float64, requires_grad=True).transpose(1, 2) for _ in range(3))
    lengths = torch.tensor([length, max(1, length // 2), 1])
    real = (torch.arange(length)[None] < lengths[:, None])[:, None, None, :] if padded else None
    wanted = core.eager(q, k, v, core.band(length, window, q.device, real))[0]
    found = core.near(q, k, v, real, window)
    counted = real.transpose(2, 3) if real is not None else torch.ones(1)
    assert torch.allclose(found * counted, wanted * counted, atol=1e-12)
    assert found.isfinite().all()
    ours, theirs = (
        torch.autograd.grad((x * counted).square().sum(), (q, k, v), retain_graph=True) for x in (found, wanted)
    )
    assert all(torch.allclose(a, b, atol=1e-11) for a, b in zip(ours, theirs, strict=True))


def test_rows_without_padding_have_windows() -> None:
    q, k, v = heads()
    real = torch.arange(7)[None] < torch.tensor([7, 3, 1])[:, None]
    near = torch.tensor([[abs(i - j) <= 2 for j in range(7)] for i in range(7)])
    wanted = core.eager(q, k, v, near & real[:, None, None, :])[0].transpose(1, 2)[real]
    offsets = torch.tensor([0, 7, 10, 11], dtype=torch.int32)
    flat = [x.transpose(1, 2)[real] for x in (q, k, v)]
    found = core.varlen(*flat, core.EndToEnd(offsets, 7, offsets, 7, window=2))
    assert torch.allclose(found, wanted, atol=1e-12)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the kernel runs on a GPU")
@pytest.mark.parametrize("rate", [0.0, 0.2])
def test_the_varlen_kernel_equals_the_padded_way(rate: float) -> None:
    torch.manual_seed(0)
    offsets = torch.tensor([0, 70, 75, 75, 200], dtype=torch.int32, device="cuda")
    q, k, v = (torch.randn(200, 2, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    rows = core.EndToEnd(offsets, 128, offsets, 128)
    found = torch.stack([core.varlen(q, k, v, rows, rate) for _ in range(1 if rate == 0 else 400)]).float().mean(0)
    wanted = core._varlen_padded(q, k, v, rows, 0.0).float()
    assert float((found - wanted).detach().abs().max()) < (0.02 if rate == 0 else 0.3)
    ours, theirs = (torch.autograd.grad(x.square().sum(), (q, k, v), retain_graph=True) for x in (found, wanted))
    assert all(float((a - b).abs().max()) < (0.1 if rate == 0 else 2.0) for a, b in zip(ours, theirs, strict=True))


def test_maps_are_given_for_every_layer_and_sum_to_1() -> None:
    encoder = Encoder(EncoderConfig(50, 16, 3, 2)).eval()
    batch = Batch(torch.randint(0, 50, (2, 6)), torch.tensor([6, 4]))
    plain, mapped = encoder(batch), encoder(batch, maps=True)
    assert len(mapped.maps) == 3
    assert mapped.maps[0].shape == (2, 2, 6, 6)
    assert torch.allclose(mapped.maps[1].sum(-1), torch.ones(2, 2, 6))
    assert torch.allclose(plain.last[0], mapped.last[0], atol=1e-5)


def test_sinusoids_and_rotations() -> None:
    table = sinusoids(10, 6)
    assert float(table[3, 2]) == pytest.approx(math.sin(3 / 10000 ** (2 / 6)), abs=1e-6)
    assert float(table[3, 3]) == pytest.approx(math.cos(3 / 10000 ** (2 / 6)), abs=1e-6)
    x = torch.randn(1, 8, dtype=torch.float64)
    y = torch.randn(1, 8, dtype=torch.float64)

    def score(at: int, other: int) -> float:
        turned = [rotate(z, *rotations(torch.tensor([p]), 8, 10000.0, torch.float64)) for z, p in ((x, at), (y, other))]
        return float((turned[0] * turned[1]).sum())

    assert score(5, 2) == pytest.approx(score(105, 102), abs=1e-10)  # only the distance counts
    assert score(5, 2) != pytest.approx(score(2, 5), abs=1e-6)
    assert score(0, 0) == pytest.approx(float((x * y).sum()), abs=1e-12)


def test_gated_feedforward_is_the_formula() -> None:
    torch.manual_seed(0)
    ffn = FeedForward(6, 10, "geglu", bias=False, dropout=0.0)
    x = torch.randn(4, 6)
    left, right = (x @ ffn.up.weight.T).chunk(2, dim=-1)
    wanted = (torch.nn.functional.gelu(left) * right) @ ffn.down.weight.T
    assert torch.allclose(ffn(x), wanted, atol=1e-6)
    assert ffn.up.bias is None


def test_dropout_keeps_the_mean_and_its_rate() -> None:
    torch.manual_seed(0)
    x = torch.ones(300, 333, requires_grad=True)
    y = dropout(x, 0.1, training=True)
    assert float((y == 0).float().mean()) == pytest.approx(0.1, abs=0.005)
    assert float(y.detach().mean()) == pytest.approx(1.0, abs=0.01)
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, y.detach())  # the same places, the same scale
    assert dropout(x, 0.1, training=False) is x
    torch.manual_seed(0)
    again = dropout(x, 0.1, training=True)
    assert torch.equal(again, y)


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ({}, 4 * 12),
        ({"share": "all"}, 12),
        ({"share": "attention"}, 4 + 4 * 8),
        ({"share": "feedforward"}, 4 + 4 * 8),
    ],
)
def test_shared_layers_are_counted_once(settings: dict[str, str], count: int) -> None:
    encoder = Encoder(EncoderConfig(64, 16, 4, 2, **settings))  # type: ignore[arg-type]
    assert len(list(encoder.blocks.parameters())) == count  # attention, feed-forward and norms have four tensors each


def test_narrow_embeddings_are_projected() -> None:
    encoder = Encoder(EncoderConfig(1000, 32, 1, 2, embedding_width=8))
    assert encoder.token_table().shape == (1024, 8)
    assert encoder.embeddings.project is not None
    out = encoder(Batch(torch.randint(0, 1000, (2, 5)), torch.tensor([5, 5]), full=True))
    assert out.last.shape == (2, 5, 32)


def test_groups_cover_all_parameters_once() -> None:
    for share in ("none", "all"):
        encoder = Encoder(EncoderConfig(64, 16, 3, 2, share=share, order="pre"))  # type: ignore[arg-type]
        grouped = [id(p) for group in encoder.groups() for p in group.parameters()]
        assert sorted(grouped) == sorted(id(p) for p in encoder.parameters())


def test_impossible_shapes_are_told() -> None:
    with pytest.raises(SesameError, match="does not divide"):
        EncoderConfig(10, 10, 1, 3)
    with pytest.raises(SesameError, match="at least 1"):
        EncoderConfig(10, 8, 0, 2)
    encoder = Encoder(EncoderConfig(10, 8, 1, 2, max_length=4))
    with pytest.raises(SesameError, match="do not fit"):
        encoder(Batch(torch.zeros(1, 5, dtype=torch.long), torch.tensor([5])))
