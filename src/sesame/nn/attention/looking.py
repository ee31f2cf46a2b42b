"""Where a recurrent decoder looks: at the whole source, at a window of it, or at one place.

Papers: Bahdanau et al. 2015 (global); Luong et al. 2015 (https://arxiv.org/abs/1508.04025, section 3.2: local-m, local-p);
Xu et al. 2015 (https://arxiv.org/abs/1502.03044, section 4.1: hard).

    global   a = softmax(score over the source)
    local-m  the same within [t - D, t + D] at step t
    local-p  within [p - D, p + D], times exp(-(s - p)² / (2 σ²)), σ = D / 2;  p = S sigmoid(v tanh(W q)), S tokens to read
    hard     in training one place, drawn from a; else the likeliest one
    context  Σ_s a_s h_s

Unusual: the Gaussian is not normed again, as in the paper. Where local-m's window lies behind the source, which the paper
leaves open, it stays at the source's end. A draw has no gradient of its own; `Look.chosen` is its log-probability, from which
`nn/attention/hard.py` makes the gradient.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from sesame.nn.attention.scores import SCORES, Additive, Score

Span = Literal["global", "local-m", "local-p", "hard"]


@dataclass(frozen=True)
class Source:
    """What an encoder has read, ready to be looked at. Shape: (S, L, ...)."""

    values: Tensor
    keys: Tensor  # what the score reads of them
    real: Tensor | None  # (S, L) False at padding; None: everything is real

    def lengths(self) -> Tensor:
        """As numbers that are exact. Shape: (S, 1, 1)."""
        exact = torch.promote_types(self.values.dtype, torch.float32)
        if self.real is None:
            return self.values.new_full((self.values.shape[0], 1, 1), self.values.shape[1], dtype=exact)
        return self.real.sum(1)[:, None, None].to(exact)


@dataclass(frozen=True)
class Look:
    context: Tensor  # (S, Q, D)
    weights: Tensor  # (S, Q, L)
    chosen: Tensor | None = None  # (S, Q) log-probability of the place that was drawn


class Looking(nn.Module):
    """Attention to a source; nothing else of the decoder. `window` is D."""

    def __init__(
        self, span: Span, score: str, query: int, values: int, window: int = 10, coverage: bool = False
    ) -> None:
        super().__init__()
        self.span, self.window = span, window
        self.score: Score = Additive(query, values, 0, True) if coverage else SCORES[score](query, values)
        self.places = nn.Linear(query, query, bias=False) if span == "local-p" else None
        self.place = nn.Linear(query, 1, bias=False) if span == "local-p" else None

    def read(self, values: Tensor, real: Tensor | None) -> Source:
        return Source(values, self.score.read(values), real)

    def forward(self, query: Tensor, source: Source, steps: Tensor, covered: Tensor | None = None) -> Look:
        """Shape: query (S, Q, D), steps (Q,): the number of each query's step, from 0; covered (S, Q, L)."""
        scores = self.score.compare(query, source.keys, covered)
        scores = scores.float() if scores.dtype == torch.bfloat16 else scores
        at = torch.arange(scores.shape[2], device=scores.device)
        seen, center = source.real[:, None] if source.real is not None else None, None
        if self.span in ("local-m", "local-p"):
            center = self._center(query, source, steps).to(scores.dtype)
            near = (at - center).abs() <= self.window
            seen = near if seen is None else near & seen
        if seen is not None:
            scores = scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
        if self.span == "hard":
            return self._one(scores, source)
        weights = scores.softmax(-1)
        if self.span == "local-p":
            assert center is not None
            weights = weights * torch.exp(-2 * ((at - center) / self.window).square())  # 2 σ² = D² / 2
        weights = weights.to(source.values.dtype)
        return Look(weights @ source.values, weights)

    def _center(self, query: Tensor, source: Source, steps: Tensor) -> Tensor:
        """Shape: (S, Q, 1)."""
        lengths = source.lengths()
        if self.place is None or self.places is None:
            return torch.minimum(steps.to(lengths.dtype)[None, :, None], lengths - 1)
        return lengths * torch.sigmoid(self.place(torch.tanh(self.places(query))).to(lengths.dtype))

    def _one(self, scores: Tensor, source: Source) -> Look:
        logs = scores.log_softmax(-1)
        drawn = logs
        if self.training:  # the largest of log p + Gumbel noise is a draw from p
            drawn = logs - torch.empty_like(logs).exponential_().log()
        place = drawn.argmax(-1, keepdim=True)
        weights = torch.zeros_like(logs).scatter(-1, place, 1.0).to(source.values.dtype)
        return Look(weights @ source.values, weights, logs.gather(-1, place)[..., 0])
