"""One step of an optimiser, as a device sees it: nothing here waits for a number to come back.

gradients = Σ over micro-batches of d(weight * total / count);  clip their norm, that of each network apart;  move the weights
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sesame.data.batch import Batch
from sesame.objectives.base import Term
from sesame.objectives.model import Model as Trained
from sesame.train.optim import Optimizer
from sesame.train.parallel import ALONE, World
from sesame.train.precision import Machine
from sesame.train.shadow import Shadow
from sesame.train.shares import not_shared, whole

Model = Callable[[Batch], list[Term]]
Counts = dict[str, Tensor]
"""Targets of the whole step, by name: what the sums are divided by."""


Name = tuple[str, str]
"""What a number is ("loss", "norm", "tokens"; "total" and "count" of a term; "part" and "of" a figure), and whose."""


class Told(NamedTuple):
    """All that a step tells, as one array that stays on the device until it is asked for."""

    names: tuple[Name, ...]
    values: Tensor  # like names, float64


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
) -> Told:
    """Over all micro-batches of all ranks. `seeds`: where the chance of each of them starts, if it is to be set."""
    optimizer.zero_grad()
    if isinstance(call, Shadow):
        call.refresh()  # here, not after the step: weights also change by going back and by going on
    told: dict[Name, Tensor] = {}

    def add(kind: str, name: str, value: Tensor) -> None:
        value = value.double()
        told[kind, name] = told[kind, name] + value if (kind, name) in told else value

    for number, batch in enumerate(batches):
        if seeds:
            torch.manual_seed(seeds[number])
        with machine.autocast():
            terms = call(replace(batch, whole=None))  # what is compiled knows tensors, not the array beneath
        part = step_loss(terms, counts)
        part.backward()  # type: ignore[no-untyped-call]
        if isinstance(call, Shadow):
            call.gather()
        add("loss", "", part.detach())
        add("tokens", "", batch.lengths.sum())
        for term in terms:
            add("total", term.name, term.total.detach())
            for name, figure in term.figures.items():
                add("part", name, figure[0])
                add("of", name, figure[1])
    world.sum_gradients(not_shared(model))  # those of shares were summed on the way
    add("norm", "", clip_gradients(model, clip))
    optimizer.step()
    for name, count in counts.items():
        add("count", name, count)
    return Told(tuple(told), torch.stack(list(told.values())))


def clip_gradients(model: nn.Module, clip: float) -> Tensor:
    """Shorten the gradient of each network to at most `clip` (0: leave it); gives the norm of all before that."""
    most = clip or float("inf")
    apart = model.objective.apart() if isinstance(model, Trained) else []
    if not apart:
        return whole(nn.utils.clip_grad_norm_(model.parameters(), most))
    theirs = [p for module in apart for p in own(module, model)]
    known = {id(p) for p in theirs}
    ours = [p for p in model.parameters() if id(p) not in known]
    norms = [whole(nn.utils.clip_grad_norm_(group, most)) for group in (ours, theirs)]
    return torch.stack(norms).square().sum().sqrt()


def own(module: nn.Module, model: nn.Module) -> list[nn.Parameter]:
    """The weights of a network beside the backbone that are not the backbone's too."""
    shared = {id(p) for p in model.backbone.parameters()}  # type: ignore[union-attr]
    return [p for p in module.parameters() if id(p) not in shared]


def paces(model: nn.Module) -> dict[nn.Parameter, float]:
    """The rates of single weights that an objective asks for, as factors of the common one."""
    asked = model.objective.paces() if isinstance(model, Trained) else []
    return {p: factor for module, factor in asked for p in own(module, model)}


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
