"""How attention is computed: softmax(Q Kᵀ / √d + bias) V, several ways with one result.

- `eager` is the definition. It alone gives the maps.
- `sdpa` is PyTorch's fused kernel, for padded batches on any device.
- `varlen` runs over rows that stand end to end, without padding; a kernel of its own on CUDA in half precision.
- `near` is `sdpa` where one sees a window only.

All are tested equal to `eager`. `causal` lets every place look at itself and what stands before it; the places that ask
are then all places. Rows are padded at their end, so a real place never sees padding, and no mask is needed beside it.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sesame.nn.dropout import dropout as drop

LONG = 4  # windows from which on a row is cut into blocks


def eager(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    rate: float = 0.0,
    causal: bool = False,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Heads in, heads and maps out. Shape: q (B, H, Lq, d); k, v (B, H, L, d); mask broadcasts to (B, H, Lq, L).

    A mask is True where one may look, or the numbers that are added to the scores. `scale` stands for 1 / √d.
    """
    scores = (q * (scale or 1 / math.sqrt(q.shape[-1]))) @ k.transpose(-1, -2)  # the queries are fewer than the scores
    if causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    elif mask is not None:
        scores = scores + mask
    maps = scores.softmax(-1)
    return drop(maps, rate, rate > 0) @ v, maps


def sdpa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    rate: float = 0.0,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    if rate > 0 and q.device.type == "cpu":  # the fused CPU kernel has no dropout and falls back to a slow one
        return eager(q, k, v, mask, rate, causal, scale)[0]
    seen = None if causal else mask
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen, dropout_p=rate, is_causal=causal, scale=scale)


def chosen_core(device: torch.device, rate: float) -> str:
    """Which of them `sdpa` comes down to in training, to be said once at the start."""
    return "eager" if rate > 0 and device.type == "cpu" else "sdpa"


@dataclass(frozen=True)
class EndToEnd:
    """Rows without padding: where each begins, among the tokens and among the places that ask."""

    offsets: Tensor  # (R+1,) int32
    longest: int
    asking: Tensor  # (R+1,) int32
    most: int  # no row asks at more places
    causal: bool = False
    window: int = -1  # how far one looks to each side; then all places ask. -1: as far as the row goes


def band(length: int, window: int, device: torch.device, real: Tensor | None = None) -> Tensor:
    """Who is near whom: |i - j| <= window, and j is real. Shape: (L, L), with `real` (B, 1, 1, L) it is (B, 1, L, L).

    Padding sees itself: a place that sees nothing is no number on some devices, and spreads.
    """
    at = torch.arange(length, device=device)
    far = (at[:, None] - at[None, :]).abs()
    return far <= window if real is None else (far <= window) & real | (far == 0)


def near(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, window: int, rate: float = 0.0) -> Tensor:
    """`sdpa` for places that see `window` others to each side. Shape: q, k, v (B, H, L, d); mask (B, 1, 1, L) or None.

    Long rows are cut into blocks as long as the window, each of which looks at three: the work grows with L, not with L².
    """
    rows, heads, length, size = q.shape
    if window == 0 or length < LONG * window:
        return sdpa(q, k, v, band(length, window, q.device, mask), rate)
    blocks = -(-length // window)
    fill = blocks * window - length

    def threes(x: Tensor) -> Tensor:
        """Each block with its neighbors. Shape: (B, H, L, d) -> (B blocks, H, 3 window, d)."""
        wide = F.pad(x, (0, 0, window, window + fill)).unfold(2, 3 * window, window)
        return wide.permute(0, 2, 1, 4, 3).flatten(0, 1)

    asked = F.pad(q, (0, 0, 0, fill)).reshape(rows, heads, blocks, window, size).transpose(1, 2).flatten(0, 1)
    real = torch.ones(rows, 1, length, 1, dtype=torch.bool, device=q.device) if mask is None else mask.transpose(2, 3)
    at = torch.arange(3 * window, device=q.device) - window
    far = (at[None, :] - at[window : 2 * window, None]).abs()  # (window, 3 window)
    seen = (far <= window) & threes(real).transpose(2, 3) | (far == 0)  # padding sees itself, as in `band`
    found = sdpa(asked, threes(k), threes(v), seen, rate).reshape(rows, blocks, heads, window, size)
    return found.transpose(1, 2).flatten(2, 3)[:, :, :length]


def varlen(q: Tensor, k: Tensor, v: Tensor, rows: EndToEnd, rate: float = 0.0) -> Tensor:
    """Shape: q (N, H, d); k, v (T, H, d) -> (N, H, d)."""
    if not fused_varlen(q):
        return _varlen_padded(q, k, v, rows, rate)
    if rate > 0 or rows.causal or rows.window >= 0:  # what `varlen_attn` calls, which has no dropout of its own
        sides = {"window_size_left": rows.window, "window_size_right": rows.window} if rows.window >= 0 else {}
        found = torch.ops.aten._flash_attention_forward(
            q, k, v, rows.asking, rows.offsets, rows.most, rows.longest, rate, rows.causal, False, **sides
        )[0]
    else:
        from torch.nn.attention.varlen import varlen_attn

        found = varlen_attn(q, k, v, rows.asking, rows.offsets, rows.most, rows.longest)
    assert isinstance(found, Tensor)
    return found


def fused_varlen(q: Tensor) -> bool:
    return q.device.type == "cuda" and q.dtype in (torch.bfloat16, torch.float16)


def _varlen_padded(q: Tensor, k: Tensor, v: Tensor, rows: EndToEnd, rate: float) -> Tensor:
    """The same where there is no kernel for it: pad, attend, unpad."""
    asked, real = _real(rows.asking, rows.most), _real(rows.offsets, rows.longest)

    def pad(x: Tensor, where: Tensor) -> Tensor:
        out = x.new_zeros(*where.shape, *x.shape[1:])
        out[where] = x
        return out.transpose(1, 2)

    heads = (pad(q, asked), pad(k, real), pad(v, real))
    mask = real[:, None, None, :]
    if rows.window >= 0:
        return near(*heads, mask, rows.window, rate).transpose(1, 2)[asked]
    return sdpa(*heads, mask, rate, rows.causal).transpose(1, 2)[asked]


def _real(offsets: Tensor, longest: int) -> Tensor:
    lengths = (offsets[1:] - offsets[:-1]).long()
    return torch.arange(longest, device=offsets.device)[None, :] < lengths[:, None]
