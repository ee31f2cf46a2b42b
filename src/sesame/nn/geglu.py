"""The gate of a feed-forward layer (Shazeer 2020): h = (g, v), a = g Φ(g) v.

    dg = da v (Φ(g) + g φ(g));   dv = da g Φ(g)

On a GPU each way is one kernel of our own, which writes both halves of dh where they belong: what a compiler makes of cutting
h in two and joining its gradients takes three times as long.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sesame.nn.device import has_triton

ROWS, COLUMNS = 8, 256  # of a tile


def geglu(h: Tensor) -> Tensor:
    """Shape: (..., 2 inner) -> (..., inner)."""
    if h.dtype == torch.bfloat16 and h.device.type == "cuda" and torch.is_grad_enabled():
        found: Tensor = _geglu(h)
        return found
    gate, value = h.chunk(2, dim=-1)
    return F.gelu(gate) * value


@torch.library.custom_op("sesame::geglu", mutates_args=())
def _geglu(h: Tensor) -> Tensor:
    if not has_triton(h.device):
        gate, value = h.chunk(2, dim=-1)
        return F.gelu(gate) * value
    from sesame.nn.kernels import geglu_kernel

    h = h.contiguous()
    rows, columns, grid = _grid(h)
    found = h.new_empty(*h.shape[:-1], columns)
    geglu_kernel[grid](h, found, rows, columns, R=ROWS, C=COLUMNS, num_warps=4)
    return found


@_geglu.register_fake
def _(h: Tensor) -> Tensor:
    return h.new_empty(*h.shape[:-1], h.shape[-1] // 2)


@torch.library.custom_op("sesame::geglu_gradient", mutates_args=())
def _geglu_gradient(h: Tensor, grad: Tensor) -> Tensor:
    if not has_triton(h.device):
        gate, value = h.chunk(2, dim=-1)
        below = torch.special.ndtr(gate)
        slope = below + gate * torch.exp(-0.5 * gate * gate) / math.sqrt(2 * math.pi)
        return torch.cat([grad * value * slope, grad * gate * below], dim=-1)
    from sesame.nn.kernels import geglu_gradient_kernel

    h, grad = h.contiguous(), grad.contiguous()
    rows, columns, grid = _grid(h)
    found = torch.empty_like(h)
    geglu_gradient_kernel[grid](h, grad, found, rows, columns, R=ROWS, C=COLUMNS, num_warps=4)
    return found


@_geglu_gradient.register_fake
def _(h: Tensor, grad: Tensor) -> Tensor:
    return torch.empty_like(h, memory_format=torch.contiguous_format)


def _grid(h: Tensor) -> tuple[int, int, tuple[int, int]]:
    columns = h.shape[-1] // 2
    rows = h.numel() // (2 * columns)
    return rows, columns, (-(-rows // ROWS), -(-columns // COLUMNS))


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0])


def _backward(ctx: Any, grad: Tensor) -> Tensor:
    found: Tensor = _geglu_gradient(ctx.saved_tensors[0], grad)
    return found


_geglu.register_autograd(_backward, setup_context=_keep)
