"""One pass: forward, the loss of a micro-batch, backward."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
from torch import Tensor

from sesame.data.batch import Batch
from sesame.objectives.base import Term
from sesame.train.precision import Machine

Model = Callable[[Batch], list[Term]]
Counts = dict[str, Tensor]
"""Targets of the whole step, by name: what the sums are divided by."""


def learn(call: Model, batch: Batch, counts: Counts, machine: Machine) -> tuple[Tensor, list[Term]]:
    """Leave gradients at the weights; give this micro-batch's share of the loss, and its terms."""
    with machine.autocast():
        terms = call(batch)
    loss = step_loss(terms, counts)
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach(), [replace(term, total=term.total.detach()) for term in terms]


def count_targets(batches: Iterable[Batch]) -> Counts:
    counts: Counts = {}
    for batch in batches:
        for name, targets in batch.targets.items():
            counts[name] = counts.get(name, 0) + targets.count()
    return counts


def step_loss(terms: list[Term], counts: Counts) -> Tensor:
    """This micro-batch's share of the step's loss."""
    parts = [term.weight * term.total / counts[term.name].clamp(min=1) for term in terms]
    return torch.stack(parts).sum()
