"""Softmax cross-entropy on top of a linear layer, in one operation that keeps no logits.

    z = x Wᵀ + b;  total = Σ_n logsumexp(z_n) - z_n[label];  with g = softmax(z) - onehot(label):
    dx = g W,  dW = gᵀ x,  db = Σ_n g_n

A vocabulary of 30,000 makes the logits the largest array of a small model. They are read once, and g is written over them
in the forward pass already; the backward pass only scales three small arrays. On a GPU one kernel of our own does the part
between the matrix products; the formula in plain PyTorch serves elsewhere, and is what the kernel is tested against.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sesame.nn.device import has_triton

IGNORE = -100
CHUNK = 1 << 30  # logits at a time: more of them are computed in several rounds


def linear_cross_entropy(x: Tensor, table: Tensor, bias: Tensor, labels: Tensor) -> Tensor:
    """The summed loss, IGNORE left out. Shape: x (N, D), table (V, D), bias (V,), labels (N,) -> scalar in fp32."""
    if x.dtype == table.dtype == torch.bfloat16 and x.device.type == "cuda" and torch.is_grad_enabled():
        total: Tensor = _fused(x, table, bias, labels)[0]
        return total
    logits = F.linear(x, table, bias)
    return F.cross_entropy(
        logits.float() if logits.dtype == torch.bfloat16 else logits, labels, reduction="sum", ignore_index=IGNORE
    )


@torch.library.custom_op("sesame::linear_cross_entropy", mutates_args=())
def _fused(x: Tensor, table: Tensor, bias: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The loss, and its gradients to x, table and bias."""
    dx, dtable = torch.empty_like(x), torch.zeros_like(table, dtype=torch.promote_types(table.dtype, torch.float32))
    dbias = torch.zeros_like(bias, dtype=dtable.dtype)
    total = torch.zeros((), dtype=dtable.dtype, device=x.device)
    rows = max(1, CHUNK // table.shape[0])
    for start in range(0, x.shape[0], rows):
        part = x[start : start + rows]
        logits = torch.addmm(bias, part, table.t())
        total += _softmax_gradient(logits, labels[start : start + rows])
        torch.mm(logits, table, out=dx[start : start + rows])
        dtable += logits.t() @ part
        dbias += logits.sum(0, dtype=dbias.dtype)
    return total, dx, dtable.to(table.dtype), dbias.to(bias.dtype)


@_fused.register_fake
def _(x: Tensor, table: Tensor, bias: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    total = x.new_empty((), dtype=torch.promote_types(table.dtype, torch.float32))
    return total, torch.empty_like(x), torch.empty_like(table), torch.empty_like(bias)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*output[1:])


def _scale(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor, None]:
    dx, dtable, dbias = ctx.saved_tensors
    return dx * grad, dtable * grad, dbias * grad, None


_fused.register_autograd(_scale, setup_context=_keep)


def _softmax_gradient(logits: Tensor, labels: Tensor) -> Tensor:
    """Write softmax - onehot over the logits (zeros where there is no label); give the summed loss."""
    if not has_triton(logits.device):
        return softmax_gradient(logits, labels)
    from sesame.nn.kernels import softmax_gradient_kernel

    losses = torch.empty(logits.shape[0], dtype=torch.float32, device=logits.device)
    softmax_gradient_kernel[(logits.shape[0],)](
        logits, labels, losses, logits.stride(0), logits.shape[1], BLOCK=8192, num_warps=8
    )
    return losses.sum()


def softmax_gradient(logits: Tensor, labels: Tensor) -> Tensor:
    """The definition."""
    real = labels != IGNORE
    at = labels.clamp(min=0)[:, None]
    exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
    norm = exact.logsumexp(1, keepdim=True)
    losses = torch.where(real, (norm - exact.gather(1, at))[:, 0], 0.0)
    found = (exact - norm).exp()
    found.scatter_add_(1, at, torch.full_like(norm, -1.0))
    logits.copy_(found * real[:, None])
    return losses.sum()
