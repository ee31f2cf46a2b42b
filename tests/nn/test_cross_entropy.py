"""The fused loss equals PyTorch's own, value and gradients."""

import pytest
import torch
import torch.nn.functional as F

from sesame.nn import cross_entropy
from sesame.nn.cross_entropy import _fused, linear_cross_entropy


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


def test_on_a_cpu_it_is_pytorchs_own() -> None:
    x, table, bias, labels = _case(torch.float32)
    wanted = F.cross_entropy(F.linear(x, table, bias), labels, reduction="sum")
    assert torch.equal(linear_cross_entropy(x, table, bias, labels), wanted)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the kernel runs on a GPU")
def test_the_kernel_equals_the_definition() -> None:
    torch.manual_seed(0)
    labels = torch.randint(0, 30_000, (300,), device="cuda")
    labels[::7] = cross_entropy.IGNORE
    logits = torch.randn(300, 30_016, device="cuda") * 3
    logits[:, 30_000:] = -torch.inf
    ours, theirs = logits.clone(), logits.clone()
    found, wanted = cross_entropy._softmax_gradient(ours, labels), cross_entropy.softmax_gradient(theirs, labels)
    assert torch.allclose(found, wanted, rtol=1e-5)
    assert torch.allclose(ours, theirs, atol=1e-6)
