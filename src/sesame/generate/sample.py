"""Sampling: tokens drawn from what the model says, sharpened and filtered.

    p(v) = softmax(logits / temperature), then only the top_k likeliest, then only the nucleus, renormalized

Paper: Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration" (https://arxiv.org/abs/1904.09751): the nucleus is
the smallest set of likeliest tokens that holds top_p of the probability. Order of the filters, ties at the k-th place (all
stay) and the token that crosses top_p (it stays) are as in transformers.
Unusual: the draw is a hash of (seed, the source's key, the sample's number, the step), so that a text does not depend on
what else is in the batch. Where a stranger's dice are wanted, `luck` throws them: with torch.multinomial on rows in the
layout of all lines the tokens are transformers' (the tests show it).
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from sesame import chance
from sesame.data.batch import Batch
from sesame.generate.base import Speaker
from sesame.generate.blocking import Rules
from sesame.generate.hypothesis import Hypothesis
from sesame.generate.settings import Settings
from sesame.generate.walk import Walk

Luck = Callable[[Tensor, Tensor, int], Tensor]
"""Probabilities (R, V), their lines (R,), the step -> tokens (R,). Line i is sample i % best of source i // best."""

FIRST = 256
"""So many of the likeliest tokens usually hold the nucleus."""


def sample(speaker: Speaker, batch: Batch, rules: Rules, luck: Luck | None = None) -> list[list[Hypothesis]]:
    """`best` samples of each source, in the order of their numbers."""
    settings = rules.settings
    draw = luck or fair_luck(batch, settings)
    walk = Walk(batch, rules, settings.best)

    def choose(logits: Tensor, lines: Tensor) -> Tensor:
        return draw(filtered(logits, settings).softmax(1), lines, walk.said.shape[1])

    return walk.run(speaker, batch, choose)


def filtered(logits: Tensor, settings: Settings) -> Tensor:
    """Logits with minus infinity at what is not drawn: (R, V) -> (R, V)."""
    if settings.temperature != 1:
        logits = logits / settings.temperature
    if settings.top_k:
        least = logits.topk(min(settings.top_k, logits.shape[1]), 1).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    return nucleus(logits, settings.top_p) if settings.top_p < 1 else logits


def nucleus(logits: Tensor, share: float) -> Tensor:
    """Only the likeliest tokens before which less than `share` stands. Sorts as few as it needs."""
    norms, vocab, size = logits.logsumexp(1, keepdim=True), logits.shape[1], FIRST
    while True:
        values, ids = logits.topk(min(size, vocab), 1)
        each = (values - norms).exp()
        mass = each.cumsum(1)
        if size >= vocab or (mass[:, -1] >= share).all():
            kept = values.masked_fill(mass - each >= share, -torch.inf)
            return torch.full_like(logits, -torch.inf).scatter(1, ids, kept)
        size *= 8


def fair_luck(batch: Batch, settings: Settings) -> Luck:
    """Draws that belong to the source, wherever it travels."""
    owners = range(batch.size) if batch.keys is None else batch.keys.tolist()
    mixed = np.array([chance.key(settings.seed, owner) for owner in owners], dtype=np.uint64)
    keys = torch.from_numpy(mixed.view(np.int64)).to(batch.ids.device)

    def draw(probabilities: Tensor, lines: Tensor, step: int) -> Tensor:
        places = ((lines % settings.best) << 32) + step
        luck = chance.uniform_at(keys[lines // settings.best], "generate.draw", places[:, None])
        below = probabilities.double().cumsum(1)
        at = torch.searchsorted(below, luck * below[:, -1:], right=True)
        return at[:, 0].clamp(max=probabilities.shape[1] - 1)

    return draw
