"""One step of an optimiser, as a device sees it: nothing here waits for a number to come back.

gradients = Σ over micro-batches of d(weight * total / count);  clip their norm;  move the weights
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sesame.data.batch import Batch
from sesame.objectives.base import Term
from sesame.train.optim import Optimizer
from sesame.train.parallel import ALONE, World
from sesame.train.precision import Machine
from sesame.train.shadow import Shadow
from sesame.train.shares import not_shared, whole

Model = Callable[[Batch], list[Term]]
Counts = dict[str, Tensor]
"""Targets of the whole step, by name: what the sums are divided by."""


@dataclass(frozen=True)
class Outcome:
    loss: Tensor
    norm: Tensor  # of the gradients, before they were clipped
    totals: dict[str, Tensor]  # summed losses of each term


def one_step(
    model: nn.Module,
    call: Model,
    optimizer: Optimizer,
    batches: Sequence[Batch],
    counts: Counts,
    clip: float,
    machine: Machine,
    seeds: Sequence[int] = (),
    world: World = ALONE,
) -> Outcome:
    """Over all micro-batches of all ranks. `seeds`: where the chance of each of them starts, if it is to be set."""
    optimizer.zero_grad()
    if isinstance(call, Shadow):
        call.refresh()  # here, not after the step: weights also change by going back and by going on
    loss = torch.zeros((), device=machine.device)
    totals: dict[str, Tensor] = {}
    for number, batch in enumerate(batches):
        if seeds:
            torch.manual_seed(seeds[number])
        with machine.autocast():
            terms = call(batch)
        part = step_loss(terms, counts)
        part.backward()  # type: ignore[no-untyped-call]
        if isinstance(call, Shadow):
            call.gather()
        loss += part.detach()
        for term in terms:
            totals[term.name] = totals.get(term.name, 0) + term.total.detach().float()
    world.sum_gradients(not_shared(model))  # those of shares were summed on the way
    norm = whole(nn.utils.clip_grad_norm_(model.parameters(), clip or float("inf")))
    optimizer.step()
    return Outcome(loss, norm.float(), totals)


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
