"""A copy of the model in bf16 that computes, beside the fp32 model that keeps the weights.

    shadow = round(weights);  gradients of the shadow are added to the weights' own in fp32;  the optimiser moves the weights

Relations: autocast rounds the matrices anew in every pass and keeps norms and the residual stream in fp32, which moves
twice the bytes. Here the whole pass is bf16 (sums inside norms, softmax and losses are fp32 in the kernels); what must be
exact, the weights and the optimiser's memory, stays in fp32 in the one model that is saved, evaluated and resumed.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn


class Shadow:
    """Call it in the place of `model`; `gather` after every backward pass, `refresh` after every change of the weights."""

    def __init__(
        self, model: nn.Module, dress: Callable[[nn.Module], Callable[..., Any]] = lambda model: model
    ) -> None:
        """`dress` is what is done to the copy before it runs: compilation."""
        self.copy = deepcopy(model).to(torch.bfloat16)
        self.pairs = list(zip(model.parameters(), self.copy.parameters(), strict=True))
        self.source = model
        self.call = dress(self.copy)

    def __call__(self, batch: Any) -> Any:
        self.mirror()
        with torch.autocast(self.pairs[0][0].device.type, enabled=False):
            return self.call(batch)

    def mirror(self) -> None:
        """Train what the model trains: it may have been told since to evaluate, or to unfreeze a layer."""
        self.copy.train(self.source.training)
        for owner, copy in self.pairs:
            if owner.requires_grad != copy.requires_grad:
                copy.requires_grad_(owner.requires_grad)

    @torch.no_grad()
    def gather(self) -> None:
        """Add the copy's gradients to those of the weights."""
        fresh: list[tuple[Tensor, Tensor]] = []
        more: list[tuple[Tensor, Tensor]] = []
        for owner, copy in self.pairs:
            if copy.grad is None:
                continue
            if owner.grad is None:
                owner.grad = torch.empty_like(owner)
                fresh.append((owner.grad, copy.grad))
            else:
                more.append((owner.grad, copy.grad))
            copy.grad = None
        if fresh:
            torch._foreach_copy_([into for into, _ in fresh], [found for _, found in fresh])
        if more:
            torch._foreach_add_([into for into, _ in more], [found.to(into.dtype) for into, found in more])

    @torch.no_grad()
    def refresh(self) -> None:
        """Round the weights anew."""
        torch._foreach_copy_([copy for _, copy in self.pairs], [owner for owner, _ in self.pairs])
