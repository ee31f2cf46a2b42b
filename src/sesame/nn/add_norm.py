"""How a half of a post-norm block ends (Vaswani et al. 2017): LN(kept + dropout(x Wᵀ + b)).

On a GPU, in training with dropout, all behind the matrix product is one kernel each way. It draws its luck from a hash of
(seed, place), so no mask is kept; and the backward pass makes the gradients of bias, gain and shift in the same reading:

    z = kept + m (x Wᵀ + b) / (1 - p);   y = g (z - mean) / deviation + s
    dz = (g dy - mean(g dy) - ẑ mean(ẑ g dy)) / deviation;  dx = m dz / (1 - p);  db = Σ dx;  dg = Σ ẑ dy;  ds = Σ dy

Unusual: the kernel of torch.compile for this is exact too, but spends two thirds of its time on random numbers.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sesame.nn.device import has_triton
from sesame.nn.dropout import dropout

MOST, LEAST = 1024, 128  # programs that share the rows of a backward pass


def add_norm(linear: nn.Linear, x: Tensor, kept: Tensor, rate: float, norm: nn.Module) -> Tensor:
    """Shape: x (..., inner), kept (..., D) -> (..., D). `rate` is 0 outside of training."""
    if (
        rate > 0
        and x.dtype == kept.dtype == torch.bfloat16
        and x.device.type == "cuda"
        and linear.bias is not None
        and isinstance(norm, nn.LayerNorm)
        and norm.bias is not None
    ):
        given = F.linear(x, linear.weight, linear.bias.detach())
        seed = torch.randint(1 << 62, (1,), device=x.device)
        found: Tensor = _add_norm(given, linear.bias, kept, norm.weight, norm.bias, seed, rate, norm.eps)[0]
        return found
    return norm(kept + dropout(linear(x), rate, rate > 0))  # type: ignore[no-any-return]


@torch.library.custom_op("sesame::add_norm", mutates_args=())
def _add_norm(
    x: Tensor, bias: Tensor, kept: Tensor, gain: Tensor, shift: Tensor, seed: Tensor, rate: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """y, z, and for each row mean and 1 / deviation. `x` holds the bias already; it is named here for its gradient."""
    columns = x.shape[-1]
    if not has_triton(x.device):
        exact = torch.promote_types(x.dtype, torch.float32)
        z = (kept + torch.where(lucky(seed, x, rate), x / (1 - rate), 0.0)).to(x.dtype)
        centred = z.to(exact) - z.to(exact).mean(-1, keepdim=True)
        scale = (centred.square().mean(-1, keepdim=True) + eps).rsqrt()
        stats = torch.cat([z.to(exact).mean(-1, keepdim=True), scale], -1).view(-1, 2)
        return (centred * scale * gain + shift).to(x.dtype), z, stats
    from sesame.nn.kernels import add_norm_kernel

    x, kept = x.contiguous(), kept.contiguous()
    rows = x.numel() // columns
    y, z = torch.empty_like(x), torch.empty_like(x)
    stats = torch.empty(rows, 2, dtype=torch.float32, device=x.device)
    wide, at_once, warps = _tile(columns)
    add_norm_kernel[(-(-rows // at_once),)](
        x, kept, gain, shift, seed, y, z, stats, rows, columns, round(rate * 2**24), 1 / (1 - rate), eps,
        R=at_once, C=wide, num_warps=warps,
    )  # fmt: skip
    return y, z, stats


@_add_norm.register_fake
def _(
    x: Tensor, bias: Tensor, kept: Tensor, gain: Tensor, shift: Tensor, seed: Tensor, rate: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    stats = x.new_empty(x.numel() // x.shape[-1], 2, dtype=torch.promote_types(x.dtype, torch.float32))
    return x.new_empty(x.shape), x.new_empty(x.shape), stats


@torch.library.custom_op("sesame::add_norm_gradient", mutates_args=())
def _gradient(
    dy: Tensor, z: Tensor, stats: Tensor, gain: Tensor, seed: Tensor, rate: float
) -> tuple[Tensor, Tensor, Tensor]:
    """dx, dz, and the sums over rows: of dx, of ẑ dy, of dy."""
    columns = z.shape[-1]
    rows = z.numel() // columns
    if not has_triton(z.device):
        mean, scale = (part.view(*z.shape[:-1], 1) for part in stats.unbind(1))
        unit, wide = (z.to(stats.dtype) - mean) * scale, dy.to(stats.dtype)
        pull = wide * gain
        dz = (pull - pull.mean(-1, keepdim=True) - unit * (unit * pull).mean(-1, keepdim=True)) * scale
        dx = torch.where(lucky(seed, z, rate), dz / (1 - rate), 0.0)
        sums = torch.stack([part.reshape(rows, columns).sum(0) for part in (dx, unit * wide, wide)])
        return dx.to(z.dtype), dz.to(z.dtype), sums.to(z.dtype)
    from sesame.nn.kernels import add_norm_gradient_kernel

    dy = dy.contiguous()
    dx, dz = torch.empty_like(z), torch.empty_like(z)
    wide_, at_once, warps = _tile(columns)
    span = -(-max(1, rows) // (min(MOST, max(LEAST, rows // 16)) * at_once)) * at_once  # few parts, summed up later
    parts = -(-rows // span)
    partial = torch.empty(3, parts, columns, dtype=torch.float32, device=z.device)
    add_norm_gradient_kernel[(parts,)](
        dy, z, stats, gain, seed, dx, dz, partial, rows, columns, parts, span, round(rate * 2**24), 1 / (1 - rate),
        R=at_once, C=wide_, num_warps=warps,
    )  # fmt: skip
    return dx, dz, partial.sum(1).to(z.dtype)


@_gradient.register_fake
def _(dy: Tensor, z: Tensor, stats: Tensor, gain: Tensor, seed: Tensor, rate: float) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(z), torch.empty_like(z), z.new_empty(3, z.shape[-1])


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    _, _, _, gain, _, seed, ctx.rate, _ = inputs
    ctx.save_for_backward(output[1], output[2], gain, seed)


def _backward(ctx: Any, dy: Tensor, *_: Any) -> Any:
    z, stats, gain, seed = ctx.saved_tensors
    dx, dz, sums = _gradient(dy, z, stats, gain, seed, ctx.rate)
    bias, gained, shifted = sums.unbind(0)
    return dx, bias, dz, gained, shifted, None, None, None


_add_norm.register_autograd(_backward, setup_context=_keep)


def _tile(columns: int) -> tuple[int, int, int]:
    """Columns (a power of two), rows at a time, and warps: eight numbers for each thread."""
    wide = 1 << (columns - 1).bit_length()
    at_once = max(1, 1024 // wide)
    return wide, at_once, min(16, max(1, wide * at_once // 256))


def lucky(seed: Tensor, like: Tensor, rate: float) -> Tensor:
    """The definition of the luck: which places are kept, by a hash (lowbias32 of Wellons 2018) of seed and place."""
    word = (1 << 32) - 1

    def mix(h: Tensor, salt: Tensor | int = 0) -> Tensor:
        h = ((h ^ (h >> 16)) * 0x7FEB352D) & word
        h = (((h ^ (h >> 15)) ^ salt) * 0x846CA68B) & word
        return h ^ (h >> 16)

    low = mix(seed & word)
    high = mix((seed >> 32) ^ low)
    h = mix((torch.arange(like.numel(), device=like.device) * 0x9E3779B1 + low) & word, high)
    return ((h >> 8) >= round(rate * 2**24)).view(like.shape)
