"""Dropout that does not dominate a CPU step.

PyTorch draws one float a number; on a CPU that costs more than the matrix products beside it. Here one 64-bit draw serves
four numbers, with the probability rounded to 1/65536. On other devices this is plain dropout.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Dropout(nn.Module):
    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.rate, self.training)

    def now(self) -> float:
        """The rate in training, 0 else."""
        return self.rate if self.training else 0.0

    def extra_repr(self) -> str:
        return f"{self.rate}"


def dropout(x: Tensor, rate: float, training: bool) -> Tensor:
    if not training or rate == 0.0:
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, rate)
    return _SixteenBits.apply(x, rate)  # type: ignore[no-any-return, no-untyped-call]


class _SixteenBits(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
        draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        bits = draws.view(torch.int16)[: x.numel()].view(x.shape)
        mask = torch.empty(x.shape, dtype=x.dtype)  # numbers, not booleans: products of mixed types are slow
        torch.ge(bits, round(rate * 65536) - 32768, out=mask)
        mask.mul_(1.0 / (1.0 - rate))
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (mask,) = ctx.saved_tensors
        return grads[0] * mask, None
