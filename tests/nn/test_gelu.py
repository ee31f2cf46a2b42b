"""GELU with its bias's gradient equals PyTorch's own."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sesame.nn.gelu import _gelu, _gelu_gradient, linear_gelu
from tests.nn.conftest import Kernels


def _gradients(out: torch.Tensor, layer: nn.Linear, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    weights = torch.linspace(-1, 1, out.numel(), device=out.device).to(out.dtype).view(out.shape)
    return torch.autograd.grad((out * weights).sum(), (x, layer.weight, layer.bias))


def test_value_and_gradients_are_those_of_pytorch() -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(5, 7).double(), torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    wanted = F.gelu(layer(x))
    found = _gelu(F.linear(x, layer.weight, layer.bias.detach()), layer.bias)
    assert torch.allclose(found, wanted, atol=1e-14)
    for ours, theirs in zip(_gradients(found, layer, x), _gradients(wanted, layer, x), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-12)


def test_compiled_shapes_are_known() -> None:
    torch.library.opcheck(_gelu, (torch.randn(4, 3, requires_grad=True), torch.zeros(3, requires_grad=True)))
    torch.library.opcheck(_gelu_gradient, (torch.randn(4, 3), torch.randn(4, 3)))


def test_on_a_cpu_it_is_pytorchs_own() -> None:
    layer, x = nn.Linear(5, 7), torch.randn(4, 5)
    assert torch.equal(linear_gelu(layer, x), F.gelu(layer(x)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [0, 1, 37, 261])
@pytest.mark.parametrize("columns", [1, 24, 328])
def test_the_kernels_equal_the_definition(kernels: Kernels, rows: int, columns: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    h, grad = ((3 * torch.randn(rows, columns)).to(dtype) for _ in range(2))
    there, pull = h.to(kernels.device), grad.to(kernels.device)
    out = _gelu(there, torch.zeros(columns).to(there))
    found, total = _gelu_gradient(there, pull)
    with kernels.off():
        wanted, wanted_total = _gelu_gradient(h.double(), grad.double())
    near = 1e-5 if dtype == torch.float32 else 0.1  # numbers up to 16; the interpreter cuts them to 8 bits
    assert out.dtype == found.dtype == total.dtype == dtype
    assert torch.allclose(out.cpu().double(), F.gelu(h.double()), atol=near)
    assert torch.allclose(found.cpu().double(), wanted, atol=near)
    assert torch.allclose(total.cpu().double(), wanted_total, atol=near * max(1, rows) ** 0.5)
    again = _gelu_gradient(there, pull)
    assert torch.equal(again[0], found)
    assert torch.equal(again[1], total)


def test_the_kernels_have_the_ends_of_gelu(kernels: Kernels) -> None:
    h = torch.tensor([[-100.0, -1e-20, 0.0, 1e-20, 100.0, 1e15]], device=kernels.device)
    out, [slope, _] = _gelu(h, h[0]), _gelu_gradient(h, torch.ones_like(h))
    assert out.tolist()[0] == pytest.approx([0.0, -0.5e-20, 0.0, 0.5e-20, 100.0, 1e15], rel=1e-6)
    assert slope.tolist()[0] == pytest.approx([0.0, 0.5, 0.5, 0.5, 1.0, 1.0], abs=1e-6)


def test_the_kernels_serve_autograd(kernels: Kernels) -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(5, 7), torch.randn(2, 3, 5, requires_grad=True)
    wanted = _gradients(F.gelu(layer(x)), layer, x)
    there, at = layer.to(kernels.device), x.detach().to(kernels.device).requires_grad_()
    found = _gelu(F.linear(at, there.weight, there.bias.detach()), there.bias)
    for ours, theirs in zip(_gradients(found, there, at), wanted, strict=True):
        assert torch.allclose(ours.cpu(), theirs, atol=1e-5)
