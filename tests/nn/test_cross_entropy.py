"""The fused loss equals PyTorch's own, value and gradients."""

import pytest
import torch
import torch.nn.functional as F

from sesame.nn import cross_entropy
from sesame.nn.cross_entropy import _fused, linear_cross_entropy
from tests.nn.conftest import Kernels, SaysCuda


def _case(dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    x, table, bias = torch.randn(11, 6), torch.randn(64, 6), torch.randn(64)
    bias[60:] = -torch.inf  # columns that only pad the table
    labels = torch.randint(0, 60, (11,))
    labels[[2, 7]] = cross_entropy.IGNORE
    return *(part.to(dtype).requires_grad_() for part in (x, table, bias)), labels


@pytest.mark.parametrize("chunk", [1 << 30, 64 * 4])  # at once, and in rounds of four rows
def test_value_and_gradients_are_those_of_pytorch(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_entropy, "CHUNK", chunk)
    x, table, bias, labels = _case()
    wanted = F.cross_entropy(F.linear(x, table, bias), labels, reduction="sum")
    gradients = torch.autograd.grad(3 * wanted, (x, table, bias))
    found = _fused(x, table, bias, labels)[0]
    assert torch.allclose(found, wanted, rtol=1e-12)
    for ours, theirs in zip(torch.autograd.grad(3 * found, (x, table, bias)), gradients, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-10, atol=1e-12)


def test_without_labels_nothing_is_learned() -> None:
    x, table, bias, labels = _case()
    total = _fused(x, table, bias, torch.full_like(labels, cross_entropy.IGNORE))[0]
    assert float(total.detach()) == 0
    assert all(not part.any() for part in torch.autograd.grad(total, (x, table, bias)))


@pytest.mark.slow
def test_compiled_shapes_are_known() -> None:
    torch.library.opcheck(_fused, _case())


def test_states_of_sixteen_bits_meet_a_table_of_thirty_two_on_a_gpu() -> None:
    """Where matrix products alone are in bf16 (--precision mixed), a decoder's states are too, and the table is not."""
    x, table, bias, labels = (part.detach() for part in _case(torch.float32))
    with torch.autocast("cpu", torch.bfloat16):
        x = x.bfloat16().as_subclass(SaysCuda).requires_grad_()
        found = linear_cross_entropy(x, table.requires_grad_(), bias.bfloat16(), labels)
    found.backward()
    wanted = F.cross_entropy(F.linear(x.detach().float(), table, bias), labels, reduction="sum")
    assert float(found.detach()) == pytest.approx(float(wanted.detach()), rel=0.01)
    assert table.grad is not None
    assert table.grad.dtype == torch.float32


def test_on_a_cpu_it_is_pytorchs_own() -> None:
    x, table, bias, labels = _case(torch.float32)
    wanted = F.cross_entropy(F.linear(x, table, bias), labels, reduction="sum")
    assert torch.equal(linear_cross_entropy(x, table, bias, labels), wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("columns", [1, 24, 48, 1000, 8192, 8200, 30_016])  # 8192 are read at a time
@pytest.mark.parametrize("rows", [0, 1, 30])
def test_the_kernel_equals_the_definition(kernels: Kernels, rows: int, columns: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    used = columns - 16 if columns > 1000 else columns
    labels = torch.randint(0, used, (rows,))
    labels[1::7] = cross_entropy.IGNORE
    logits = (torch.randn(rows, columns) * 3).to(dtype)
    logits[:, used:] = -torch.inf
    ours, theirs = logits.to(kernels.device, copy=True), logits.double()
    found = cross_entropy._softmax_gradient(ours, labels.to(kernels.device))
    wanted = cross_entropy.softmax_gradient(theirs, labels)
    assert torch.allclose(found.cpu().double(), wanted, rtol=1e-5)
    assert torch.allclose(ours.cpu().double(), theirs, atol=1e-6 if dtype == torch.float32 else 4e-3)
    assert not ours[(labels == cross_entropy.IGNORE).to(kernels.device)].any()


def test_the_kernel_reads_large_and_small_numbers(kernels: Kernels) -> None:
    logits = torch.tensor([[300.0, 299.0, -300.0, 1e-30], [-200.0, -201.0, -400.0, -torch.inf], [0.0, 1e-8, 0.0, 0.0]])
    ours, labels = logits.to(kernels.device, copy=True), torch.tensor([1, 0, 2])
    wanted = cross_entropy.softmax_gradient(logits.double(), labels)
    found = cross_entropy._softmax_gradient(ours, labels.to(kernels.device))
    assert float(found) == pytest.approx(float(wanted), abs=1e-4)
    assert float(found) == pytest.approx(float(F.cross_entropy(logits.double(), labels, reduction="sum")), abs=1e-4)
    assert ours.isfinite().all()


@pytest.mark.parametrize("chunk", [1 << 30, 64 * 4])
def test_the_kernel_serves_autograd(kernels: Kernels, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_entropy, "CHUNK", chunk)
    *exact, labels = _case()
    wanted = F.cross_entropy(F.linear(*exact), labels, reduction="sum")
    given = [part.detach().float().to(kernels.device).requires_grad_() for part in exact]
    found = _fused(*given, labels.to(kernels.device))[0]
    assert torch.allclose(found.cpu().double(), wanted, rtol=1e-5)
    for ours, theirs in zip(torch.autograd.grad(3 * found, given), torch.autograd.grad(3 * wanted, exact), strict=True):
        assert torch.allclose(ours.cpu().double(), theirs, atol=1e-4)
    nothing = _fused(*given, torch.full_like(labels, cross_entropy.IGNORE).to(kernels.device))[0]
    assert float(nothing.detach()) == 0
    assert not any(part.any() for part in torch.autograd.grad(nothing, given))
