"""How well a decoder's state and a place of the source fit each other: the scores of attention.

Papers: Bahdanau, Cho & Bengio 2015 (https://arxiv.org/abs/1409.0473): additive; Luong, Pham & Manning 2015
(https://arxiv.org/abs/1508.04025): dot and general; Vaswani et al. 2017: scaled dot; Graves, Wayne & Danihelka 2014
(https://arxiv.org/abs/1410.5401, section 3.3.1): cosine with a learnt sharpness ("content-based").

    dot       q k                     scaled    q k / √D
    general   q W k                   cosine    β q k / (|q| |k|), β = softplus(b)
    additive  v tanh(W q + U k + b), with coverage v tanh(W q + U k + b + w c)

All are called with (query, keys). What depends on the source alone, `read`, is computed once for all steps.
Shape: query (B, Q, D), keys (B, L, K) -> (B, Q, L).
Coverage c is what was looked at before, the sum of the weights of all earlier steps (See, Liu & Manning 2017,
https://arxiv.org/abs/1704.04368, equation 11; in Tu et al. 2016 it is a learnt state). Only the additive score reads it.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sesame.errors import SesameError


class Score(nn.Module):
    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return self.compare(query, self.read(keys))

    def read(self, keys: Tensor) -> Tensor:
        """What is known of the source before any question. Shape: (B, L, K) -> (B, L, X)."""
        return keys

    def compare(self, query: Tensor, read: Tensor, covered: Tensor | None = None) -> Tensor:
        """Scores of all places. Shape: (B, Q, D), (B, L, X), covered (B, Q, L) -> (B, Q, L)."""
        raise NotImplementedError


class Dot(Score):
    def __init__(self, query: int, keys: int, scaled: bool = False) -> None:
        super().__init__()
        if query != keys:
            raise SesameError(
                f"backbone.score: a state of {query} numbers has no product with one of {keys}; take general or additive"
            )
        self.scale = 1 / math.sqrt(query) if scaled else 1.0

    def compare(self, query: Tensor, read: Tensor, covered: Tensor | None = None) -> Tensor:
        return (query * self.scale) @ read.transpose(1, 2)


class General(Score):
    def __init__(self, query: int, keys: int) -> None:
        super().__init__()
        self.weight = nn.Linear(keys, query, bias=False)

    def read(self, keys: Tensor) -> Tensor:
        return self.weight(keys)  # type: ignore[no-any-return]

    def compare(self, query: Tensor, read: Tensor, covered: Tensor | None = None) -> Tensor:
        return query @ read.transpose(1, 2)


class Cosine(Score):
    def __init__(self, query: int, keys: int) -> None:
        super().__init__()
        if query != keys:
            raise SesameError(
                f"backbone.score: a state of {query} numbers has no angle to one of {keys}; take general or additive"
            )
        self.sharpness = nn.Parameter(torch.full((1,), 5.0))  # ours: from 1, weights could hardly differ at all

    def read(self, keys: Tensor) -> Tensor:
        return F.normalize(keys, dim=-1, eps=1e-6)

    def compare(self, query: Tensor, read: Tensor, covered: Tensor | None = None) -> Tensor:
        found = F.normalize(query, dim=-1, eps=1e-6) @ read.transpose(1, 2)
        return F.softplus(self.sharpness) * found


class Additive(Score):
    def __init__(self, query: int, keys: int, width: int = 0, coverage: bool = False) -> None:
        super().__init__()
        width = width or query
        self.query, self.keys = nn.Linear(query, width, bias=False), nn.Linear(keys, width)
        self.out = nn.Linear(width, 1, bias=False)
        self.covered = nn.Parameter(torch.zeros(width)) if coverage else None

    def read(self, keys: Tensor) -> Tensor:
        return self.keys(keys)  # type: ignore[no-any-return]

    def compare(self, query: Tensor, read: Tensor, covered: Tensor | None = None) -> Tensor:
        inside = self.query(query)[:, :, None] + read[:, None]
        if self.covered is not None and covered is not None:
            inside = inside + covered[..., None] * self.covered
        return self.out(torch.tanh(inside))[..., 0]  # type: ignore[no-any-return]


SCORES: dict[str, Callable[[int, int], Score]] = {  # what a recipe may name; called with the widths of query and keys
    "dot": Dot,
    "general": General,
    "additive": Additive,
    "scaled": lambda query, keys: Dot(query, keys, scaled=True),
    "cosine": Cosine,
}
