"""How attention is computed: softmax(Q Kᵀ / √d + bias) V, three ways with one result.

- `eager` is the definition. It alone gives the maps.
- `sdpa` is PyTorch's fused kernel, for padded batches on any device.
- `varlen` runs over packed rows without padding (CUDA, half precision, no attention dropout).

All are tested equal to `eager`.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from sesame.nn.dropout import dropout as drop


def eager(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, rate: float = 0.0) -> tuple[Tensor, Tensor]:
    """Heads in, heads and maps out. Shape: q (B, H, Lq, d); k, v (B, H, L, d); mask broadcasts to (B, H, Lq, L)."""
    scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(-1, -2)  # the queries are fewer numbers than the scores
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    maps = scores.softmax(-1)
    return drop(maps, rate, rate > 0) @ v, maps


def sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, rate: float = 0.0) -> Tensor:
    if rate > 0 and q.device.type == "cpu":
        return eager(q, k, v, mask, rate)[0]  # the fused CPU kernel has no dropout and falls back to something slower
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=rate)


def chosen_core(device: torch.device, rate: float) -> str:
    """Which of them `sdpa` comes down to in training, to be said once at the start."""
    return "eager" if rate > 0 and device.type == "cpu" else "sdpa"


def varlen(q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, longest: int) -> Tensor:
    """Rows end to end. Shape: q, k, v (T, H, d); offsets (B+1,)."""
    if fused_varlen(q):
        from torch.nn.attention.varlen import varlen_attn

        found = varlen_attn(q, k, v, offsets, offsets, longest, longest)
        assert isinstance(found, Tensor)
        return found
    return _varlen_padded(q, k, v, offsets, longest)


def fused_varlen(q: Tensor) -> bool:
    return q.device.type == "cuda" and q.dtype in (torch.bfloat16, torch.float16)


def _varlen_padded(q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, longest: int) -> Tensor:
    """The same where there is no kernel for it: pad, attend, unpad."""
    lengths = (offsets[1:] - offsets[:-1]).long()
    real = torch.arange(longest, device=q.device)[None, :] < lengths[:, None]

    def pad(x: Tensor) -> Tensor:
        out = x.new_zeros(len(lengths), longest, *x.shape[1:])
        out[real] = x
        return out.transpose(1, 2)

    return sdpa(pad(q), pad(k), pad(v), real[:, None, None, :]).transpose(1, 2)[real]
