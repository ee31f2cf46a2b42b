"""Greedy search: the likeliest token, again and again, until it is the end token."""

import torch
from torch import Tensor

from sesame.data.batch import Batch
from sesame.generate.base import Speaker
from sesame.generate.blocking import Rules
from sesame.generate.hypothesis import Hypothesis
from sesame.generate.top import continuations
from sesame.generate.walk import Walk


def greedy(speaker: Speaker, batch: Batch, rules: Rules) -> list[list[Hypothesis]]:
    return Walk(batch, rules, 1).run(speaker, batch, likeliest)


def likeliest(logits: Tensor, lines: Tensor) -> Tensor:
    """(R, V) -> (R,). On a CPU the beam's way of looking takes a third of the time of `argmax`."""
    top = logits.amax(1)
    return continuations(logits, top, torch.zeros_like(top)[:, None], 1)[2][:, 0]
