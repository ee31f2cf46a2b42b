"""A rehearsal before the clock starts: every shape of a batch runs once, forward and backward, and changes nothing.

A compiler takes half a minute for each shape at the first step that meets it. Under a budget of a minute a method with three
shapes would lose to one with a single shape for no reason of its own, so comparisons of methods rehearse first and count the
budget from there. Gradients are thrown away; dropout is seeded anew for each step, so the run itself stays what it was.
"""

import time
from collections.abc import Iterable

from torch import nn

from sesame.data.batch import Batch
from sesame.train.precision import Machine
from sesame.train.shadow import Shadow
from sesame.train.step import Model, count_targets, step_loss


def rehearse(model: nn.Module, call: Model, batches: Iterable[Batch], machine: Machine) -> tuple[int, float]:
    """Run each layout among `batches` once; gives how many there were, and the seconds."""
    began = time.monotonic()
    model.train()
    known = set()
    for batch in batches:
        if batch.layout() in known:
            continue
        known.add(batch.layout())
        batch = batch.to(machine.device)
        if isinstance(call, Shadow):
            call.refresh()
        with machine.autocast():
            terms = call(batch)
        loss = step_loss(terms, count_targets([batch]))
        loss.backward()  # type: ignore[no-untyped-call]
        if isinstance(call, Shadow):
            call.gather()
        model.zero_grad(set_to_none=True)
        loss.item()  # the device may still be at work
    return len(known), time.monotonic() - began
