"""Relative positions as numbers added to the scores, one for each head and bucket of distances (T5; Raffel et al. 2020).

Distances fall into buckets: half of them one distance each, the other half growing with its logarithm up to `farthest`; all
beyond share the last one. Where one may look ahead, half of the buckets are for that.

Unusual: the boundaries are computed in 32 bits whatever the model's precision, as in the authors' code and its ports.
"""

import math

import torch
from torch import Tensor, nn


class RelativeBias(nn.Module):
    """Shape: (Lq, L) distances -> (1, H, Lq, L)."""

    def __init__(self, heads: int, buckets: int, farthest: int, ahead: bool) -> None:
        super().__init__()
        self.buckets, self.farthest, self.ahead = buckets, farthest, ahead
        self.table = nn.Embedding(buckets, heads)

    def forward(self, first: int, asking: int, keys: int) -> Tensor:
        """For queries at first, first + 1 ... and keys at 0, 1, 2 ..."""
        device = self.table.weight.device
        distances = (
            torch.arange(keys, device=device)[None, :] - torch.arange(first, first + asking, device=device)[:, None]
        )
        bias: Tensor = self.table(bucket(distances, self.buckets, self.farthest, self.ahead))
        return bias.permute(2, 0, 1)[None]


def bucket(distances: Tensor, buckets: int, farthest: int, ahead: bool) -> Tensor:
    """The bucket of each distance (key minus query)."""
    found = torch.zeros_like(distances)
    if ahead:
        buckets //= 2
        found = (distances > 0).long() * buckets
        distances = distances.abs()
    else:
        distances = (-distances).clamp(min=0)
    exact = buckets // 2
    ratio = torch.log(distances.clamp(min=1).float() / exact) / math.log(farthest / exact)
    far = (exact + (ratio * (buckets - exact)).long()).clamp(max=buckets - 1)
    return found + torch.where(distances < exact, distances, far)
