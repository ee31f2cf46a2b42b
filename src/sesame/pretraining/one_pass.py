"""How long to train when nobody says: one pass over the text.

    steps = rows / batch, at least 100 (a small text is read again, up to 100 times), at most 10 minutes on a CPU

Gururangan et al. 2020 (https://arxiv.org/abs/2004.10964) take one pass over a domain, and a hundred over the texts of a task.
The number of steps is decided once and kept in the run, so that a run that goes on ends where the first one would have.
"""

import math
import time
from collections.abc import Callable
from pathlib import Path

from sesame.data.batch import Batch
from sesame.files import read_json, write_json
from sesame.objectives.model import Model
from sesame.progress import say
from sesame.train.precision import Machine
from sesame.train.step import count_targets, step_loss

LEAST_STEPS = 100
MOST_PASSES = 100
CPU_SECONDS = 600.0
PROBE = 4  # sequences that the speed is measured on


def steps_of(rows: int, batch: int) -> int:
    return max(math.ceil(rows / batch), min(LEAST_STEPS, math.ceil(MOST_PASSES * rows / batch)))


def planned_steps(kept: Path, rows: int, batch: int, measure: Callable[[], float] | None) -> int:
    """Steps of a run over `rows` sequences; `measure` gives the seconds of one, if time is to be bounded."""
    if kept.is_file():
        return int(read_json(kept)["steps"])
    steps = whole = steps_of(rows, batch)
    if measure is not None:
        steps = max(1, min(whole, int(CPU_SECONDS / (measure() * batch))))
    if steps < whole:
        say(
            f"a pass over the text takes {whole:,} steps, too many for {CPU_SECONDS / 60:g} minutes on this CPU: "
            f"taking {steps:,} ({100 * steps / whole:.0f} %); a budget or a number of steps of your own changes that"
        )
    write_json(kept, {"steps": steps})
    return steps


def seconds_each(model: Model, batch: Batch, machine: Machine) -> float:
    """Seconds of training on one sequence, forwards and backwards; the weights stay as they are."""
    model.train()
    for _ in range(2):  # the first time is slower
        began = time.perf_counter()
        with machine.autocast():
            terms = model(batch)
        step_loss(terms, count_targets([batch])).backward()  # type: ignore[no-untyped-call]
        seconds = time.perf_counter() - began
    model.zero_grad()
    return seconds / len(batch.ids)
