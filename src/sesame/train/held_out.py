"""The loss on text that the model never trains on."""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from sesame.data.batch import Batch
from sesame.objectives.base import Term
from sesame.train.precision import Machine


@torch.no_grad()
def held_out(
    model: nn.Module, call: Callable[[Batch], list[Term]], batches: Sequence[Batch], machine: Machine
) -> dict[str, float]:
    """Mean loss of each term, and its accuracy where the term knows it ("mlm", "mlm_accuracy").

    A term that little text asks nothing of (no place happens to be masked) is left out: a loss of 0 would look perfect.
    """
    training = model.training
    model.eval()
    totals: dict[str, float] = {}
    counts: dict[str, float] = {}
    hits: dict[str, float] = {}
    try:
        for batch in batches:
            with machine.autocast():
                terms = call(batch.to(machine.device))
            for term in terms:
                totals[term.name] = totals.get(term.name, 0.0) + float(term.total)
                counts[term.name] = counts.get(term.name, 0.0) + float(term.count)
                if term.hits is not None:
                    hits[term.name] = hits.get(term.name, 0.0) + float(term.hits)
    finally:
        model.train(training)
    asked = [name for name in totals if counts[name]]
    found = {name: totals[name] / counts[name] for name in asked}
    return found | {f"{name}_accuracy": hits[name] / counts[name] for name in asked if name in hits}
