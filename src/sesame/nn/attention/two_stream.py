"""Relative attention for the two streams of XLNet.

Paper: Yang et al. 2019 (https://arxiv.org/abs/1906.08237).

    score(i, j) = [ (q_i + u) k_j  +  (q_i + v) W_R r(i - j)  +  (q_i + w) s(i, j) ] / sqrt(d)
                     content           distance                   segment

Content and distance are Transformer-XL's (`relative.py`); w is one more bias of each head, s one of two learnt vectors: i and
j in the same segment, or not.

Both streams use the same weights and the same keys and values, those of the content stream; they differ in their queries
and in what these may see (`Sight`).

Unusual: the authors compute the query stream at every place and throw most of it away (`target_mapping`); here it asks at
its places only, and the distance scores are gathered there.
"""

import torch
from torch import Tensor, nn

from sesame.nn.attention.relative import Keys, RelativeAttention, Sight


class TwoStreamAttention(RelativeAttention):
    """Shape: queries (B, Lq, D) -> heads side by side (B, Lq, D), before W_O (`out`)."""

    def __init__(self, width: int, heads: int, rate: float, attention_rate: float, std: float) -> None:
        super().__init__(width, heads, rate, attention_rate, std)
        self.segment_bias = nn.Parameter(torch.empty(width).normal_(std=std))
        self.segments = nn.Parameter(torch.empty(2, heads, width // heads).normal_(std=std))

    def _beside(self, q: Tensor, keys: Keys, sight: Sight) -> Tensor:
        scores = super()._beside(q, keys, sight)
        if sight.differ is None:
            return scores
        pair = (q + self._bias(self.segment_bias)) @ self.segments.permute(1, 2, 0)
        return scores + torch.where(sight.differ[:, None], pair[..., 1:], pair[..., :1])
