"""Relative attention of Transformer-XL, for the two streams of XLNet.

Papers: Dai et al. 2019 (https://arxiv.org/abs/1901.02860), Yang et al. 2019 (https://arxiv.org/abs/1906.08237).

    score(i, j) = [ (q_i + u) k_j  +  (q_i + v) W_R r(i - j)  +  (q_i + w) s(i, j) ] / sqrt(d)
                     content           distance                   segment

u, v and w are learnt biases of each head, r(i - j) the sinusoids of a distance, s one of two learnt vectors: i and j in the
same segment, or not. Nothing depends on absolute places, so memory can stand in front of the keys.

Both streams use the same weights and the same keys and values, those of the content stream; they differ in their queries
and in what these may see (`Sight`).

Unusual: the authors compute the query stream at every place and throw most of it away (`target_mapping`); here it asks at
its places only, and the distance scores are gathered there. The distance and segment scores are handed to the fused kernel
as a bias.
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
    """From where the queries of a stream look, and what they may see among M remembered and L present tokens."""

    visible: Tensor | None  # (B, Lq, M + L); None: everything
    differ: Tensor | None  # (B, Lq, M + L): True where the two are of different segments; None: there are no segments
    at: Tensor | None = None  # (B, Lq) places; None: all of them, in order


class Keys(NamedTuple):
    """What both streams look at."""

    k: Tensor  # (B, H, M + L, d)
    v: Tensor
    far: Tensor  # (B or 1, H, M + 2L, d): the distances M + L, ..., 1 - L


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
        self.segment_bias = nn.Parameter(torch.empty(width).normal_(std=std))
        self.segments = nn.Parameter(torch.empty(2, heads, width // heads).normal_(std=std))
        self.dropout = Dropout(rate)

    def keys(self, content: Tensor, far: Tensor, which: Tensor | None = None) -> Keys:
        """Shape: content (B, M + L, D), memory first; far (N, M + 2L, D); which (B,): the one of the N for each row."""
        k, v = self.kv(content).chunk(2, dim=-1)
        distances = self._split(self.far(far))
        return Keys(self._split(k), self._split(v), distances if which is None else distances[which])

    def forward(self, x: Tensor, keys: Keys, sight: Sight, maps: list[Tensor] | None = None) -> Tensor:
        q = self._split(self.q(x))
        length, size = keys.far.shape[2] - keys.k.shape[2], q.shape[-1]
        scores = shift((q + self._bias(self.distance_bias)) @ keys.far.transpose(-1, -2), length, sight.at)
        if sight.differ is not None:
            pair = (q + self._bias(self.segment_bias)) @ self.segments.permute(1, 2, 0)
            scores = scores + torch.where(sight.differ[:, None], pair[..., 1:], pair[..., :1])
        scores = scores / math.sqrt(size)
        if sight.visible is not None:
            scores = scores.masked_fill(~sight.visible[:, None], torch.finfo(scores.dtype).min)
        q = q + self._bias(self.content_bias)
        return self._attend(q, keys, scores, maps).transpose(1, 2).flatten(-2)

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


def shift(x: Tensor, length: int, at: Tensor | None = None) -> Tensor:
    """Scores by distance to scores by key: y[i, j] = x[i, length - i + j], since x[i, p] is about distance M + length - p.

    Shape: (B, H, Lq, M + 2 length) -> (B, H, Lq, M + length). With all queries in order this is a change of the row length
    of the same numbers: each row starts one place earlier than the one before.
    """
    count = x.shape[-1] - length
    if at is None:
        return x.flatten(-2)[..., length:].view(*x.shape[:-1], x.shape[-1] - 1)[..., :count]
    places = (length - at)[:, None, :, None] + torch.arange(count, device=x.device)
    return torch.gather(x, 3, places.expand(-1, x.shape[1], -1, -1))
