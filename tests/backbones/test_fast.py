"""The encoder that only answers computes what the encoder computes: every option, every layer, in any layout."""

import hashlib
from typing import Any

import pytest
import torch

from sesame.backbones import Encoder, EncoderConfig
from sesame.backbones.fast import FastEncoder, rounded, runs_of
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.nn.packed import PRECISIONS, Precision, pack

OPTIONS: list[dict[str, Any]] = [
    {},
    {"order": "pre"},
    {"order": "branch", "activation": "relu"},
    {"positions": "rotary", "order": "pre", "local_layers": (0,), "window": 3, "local_base": 50.0},
    {"positions": "rotary", "activation": "geglu", "bias": False, "order": "pre"},
    {"positions": "sinusoidal", "activation": "gelu_tanh", "segments": 0},
    {"embedding_width": 8, "share": "all"},
    {"share": "attention"},
    {"share": "feedforward"},
    {"depth": 1},
]
BOUNDS: dict[str, float] = {"fp32": 1e-5, "bf16": 0.06, "int8": 0.12}  # of states whose spread is about 1


def made(**settings: Any) -> Encoder:
    torch.manual_seed(int(hashlib.sha256(repr(settings).encode()).hexdigest()[:8], 16))
    wanted: dict[str, Any] = {"width": 32, "depth": 3, "heads": 4, "max_length": 40, "init": 0.15} | settings
    return Encoder(EncoderConfig(50, **wanted)).eval()


def batch_of(lengths: list[int], segments: int = 2) -> Batch:
    torch.manual_seed(len(lengths))
    size = torch.tensor(lengths)
    ids = torch.randint(1, 50, (len(lengths), max(lengths)))
    kinds = torch.randint(0, segments, ids.shape) if segments else None
    return Batch(ids, size, segments=kinds, full=len(set(lengths)) == 1)


@torch.no_grad()
def worst(encoder: Encoder, fast: FastEncoder, batch: Batch) -> float:
    """The largest difference at real places over all layers, and over the last one at few places."""
    theirs, ours = encoder(batch), fast(batch)
    assert len(theirs.layers) == len(ours.layers)
    real = torch.arange(batch.ids.shape[1])[None] < batch.lengths[:, None]
    found = [float((a - b)[real].abs().max()) for a, b in zip(theirs.layers, ours.layers, strict=True)]
    only = torch.stack([torch.zeros_like(batch.lengths), batch.lengths - 1], dim=1)
    few = fast(batch, only, last=True)
    assert len(few.layers) == 1
    assert few.last.shape == (batch.size, 2, encoder.width)
    found.append(float((encoder(batch, only).take(only) - few.take(only)).abs().max()))
    return max(found)


@pytest.mark.parametrize("lengths", [[9], [5, 5, 5], [3, 7, 7, 12, 20], [20, 3, 7, 3]], ids=str)
@pytest.mark.parametrize("settings", OPTIONS, ids=str)
def test_it_computes_what_the_encoder_computes(settings: dict[str, Any], lengths: list[int]) -> None:
    encoder = made(**settings)
    assert worst(encoder, FastEncoder(encoder), batch_of(lengths, settings.get("segments", 2))) < BOUNDS["fp32"]


@pytest.mark.parametrize("precision", ["bf16", "int8"])
@pytest.mark.parametrize("settings", OPTIONS, ids=str)
def test_fewer_bits_stay_near(settings: dict[str, Any], precision: Precision) -> None:
    encoder = made(**settings)
    batch = batch_of([3, 7, 7, 12, 20], settings.get("segments", 2))
    difference = worst(encoder, FastEncoder(encoder, precision), batch)
    spread = float(encoder(batch).last.detach().std())
    assert 1e-6 < difference < BOUNDS[precision] * max(1.0, spread) * 3


@pytest.mark.parametrize("precision", PRECISIONS)
def test_neighbours_do_not_matter(precision: Precision) -> None:
    """A row alone gives what it gives among others: no padding leaks, no scale is shared."""
    fast = FastEncoder(made(), precision)
    lengths = [4, 9, 9, 30]
    batch = batch_of(lengths)
    together = fast(batch).last
    for row, length in enumerate(lengths):
        assert batch.segments is not None
        cut = slice(row, row + 1), slice(0, length)
        alone = fast(Batch(batch.ids[cut], batch.lengths[row : row + 1], segments=batch.segments[cut], full=True)).last
        assert (alone[0] - together[row, :length]).abs().max() < (2e-2 if precision == "bf16" else 1e-5)


@pytest.mark.parametrize("after", ["none", "gelu", "relu"])
def test_a_loud_token_does_not_coarsen_the_others(after: str) -> None:
    torch.manual_seed(0)
    linear = torch.nn.Linear(64, 48)
    x = torch.randn(16, 64)
    x = {"none": x, "gelu": torch.nn.functional.gelu(x), "relu": x.relu()}[after]
    loud = x.clone()
    loud[3] *= 1000
    packed = pack(linear, "int8", after=after)
    with torch.inference_mode():
        plain, beside = packed(x), packed(loud)
        assert (plain - linear(x)).abs().max() < 0.05
    others = [row for row in range(16) if row != 3]
    assert torch.equal(plain[others], beside[others])


def test_zeros_and_huge_numbers_survive_int8() -> None:
    linear = torch.nn.Linear(32, 32)
    packed = pack(linear, "int8")
    with torch.inference_mode():
        x = torch.zeros(16, 32)
        x[1] = 1e30
        found = packed(x)
    assert torch.equal(found[0], linear.bias)
    assert found.isfinite().all()


def test_runs_and_sizes() -> None:
    assert [(r.token, r.row, r.rows, r.length) for r in runs_of([2, 2, 5, 2])] == [
        (0, 0, 2, 2),
        (4, 2, 1, 5),
        (9, 3, 1, 2),
    ]
    assert [rounded(n) for n in (1, 16, 17, 256, 257)] == [16, 16, 32, 256, 320]


def test_too_long_is_told() -> None:
    with pytest.raises(SesameError, match="41 tokens do not fit"):
        FastEncoder(made())(batch_of([41]))
