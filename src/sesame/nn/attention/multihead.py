"""Multi-head self-attention (Vaswani et al. 2017): heads softmax(QKᵀ/√d)V side by side, times W_O.

Unusual here: Q, K and V come from one product, and the queries can be limited to the places whose answer is wanted (`only`):
the last layer of a masked language model needs no others.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sesame.nn.attention import core
from sesame.nn.dropout import Dropout
from sesame.nn.turn import Rotary, cut_and_turn


@dataclass(frozen=True)
class Rows:
    """What attention must know of the batch's layout."""

    mask: Tensor | None = None  # (B, 1 or H, 1 or L, L), True where one may look, or numbers to add to the scores
    ends: core.EndToEnd | None = None  # rows without padding
    causal: bool = False  # nobody looks ahead; then no mask is needed
    window: int = -1  # how far one looks to each side; -1: as far as the row goes
    rotary: Rotary | None = None  # cosines and sines, broadcasting to (B, L, 1, d) or (T, 1, d)


class SelfAttention(nn.Module):
    """Shape: (B, L, D), or without padding (T, D); with `only` (B, K) or (N,) the answer is (B, K, D) or (N, D).

    `size` is that of a head, D / H if 0; `scale` what scores are multiplied by, 1 / √size if None (T5: 1).
    """

    def __init__(
        self,
        width: int,
        heads: int,
        bias: bool,
        dropout: float,
        attention_dropout: float,
        size: int = 0,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        self.heads, self.size, self.rate, self.scale = heads, size or width // heads, attention_dropout, scale
        self.wide = self.heads * self.size
        self.qkv = nn.Linear(width, 3 * self.wide, bias=bias)
        self.out = nn.Linear(self.wide, width, bias=bias)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, rows: Rows, only: Tensor | None = None, maps: list[Tensor] | None = None) -> Tensor:
        return self.dropout(self.out(self.heads_of(x, rows, only, maps)))  # type: ignore[no-any-return]

    def heads_of(self, x: Tensor, rows: Rows, only: Tensor | None = None, maps: list[Tensor] | None = None) -> Tensor:
        """All heads side by side, before W_O."""
        q, k, v = self._project(x, rows, only)
        rate = self.rate if self.training else 0.0
        if rows.ends is not None:
            return core.varlen(q, k, v, rows.ends, rate).flatten(-2)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        if maps is not None:
            mask = rows.mask if rows.window < 0 else core.band(k.shape[2], rows.window, k.device, rows.mask)
            found, seen = core.eager(q, k, v, mask, rate, rows.causal, self.scale)
            maps.append(seen)
        elif rows.window >= 0:
            found = core.near(q, k, v, rows.mask, rows.window, rate)
        else:
            found = core.sdpa(q, k, v, rows.mask, rate, rows.causal, self.scale)
        return found.transpose(1, 2).flatten(-2)

    def go_on(self, x: Tensor, past: Tensor | None, rows: Rows) -> tuple[Tensor, Tensor]:
        """The same for tokens that follow others, whose keys and values are in `past` (B, M, 2 H d); gives all of them.

        The mask covers past and present, (B, 1 or H, L, M + L), so `rows.causal` has no say.
        """
        q, k, v = self._project(x, rows, None)
        present = torch.cat([k.flatten(-2), v.flatten(-2)], dim=-1)
        kept = present if past is None else torch.cat([past, present], dim=1)
        k, v = (self._split(part).transpose(1, 2) for part in kept.chunk(2, dim=-1))
        found = core.sdpa(q.transpose(1, 2), k, v, rows.mask, scale=self.scale)
        return self.out(found.transpose(1, 2).flatten(-2)), kept

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], self.heads, self.size)

    def _project(self, x: Tensor, rows: Rows, only: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each (..., H, d)."""
        if only is None:
            q, k, v = cut_and_turn(self.qkv(x), 3, 2, self.size, rows.rotary)
            return q, k, v
        width = self.wide
        weight, bias = self.qkv.weight, self.qkv.bias
        asked = nn.functional.linear(take(x, only), weight[:width], None if bias is None else bias[:width])
        others = nn.functional.linear(x, weight[width:], None if bias is None else bias[width:])
        [q] = cut_and_turn(asked, 1, 1, self.size, rows.rotary and _at(rows.rotary, only))
        k, v = cut_and_turn(others, 2, 1, self.size, rows.rotary)
        return q, k, v


def _at(rotary: Rotary, only: Tensor) -> Rotary:
    """The angles of these places."""
    cos, sin = rotary
    if only.ndim == 1:
        return cos[only], sin[only]
    return cos[0, :, 0][only][:, :, None], sin[0, :, 0][only][:, :, None]


def take(x: Tensor, at: Tensor) -> Tensor:
    """Pick positions of each row. Shape: (B, L, D), (B, K) -> (B, K, D); without padding (T, D), (N,) -> (N, D)."""
    if at.ndim == 1:
        return x[at]
    return torch.gather(x, 1, at[:, :, None].expand(-1, -1, x.shape[-1]))
