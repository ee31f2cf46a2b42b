"""The gate and its gradient equal what PyTorch makes of the formula."""

import pytest
import torch
import torch.nn.functional as F

from sesame.nn.geglu import _geglu, _geglu_gradient, geglu
from tests.nn.conftest import Kernels


def _plain(h: torch.Tensor) -> torch.Tensor:
    gate, value = h.chunk(2, dim=-1)
    return F.gelu(gate) * value


def test_value_and_gradient_are_those_of_the_formula() -> None:
    torch.manual_seed(0)
    h = torch.randn(2, 3, 10, dtype=torch.float64, requires_grad=True)
    wanted, found = _plain(h), _geglu(h)
    assert torch.allclose(found, wanted, atol=1e-14)
    pull = torch.randn_like(wanted)
    for ours, theirs in zip(torch.autograd.grad(found, h, pull), torch.autograd.grad(wanted, h, pull), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-12)


def test_compiled_shapes_are_known() -> None:
    torch.library.opcheck(_geglu, (torch.randn(4, 6, requires_grad=True),))
    torch.library.opcheck(_geglu_gradient, (torch.randn(4, 6), torch.randn(4, 3)))


def test_on_a_cpu_it_is_pytorchs_own() -> None:
    h = torch.randn(4, 6)
    assert torch.equal(geglu(h), _plain(h))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [0, 1, 37])
@pytest.mark.parametrize("columns", [1, 24, 328, 704])
def test_the_kernels_equal_the_definition(kernels: Kernels, rows: int, columns: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    h, grad = (3 * torch.randn(rows, 2 * columns)).to(dtype), torch.randn(rows, columns).to(dtype)
    there, pull = h.to(kernels.device), grad.to(kernels.device)
    out, found = _geglu(there), _geglu_gradient(there, pull)
    with kernels.off():
        wanted = _geglu_gradient(h.double(), grad.double())
    near = {"atol": 2e-5} if dtype == torch.float32 else {"atol": 1e-2, "rtol": 1e-2}
    assert out.dtype == found.dtype == dtype
    assert torch.allclose(out.cpu().double(), _plain(h.double()), **near)
    assert torch.allclose(found.cpu().double(), wanted, **near)


def test_the_kernels_serve_autograd(kernels: Kernels) -> None:
    torch.manual_seed(0)
    h, pull = torch.randn(2, 3, 10, requires_grad=True), torch.randn(2, 3, 5)
    at = h.detach().to(kernels.device).requires_grad_()
    [ours] = torch.autograd.grad(_geglu(at), at, pull.to(kernels.device))
    [theirs] = torch.autograd.grad(_plain(h), h, pull)
    assert torch.allclose(ours.cpu(), theirs, atol=1e-5)
