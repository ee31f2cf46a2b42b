"""LAMB (You et al. 2019, https://arxiv.org/abs/1904.00962): Adam whose step is as long as the weights it moves.

    m <- β₁ m + (1 - β₁) g;   v <- β₂ v + (1 - β₂) g²
    u = (m / (1 - β₁ᵗ)) / (√(v / (1 - β₂ᵗ)) + ε) + decay · w
    w <- w - rate · (|w| / |u|) · u          for each tensor; the ratio is 1 where a norm is 0

Biases and norms neither decay nor follow the ratio, as in the authors' code. That of ALBERT leaves the two corrections by t
out, where the paper and its algorithm 2 have them; the ratio takes away most of the difference, the warm-up the rest.
Relations: PyTorch has none. Batches of tens of thousands keep training at rates that the ratio makes comparable between
layers. Queries, keys and values are one tensor here, so they share one ratio; the authors' three have one each.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


class Lamb(torch.optim.Optimizer):
    """Groups carry `weight_decay` and `adapt`: whether the length of the weights sets the length of the step."""

    def __init__(self, groups: Iterable[dict[str, Any]], lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0, "adapt": True})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        for group in self.param_groups:
            members = [p for p in group["params"] if p.grad is not None]
            if members:
                self._move(members, group)

    def _move(self, members: list[Tensor], group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        kept = [self._memory(p) for p in members]
        grads = [p.grad for p in members if p.grad is not None]
        means, squares = [one["exp_avg"] for one in kept], [one["exp_avg_sq"] for one in kept]
        steps = [one["step"] for one in kept]
        torch._foreach_add_(steps, 1.0)
        torch._foreach_lerp_(means, grads, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, grads, grads, 1 - beta2)
        # No number comes back from the device: corrections and ratios stay tensors, one for each weight.
        passed = torch.stack(steps).double()
        first, second = 1 / (1 - beta1**passed), 1 / (1 - beta2**passed).sqrt()
        below = torch._foreach_sqrt(squares)
        torch._foreach_mul_(below, _each(second, members))
        torch._foreach_add_(below, group["eps"])
        updates = list(torch._foreach_mul(means, _each(first, members)))
        torch._foreach_div_(updates, below)
        if group["weight_decay"]:
            torch._foreach_add_(updates, members, alpha=group["weight_decay"])
        if group["adapt"]:
            torch._foreach_mul_(updates, _ratios(members, updates))
        torch._foreach_add_(members, updates, alpha=-group["lr"])

    def _memory(self, p: Tensor) -> dict[str, Any]:
        kept: dict[str, Any] = self.state[p]
        if not kept:
            kept["step"] = torch.zeros((), device=p.device)
            kept["exp_avg"], kept["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
        return kept


def _ratios(weights: list[Tensor], updates: list[Tensor]) -> list[Tensor]:
    """|w| / |u| of each tensor; 1 where one of them is 0."""
    length, step = (torch.stack(torch._foreach_norm(tensors)) for tensors in (weights, updates))
    return list(torch.where((length > 0) & (step > 0), length / step, 1.0).unbind())


def _each(numbers: Tensor, like: list[Tensor]) -> list[Tensor]:
    """One number for each tensor, in its precision."""
    return list(numbers.to(like[0].dtype).unbind())
