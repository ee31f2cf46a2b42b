"""The bf16 copy computes, the fp32 model learns."""

import torch
from torch import nn

from sesame.train.shadow import Shadow


def _model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4), nn.LayerNorm(4))


def test_gradients_add_up_in_fp32_and_are_those_of_the_rounded_model() -> None:
    model = _model()
    shadow = Shadow(model)
    batches = [torch.randn(5, 8, dtype=torch.bfloat16) for _ in range(3)]
    for batch in batches:
        shadow(batch).float().square().sum().backward()
        shadow.gather()
    rounded = _model().to(torch.bfloat16)
    wanted = [torch.zeros_like(p) for p in model.parameters()]
    for batch in batches:
        found = torch.autograd.grad(rounded(batch).float().square().sum(), list(rounded.parameters()))
        wanted = [total + part.float() for total, part in zip(wanted, found, strict=True)]
    for p, total in zip(model.parameters(), wanted, strict=True):
        assert p.grad is not None
        assert p.grad.dtype == torch.float32
        assert torch.equal(p.grad, total)
    assert all(p.grad is None for p in shadow.copy.parameters())


def test_steps_too_small_for_bf16_are_not_lost() -> None:
    model = _model()
    shadow = Shadow(model)
    before = [p.detach().clone() for p in model.parameters()]
    with torch.no_grad():
        for _ in range(100):  # each a thousandth of what bf16 can tell apart
            for p in model.parameters():
                p.mul_(1 + 2**-17)
            shadow.refresh()
    for p, old, copy in zip(model.parameters(), before, shadow.copy.parameters(), strict=True):
        assert torch.allclose(p, old * (1 + 2**-17) ** 100, rtol=1e-5)
        assert torch.equal(copy, p.to(torch.bfloat16))


def test_a_weight_without_gradient_keeps_none_and_the_mode_follows() -> None:
    model = nn.ModuleDict({"used": nn.Linear(3, 3), "idle": nn.Linear(3, 3)})
    shadow = Shadow(model, lambda copy: copy["used"])  # type: ignore[index, arg-type, return-value]
    model.eval()
    shadow(torch.ones(1, 3, dtype=torch.bfloat16)).sum().backward()
    shadow.gather()
    assert not shadow.copy.training
    assert model["idle"].weight.grad is None
    assert model["used"].weight.grad is not None
