"""Cutting and turning in one operation equals cutting, turning and joining, forwards and backwards."""

import pytest
import torch

from sesame.nn.positions import rotate, rotations
from sesame.nn.turn import _turn, _turn_gradient, cut_and_turn
from tests.nn.conftest import Kernels

SHAPES = [((3, 5), 5), ((4, 7), 28), ((11,), 11)]  # rows; how many angles: those of a row, of all rows, without padding


def _angles(count: int, size: int, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    return rotations(torch.arange(count) % 7, size, 10_000.0, dtype)


def _plain(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, parts: int, turned: int) -> list[torch.Tensor]:
    size, rows = cos.shape[-1], x.shape[:-1].numel()
    cut = [part.reshape(rows, -1, size) for part in x.chunk(parts, dim=-1)]
    cos, sin = (angle.repeat(rows // len(angle), 1)[:, None] for angle in (cos, sin))
    found = [rotate(part, cos, sin) if number < turned else part for number, part in enumerate(cut)]
    return [part.reshape(*x.shape[:-1], -1) for part in found]


@pytest.mark.parametrize(("rows", "count"), SHAPES)
@pytest.mark.parametrize(("parts", "turned"), [(3, 2), (2, 1), (1, 1)])
def test_value_and_gradient_are_those_of_the_formula(
    rows: tuple[int, ...], count: int, parts: int, turned: int
) -> None:
    torch.manual_seed(0)
    cos, sin = _angles(count, 6)
    x = torch.randn(*rows, parts * 12, dtype=torch.float64, requires_grad=True)
    found, wanted = _turn(x, cos, sin, parts, turned), _plain(x, cos, sin, parts, turned)
    pulls = [torch.randn_like(part) for part in wanted]
    for ours, theirs in zip(found, wanted, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-14)
    [ours] = torch.autograd.grad(found, x, pulls)
    [theirs] = torch.autograd.grad(wanted, x, pulls)
    assert torch.allclose(ours, theirs, atol=1e-13)


def test_on_a_cpu_heads_are_cut_and_turned_by_pytorch() -> None:
    x, (cos, sin) = torch.randn(2, 5, 36), _angles(5, 6, torch.float32)
    rotary = cos[None, :, None], sin[None, :, None]
    q, k, v = cut_and_turn(x, 3, 2, 6, rotary)
    assert torch.equal(v, x[..., 24:].view(2, 5, 2, 6))
    assert torch.equal(q, rotate(x[..., :12].view(2, 5, 2, 6), *rotary))
    assert torch.equal(k, rotate(x[..., 12:24].view(2, 5, 2, 6), *rotary))
    assert torch.equal(cut_and_turn(x, 3, 2, 6, None)[0], x[..., :12].view(2, 5, 2, 6))


def test_compiled_shapes_are_known() -> None:
    cos, sin = _angles(4, 6, torch.float32)
    torch.library.opcheck(_turn, (torch.randn(4, 36, requires_grad=True), cos, sin, 3, 2))
    torch.library.opcheck(_turn_gradient, ([torch.randn(4, 12)] * 2, cos, sin, 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "count"), [*SHAPES, ((5, 37), 37), ((0,), 3)])
@pytest.mark.parametrize(("size", "heads"), [(2, 1), (6, 5), (24, 1), (32, 4), (64, 12)])
def test_the_kernels_equal_the_definition(
    kernels: Kernels, rows: tuple[int, ...], count: int, size: int, heads: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    angles = _angles(count, size, torch.float32)
    cos, sin = (angle.to(kernels.device) for angle in angles)
    x = torch.randn(*rows, 3 * heads * size).to(dtype)
    found = _turn(x.to(kernels.device), cos, sin, 3, 2)
    back = _turn_gradient(found, cos, sin, 2)
    exact = angles[0].double(), angles[1].double()
    with kernels.off():
        wanted = _turn(x.double(), *exact, 3, 2)
        wanted_back = _turn_gradient([part.double().cpu() for part in found], *exact, 2)
    near = 1e-5 if dtype == torch.float32 else 0.05  # numbers up to 6; the interpreter cuts them to 8 bits
    assert back.dtype == dtype
    for ours, theirs in zip((*found, back), (*wanted, wanted_back), strict=True):
        assert torch.allclose(ours.cpu().double(), theirs, atol=near)
    assert torch.equal(found[2].cpu(), x[..., 2 * heads * size :])
    apart = [part.view(*rows, heads, size).transpose(0, -2).contiguous().transpose(0, -2).flatten(-2) for part in found]
    assert torch.equal(_turn_gradient(apart, cos, sin, 2), back)


def test_the_kernels_serve_autograd(kernels: Kernels) -> None:
    torch.manual_seed(0)
    angles, x = _angles(5, 6, torch.float32), torch.randn(3, 5, 36)
    there, here = (x.clone().to(device).requires_grad_() for device in (kernels.device, "cpu"))
    found = _turn(there, *(angle.to(kernels.device) for angle in angles), 3, 2)
    wanted = _plain(here, *angles, 3, 2)
    [ours] = torch.autograd.grad(sum(part.square().sum() * n for n, part in enumerate(found, 1)), there)
    [theirs] = torch.autograd.grad(sum(part.square().sum() * n for n, part in enumerate(wanted, 1)), here)
    assert torch.allclose(ours.cpu(), theirs, atol=1e-4)
