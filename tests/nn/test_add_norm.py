"""The fused end of a block equals its parts, forward and backward, and its luck is fair."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sesame.nn.add_norm import _add_norm, _gradient, add_norm, lucky
from tests.nn.conftest import Kernels, SaysCuda

EPS = 1e-12


def _given(rows: int, columns: int, dtype: torch.dtype, device: str = "cpu") -> list[Tensor]:
    torch.manual_seed(0)
    shapes = ((rows, columns), (columns,), (rows, columns), (columns,), (columns,))
    return [torch.randn(shape, dtype=dtype, device=device, requires_grad=True) for shape in shapes]


def _wanted(x: Tensor, kept: Tensor, gain: Tensor, shift: Tensor, seed: Tensor, rate: float) -> Tensor:
    z = kept + torch.where(lucky(seed, x, rate), x / (1 - rate), 0.0)
    return F.layer_norm(z, z.shape[-1:], gain, shift, EPS)


def test_values_and_gradients_are_those_of_its_parts() -> None:
    x, bias, kept, gain, shift = _given(6, 8, torch.float64)
    seed, rate = torch.tensor([123456789 << 20]), 0.3
    weights = torch.linspace(-1, 2, 48, dtype=torch.float64).view(6, 8)
    found = _add_norm(x, bias, kept, gain, shift, seed, rate, EPS)[0]
    wanted = _wanted(x + (bias - bias.detach()), kept, gain, shift, seed, rate)
    assert torch.allclose(found, wanted, atol=1e-13)
    ours = torch.autograd.grad((found * weights).sum(), (x, bias, kept, gain, shift))
    theirs = torch.autograd.grad((wanted * weights).sum(), (x, bias, kept, gain, shift))
    for a, b in zip(ours, theirs, strict=True):
        assert torch.allclose(a, b, atol=1e-12)


def test_compiled_shapes_are_known() -> None:
    given = _given(4, 6, torch.float32)
    torch.library.opcheck(_add_norm, (*given, torch.tensor([7]), 0.1, EPS))
    dy, z, stats = torch.randn(4, 6), torch.randn(4, 6), torch.rand(4, 2)
    torch.library.opcheck(_gradient, (dy, z, stats, torch.randn(6), torch.tensor([7]), 0.1))


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.5])
def test_luck_is_fair_and_independent(rate: float) -> None:
    like = torch.empty(512, 768)
    seeds = [torch.tensor([seed]) for seed in (0, 1, 1 << 32, 5 << 40, (1 << 62) - 1)]
    masks = [lucky(seed, like, rate).double() for seed in seeds]
    deviation = math.sqrt(rate * (1 - rate) / like.numel())
    for mask in masks:
        assert abs(float(mask.mean()) - (1 - rate)) < 5 * deviation
        assert float((mask.mean(0) - (1 - rate)).abs().max()) < 6 * math.sqrt(rate * (1 - rate) / 512)
        assert float((mask.mean(1) - (1 - rate)).abs().max()) < 6 * math.sqrt(rate * (1 - rate) / 768)
    others = [*masks[1:], masks[0].roll(1, 1), masks[0].roll(1, 0), masks[0].roll(64, 1)]
    for other in others:
        agreement = float(((masks[0] - (1 - rate)) * (other - (1 - rate))).mean()) / (rate * (1 - rate))
        assert abs(agreement) < 5 / math.sqrt(like.numel())


def test_sums_of_thirty_two_bits_stay_so_on_a_gpu() -> None:
    """Where matrix products alone are in bf16 (--precision mixed), what a block keeps and its norm are not."""
    torch.manual_seed(0)
    layer, norm = nn.Linear(6, 8), nn.LayerNorm(8)
    x, kept = torch.randn(5, 6).bfloat16().as_subclass(SaysCuda), torch.randn(5, 8)
    with torch.autocast("cpu", torch.bfloat16):
        found = add_norm(layer, x, kept, 1e-9, norm)
    assert found.dtype == torch.float32
    assert torch.allclose(found, norm(kept + layer(x.float())), atol=0.05)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [0, 1, 5, 37])
@pytest.mark.parametrize("columns", [1, 24, 48, 312, 768, 1000, 1024])
def test_the_kernels_equal_the_definition(kernels: Kernels, rows: int, columns: int, dtype: torch.dtype) -> None:
    x, bias, kept, gain, shift = (part.detach() for part in _given(rows, columns, dtype, kernels.device))
    seed, rate = torch.tensor([(987654321 << 30) + 5], device=kernels.device), 0.1
    dy = torch.randn(rows, columns).to(kernels.device, dtype)
    y, z, stats = _add_norm(x, bias, kept, gain, shift, seed, rate, EPS)
    found = _gradient(dy, z, stats, gain, seed, rate)
    exact = [part.double().cpu() for part in (x, bias, kept, gain, shift)]
    with kernels.off():
        wanted = _add_norm(*exact, seed.cpu(), rate, EPS)
        expected = _gradient(*(part.double().cpu() for part in (dy, z, stats, gain)), seed.cpu(), rate)
    near = 1e-4 if dtype == torch.float32 else 0.1  # numbers up to 10; the interpreter cuts them to 8 bits
    assert found[0].dtype == y.dtype == z.dtype == dtype
    for a, b in zip((y, z, *found[:2]), (*wanted[:2], *expected[:2]), strict=True):
        assert torch.allclose(a.cpu().double(), b, atol=near)
    assert torch.allclose(found[2].cpu().double(), expected[2], atol=near * max(1, rows) ** 0.5)
    again = _add_norm(x, bias, kept, gain, shift, seed, rate, EPS)
    assert all(torch.equal(a, b) for a, b in zip((y, z, stats), again, strict=True))


@pytest.mark.parametrize("rate", [0.05, 0.5])
def test_the_kernel_drops_its_share_and_makes_up_for_it(kernels: Kernels, rate: float) -> None:
    ones, zeros, vector = torch.ones(64, 768), torch.zeros(64, 768), torch.ones(768)
    for seed in (0, (1 << 62) - 1):
        given = (part.to(kernels.device) for part in (ones, vector, zeros, vector, vector, torch.tensor([seed])))
        left = _add_norm(*given, rate, EPS)[1].cpu()
        assert torch.equal(left, torch.where(lucky(torch.tensor([seed]), left, rate), 1 / (1 - rate), 0.0))


def test_the_kernels_serve_autograd(kernels: Kernels) -> None:
    given = _given(7, 24, torch.float32, kernels.device)
    seed, weights = torch.tensor([99], device=kernels.device), torch.linspace(-1, 2, 7 * 24).view(7, 24)
    found = torch.autograd.grad((_add_norm(*given, seed, 0.2, EPS)[0] * weights.to(kernels.device)).sum(), given)
    exact = [part.detach().double().cpu().requires_grad_() for part in given]
    x, bias, kept, gain, shift = exact
    wanted = _wanted(x + (bias - bias.detach()), kept, gain, shift, seed.cpu(), 0.2)
    for ours, theirs in zip(found, torch.autograd.grad((wanted * weights).sum(), exact), strict=True):
        assert torch.allclose(ours.cpu().double(), theirs, atol=1e-4)
