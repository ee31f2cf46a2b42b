"""Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/) for many matrices at once.

    B <- B + (1 - μ)(G - B);   U = G + μ(B - G);   W <- (1 - rate · decay) W - rate · 0.2 √max(rows, columns) · orthogonal(U)
    orthogonal: X = U / |U|, then five times  A = X Xᵀ,  X <- a X + (b A + c A²) X,  which pulls all singular values towards 1

Relations: the rule, its numbers and its memory are those of `torch.optim.Muon`. That one turns a matrix at a time, some
thirty small products each; on a GPU a small model then waits for their starts as long as it computes. Here all matrices
of one shape are turned in one product. Tested equal to it.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class BatchedMuon(torch.optim.Muon):
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        for group in self.param_groups:
            shapes: dict[torch.Size, list[Tensor]] = {}
            for p in group["params"]:
                if p.grad is not None:
                    shapes.setdefault(p.shape, []).append(p)
            for members in shapes.values():
                self._move(members, group)

    def _move(self, members: list[Tensor], group: dict[str, Any]) -> None:
        """One step of matrices that share a shape."""
        for p in members:
            if "momentum_buffer" not in self.state[p]:
                self.state[p]["momentum_buffer"] = torch.zeros_like(p)
        momenta = [self.state[p]["momentum_buffer"] for p in members]
        grads = [p.grad for p in members if p.grad is not None]
        torch._foreach_lerp_(momenta, grads, 1 - group["momentum"])
        updates = torch.stack(torch._foreach_lerp(grads, momenta, group["momentum"]))
        turned = orthogonal(updates, group["ns_coefficients"], group["ns_steps"], group["eps"]).to(updates.dtype)
        rate = group["lr"] * 0.2 * math.sqrt(max(members[0].shape))  # a number, or a tensor in a recorded step
        torch._foreach_mul_(members, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_sub_(members, list((turned * rate).unbind()))


def orthogonal(x: Tensor, numbers: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """Shape: (N, A, B) -> (N, A, B), in bf16."""
    a, b, c = numbers
    tall = x.shape[1] > x.shape[2]
    x = (x.mT if tall else x).to(torch.bfloat16)
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x
