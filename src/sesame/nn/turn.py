"""Queries, keys and values out of one product, queries and keys turned by the angles of their positions (`positions.rotate`).

    (left, right) of a head -> (left cos - right sin, right cos + left sin);   its gradient: the same with -sin

On a GPU each part is written by one kernel of our own, and its gradient straight into its place in that of the product: what
a compiler makes of cutting, turning and joining takes four times as long.
"""

from typing import Any

import torch
from torch import Tensor

from sesame.nn.device import has_triton
from sesame.nn.positions import rotate

ROWS, COLUMNS = 8, 256  # of a tile
Rotary = tuple[Tensor, Tensor]  # cosines and sines, broadcasting to (..., 1, d)


def cut_and_turn(x: Tensor, parts: int, turned: int, size: int, rotary: Rotary | None) -> list[Tensor]:
    """The parts of a row in heads of `size`, the first `turned` of them turned. Shape: (..., P H d) -> P of (..., H, d)."""
    heads = (*x.shape[:-1], x.shape[-1] // (parts * size), size)
    if rotary is not None and x.dtype == torch.bfloat16 and x.device.type == "cuda" and torch.is_grad_enabled():
        cos, sin = (angle.reshape(-1, size) for angle in rotary)
        return [part.view(heads) for part in _turn(x, cos, sin, parts, turned)]
    cut = [part.reshape(heads) for part in x.chunk(parts, dim=-1)]
    if rotary is None:
        return cut
    return [rotate(part, *rotary) if number < turned else part for number, part in enumerate(cut)]


@torch.library.custom_op("sesame::turn", mutates_args=())
def _turn(x: Tensor, cos: Tensor, sin: Tensor, parts: int, turned: int) -> list[Tensor]:
    """`cos` and `sin` are (M, d): row n of x has the angles n mod M."""
    flat = x.reshape(-1, x.shape[-1])
    found = []
    for number, part in enumerate(flat.chunk(parts, dim=-1)):
        out = part.new_empty(part.shape)
        _one(part, out, cos, sin, 1.0 if number < turned else 0.0)
        found.append(out.view(*x.shape[:-1], out.shape[-1]))
    return found


@_turn.register_fake
def _(x: Tensor, cos: Tensor, sin: Tensor, parts: int, turned: int) -> list[Tensor]:
    return [x.new_empty(*x.shape[:-1], x.shape[-1] // parts) for _ in range(parts)]


@torch.library.custom_op("sesame::turn_gradient", mutates_args=())
def _turn_gradient(grads: list[Tensor], cos: Tensor, sin: Tensor, turned: int) -> Tensor:
    width = grads[0].shape[-1]
    found = grads[0].new_empty(*grads[0].shape[:-1], len(grads) * width)
    outs = found.view(-1, len(grads) * width).chunk(len(grads), dim=-1)
    for number, (grad, out) in enumerate(zip(grads, outs, strict=True)):
        _one(grad.reshape(-1, width), out, cos, sin, -1.0 if number < turned else 0.0)
    return found


@_turn_gradient.register_fake
def _(grads: list[Tensor], cos: Tensor, sin: Tensor, turned: int) -> Tensor:
    return grads[0].new_empty(*grads[0].shape[:-1], len(grads) * grads[0].shape[-1])


def _one(part: Tensor, out: Tensor, cos: Tensor, sin: Tensor, sign: float) -> None:
    """Rows of heads turned forwards (sign 1), backwards (-1) or copied (0). Shape: (N, H d), whose last stride is 1."""
    size = cos.shape[-1]
    if not has_triton(part.device):
        rows, heads = part.shape[0], part.view(part.shape[0], part.shape[1] // size, size)
        angles = [angle.repeat(rows // len(angle), 1)[:, None] for angle in (cos, sign * sin)]
        out.copy_(rotate(heads, *angles).reshape(part.shape) if sign else part)
        return
    from sesame.nn.kernels import turn_kernel

    rows, columns = part.shape
    grid = (-(-rows // ROWS), -(-columns // COLUMNS))
    strides = part.stride(0), out.stride(0)
    turn_kernel[grid](
        part,
        out,
        cos,
        sin,
        rows,
        columns,
        len(cos),
        *strides,
        sign,
        D=size,
        TURN=sign != 0,
        R=ROWS,
        C=COLUMNS,
        num_warps=4,
    )


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    _, cos, sin, _, ctx.turned = inputs
    ctx.save_for_backward(cos, sin)


def _backward(ctx: Any, grads: list[Tensor]) -> tuple[Tensor | None, ...]:
    return _turn_gradient(grads, *ctx.saved_tensors, ctx.turned), None, None, None, None


_turn.register_autograd(_backward, setup_context=_keep)
