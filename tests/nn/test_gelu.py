"""GELU with its bias's gradient equals PyTorch's own."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sesame.nn.gelu import _gelu, _gelu_gradient, linear_gelu


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


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the kernels run on a GPU")
@pytest.mark.parametrize("rows", [1, 517, 2000])
@pytest.mark.parametrize("columns", [64, 328])
def test_the_kernels_equal_the_definition(rows: int, columns: int) -> None:
    torch.manual_seed(0)
    h, grad = (3 * torch.randn(rows, columns, device="cuda") for _ in range(2))
    found, total = _gelu_gradient(h, grad)
    wanted, wanted_total = _gelu_gradient(h.double().cpu(), grad.double().cpu())
    assert torch.allclose(_gelu(h, h[0]).cpu().double(), F.gelu(h.double().cpu()), atol=2e-6)
    assert torch.allclose(found.cpu().double(), wanted, atol=1e-5)
    assert torch.allclose(total.cpu().double(), wanted_total, atol=1e-5 * rows)
