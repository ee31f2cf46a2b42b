"""Attention of a decoder to what an encoder read (Vaswani et al. 2017): queries from one text, keys and values from another.

Unusual here: several rows may ask about one source, as the hypotheses of a beam do. Its keys and values are kept once, and
the rows' queries stand side by side, as if they were one longer row.
"""

import torch
from torch import Tensor, nn

from sesame.nn.attention import core
from sesame.nn.dropout import Dropout


class CrossAttention(nn.Module):
    """Shape: x (B, L, D), source keys and values (S, M, 2 H d) -> (B, L, D); B / S rows that follow one another share one."""

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
        wide = self.heads * self.size
        self.q = nn.Linear(width, wide, bias=bias)
        self.kv = nn.Linear(width, 2 * wide, bias=bias)
        self.out = nn.Linear(wide, width, bias=bias)
        self.dropout = Dropout(dropout)

    def read(self, source: Tensor) -> Tensor:
        """Keys and values of a source, side by side. Shape: (S, M, D) -> (S, M, 2 H d)."""
        return self.kv(source)  # type: ignore[no-any-return]

    def forward(self, x: Tensor, source: Tensor, mask: Tensor | None, maps: list[Tensor] | None = None) -> Tensor:
        return self.dropout(self.out(self.heads_of(x, source, mask, maps)))  # type: ignore[no-any-return]

    def heads_of(self, x: Tensor, source: Tensor, mask: Tensor | None, maps: list[Tensor] | None = None) -> Tensor:
        """All heads side by side, before W_O. The mask is (S, 1, 1, M), True where one may look."""
        rows, length = x.shape[:2]
        q = self._split(self.q(x).view(source.shape[0], -1, self.heads * self.size))
        k, v = (self._split(part) for part in source.chunk(2, dim=-1))
        rate = self.rate if self.training else 0.0
        if maps is None:
            found = core.sdpa(q, k, v, mask, rate, scale=self.scale)
        else:
            found, seen = core.eager(q, k, v, mask, rate, scale=self.scale)
            each = seen.view(*seen.shape[:2], -1, length, seen.shape[-1]).transpose(1, 2)  # (S, n, H, L, M)
            maps.append(each.flatten(0, 1))
        return found.transpose(1, 2).reshape(rows, length, -1)

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], self.heads, self.size).transpose(1, 2)


def source_mask(real: Tensor | None) -> Tensor | None:
    """For `CrossAttention`. Shape: (S, M) -> (S, 1, 1, M)."""
    return None if real is None else real[:, None, None, :].to(torch.bool)
