"""GELU after a linear layer (Hendrycks & Gimpel 2016): x Φ(x), with Φ the normal distribution function.

The middle of a feed-forward layer is the widest array of a Transformer, and memory traffic, not arithmetic, decides its cost.
On a GPU the backward pass therefore makes the gradient and its sum over rows, which is the bias's gradient, in one reading:

    h = x Wᵀ + b;  a = h Φ(h);  dh = da (Φ(h) + h φ(h));  db = Σ_rows dh
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sesame.nn.device import has_triton

MOST, LEAST = 768, 64  # programs that share the rows of a backward pass, for every 256 columns


def linear_gelu(linear: nn.Linear, x: Tensor) -> Tensor:
    """GELU of a linear layer. Shape: (..., D) -> (..., inner)."""
    if x.dtype == torch.bfloat16 and x.device.type == "cuda" and linear.bias is not None and torch.is_grad_enabled():
        # The bias is added inside the matrix product; its gradient comes with the activation's.
        found: Tensor = _gelu(F.linear(x, linear.weight, linear.bias.detach()), linear.bias)
        return found
    return F.gelu(linear(x))


@torch.library.custom_op("sesame::gelu", mutates_args=())
def _gelu(h: Tensor, bias: Tensor) -> Tensor:
    """`h` holds the bias already; it is named here for its gradient."""
    if not has_triton(h.device):
        return F.gelu(h)
    from sesame.nn.kernels import gelu_kernel

    found = torch.empty_like(h)
    gelu_kernel[(-(-h.numel() // 8192),)](h, found, h.numel(), BLOCK=8192, num_warps=8)
    return found


@_gelu.register_fake
def _(h: Tensor, bias: Tensor) -> Tensor:
    return torch.empty_like(h)


@torch.library.custom_op("sesame::gelu_gradient", mutates_args=())
def _gelu_gradient(h: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient to h, and its sum over all rows."""
    columns = h.shape[-1]
    if not has_triton(h.device):
        below = torch.special.ndtr(h)
        found = grad * (below + h * torch.exp(-0.5 * h * h) / math.sqrt(2 * math.pi))
        return found, found.reshape(-1, columns).sum(0)
    from sesame.nn.kernels import gelu_gradient_kernel

    h, grad = h.contiguous(), grad.contiguous()
    rows = h.numel() // columns
    span = -(-max(1, rows) // (4 * min(MOST, max(LEAST, rows // 32)))) * 4  # few parts: they are summed up later
    found, parts = torch.empty_like(h), -(-rows // span)
    sums = torch.empty(parts, columns, dtype=torch.float32, device=h.device)
    gelu_gradient_kernel[(parts, -(-columns // 256))](
        h, grad, found, sums, rows, columns, span, R=4, C=256, num_warps=2
    )
    return found, sums.sum(0).to(h.dtype)


@_gelu_gradient.register_fake
def _(h: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(h), h.new_empty(h.shape[-1])


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0])


def _backward(ctx: Any, grad: Tensor) -> Any:
    return _gelu_gradient(ctx.saved_tensors[0], grad)


_gelu.register_autograd(_backward, setup_context=_keep)
