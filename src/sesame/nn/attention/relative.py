"""Attention by relative places (Dai et al. 2019, Transformer-XL, https://arxiv.org/abs/1901.02860, section 3.3).

    score(i, j) = [ (q_i + u) k_j  +  (q_i + v) W_R r(i - j) ] / sqrt(d)
                     content           distance

u and v are learnt biases of each head, r(i - j) the sinusoids of a distance. Nothing depends on absolute places, so memory
can stand in front of the keys. `two_stream.py` adds XLNet's segments.

Unusual: each layer has its own u and v, as in XLNet; the authors share them (`untie_r` off). The distance scores are handed
to the fused kernel as a bias.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sesame.nn.dropout import Dropout, dropout


@dataclass(frozen=True)
class Sight:
    """From where queries look, and what they may see among M remembered and L present tokens."""

    visible: Tensor | None  # (B or 1, Lq, M + L); None: everything
    differ: Tensor | None = None  # (B, Lq, M + L): the two are of different segments; None: there are no segments
    at: Tensor | None = None  # (B, Lq) places; None: all of them, in order


class Keys(NamedTuple):
    """What is looked at."""

    k: Tensor  # (B, H, M + L, d)
    v: Tensor
    far: Tensor  # (B or 1, H, N, d): the distances M + L, M + L - 1, ..., down to 1 - L, or to 0 where nobody looks ahead


class RelativeAttention(nn.Module):
    """Shape: queries (B, Lq, D) -> heads side by side (B, Lq, D), before W_O (`out`)."""

    def __init__(self, width: int, heads: int, rate: float, attention_rate: float, std: float) -> None:
        super().__init__()
        self.heads, self.rate = heads, attention_rate
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * width, bias=False)
        self.far = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.content_bias = nn.Parameter(torch.empty(width).normal_(std=std))
        self.distance_bias = nn.Parameter(torch.empty(width).normal_(std=std))
        self.dropout = Dropout(rate)

    def keys(self, content: Tensor, far: Tensor, which: Tensor | None = None) -> Keys:
        """Shape: content (B, M + L, D), memory first; far (1 or 2, N, D); which (B,): the second for a row, or the first."""
        k, v = self.kv(content).chunk(2, dim=-1)
        distances = self._split(self.far(far))
        if which is not None:  # no look-up: its gradients would add up in any order on a CPU with many threads
            distances = torch.where(which.bool()[:, None, None, None], distances[1:], distances[:1])
        return Keys(self._split(k), self._split(v), distances)

    def forward(self, x: Tensor, keys: Keys, sight: Sight, maps: list[Tensor] | None = None) -> Tensor:
        q = self._split(self.q(x))
        scores = self._beside(q, keys, sight) / math.sqrt(q.shape[-1])
        if sight.visible is not None:
            scores = scores.masked_fill(~sight.visible[:, None], torch.finfo(scores.dtype).min)
        q = q + self._bias(self.content_bias)
        return self._attend(q, keys, scores, maps).transpose(1, 2).flatten(-2)

    def _beside(self, q: Tensor, keys: Keys, sight: Sight) -> Tensor:
        """Scores beside those of the content. Shape: (B, H, Lq, d) -> (B, H, Lq, M + L)."""
        far = keys.far.transpose(-1, -2).contiguous()  # one layout for one row and many: the same bits
        by_distance = (q + self._bias(self.distance_bias)) @ far
        return shift(by_distance, keys.k.shape[2], sight.at)

    def _attend(self, q: Tensor, keys: Keys, bias: Tensor, maps: list[Tensor] | None) -> Tensor:
        rate = self.rate if self.training else 0.0
        if maps is None and not (rate > 0 and q.device.type == "cpu"):  # the fused CPU kernel has no dropout
            return F.scaled_dot_product_attention(q, keys.k, keys.v, attn_mask=bias, dropout_p=rate)
        seen = ((q / math.sqrt(q.shape[-1])) @ keys.k.transpose(-1, -2) + bias).softmax(-1)
        if maps is not None:
            maps.append(seen)
        return dropout(seen, rate, rate > 0) @ keys.v

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], self.heads, -1).transpose(1, 2)

    def _bias(self, bias: Tensor) -> Tensor:
        return bias.view(self.heads, 1, -1)


def shift(x: Tensor, count: int, at: Tensor | None = None) -> Tensor:
    """Scores by distance to scores by key: y[i, j] = x[i, L - i + j], since x[i, p] is about the distance M + L - p.

    Shape: (B, H, Lq, N) -> (B, H, Lq, count), count = M + L. With all L queries in order this is a change of the row length
    of the same numbers: each row starts one place earlier than the one before. Where N = M + L + 1, down to the distance 0,
    what stands at keys ahead of a query belongs to another row, and must not be looked at. With places, N = M + 2L.
    """
    if at is None:
        return x.flatten(-2)[..., x.shape[-2] :].view(*x.shape[:-1], x.shape[-1] - 1)[..., :count]
    places = (x.shape[-1] - count - at)[:, None, :, None] + torch.arange(count, device=x.device)
    return torch.gather(x, 3, places.expand(-1, x.shape[1], -1, -1))
