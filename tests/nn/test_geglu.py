"""The gate and its gradient equal what PyTorch makes of the formula."""

import pytest
import torch
import torch.nn.functional as F

from sesame.nn.geglu import _geglu, _geglu_gradient, geglu


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


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the kernels run on a GPU")
@pytest.mark.parametrize("rows", [1, 517, 2000])
@pytest.mark.parametrize("columns", [64, 328, 704])
def test_the_kernels_equal_the_definition(rows: int, columns: int) -> None:
    torch.manual_seed(0)
    h, grad = 3 * torch.randn(rows, 2 * columns, device="cuda"), torch.randn(rows, columns, device="cuda")
    assert torch.allclose(_geglu(h).cpu().double(), _plain(h.double().cpu()), atol=2e-5)
    wanted = _geglu_gradient(h.double().cpu(), grad.double().cpu())
    assert torch.allclose(_geglu_gradient(h, grad).cpu().double(), wanted, atol=2e-5)
