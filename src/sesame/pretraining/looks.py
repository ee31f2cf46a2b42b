"""The looks of a run at its held-out text: always the same examples with the same masks, at the first stage's length."""

import time

from sesame.pretraining.best import check_measure, judge
from sesame.pretraining.prepared import Prepared
from sesame.pretraining.telling import Log
from sesame.pretraining.timing import Timing
from sesame.train.health import Look
from sesame.train.held_out import held_out
from sesame.train.loop import Clock
from sesame.train.shares import fold, is_sharded
from sesame.train.state import State


class Looks:
    def __init__(self, parts: Prepared, timing: Timing) -> None:
        self.parts, self.timing, self.next = parts, timing, 0.0  # the progress at which the next one is due
        self.batches = parts.examples.held_out(next(iter(parts.recipe.stages.values())))
        if parts.recipe.evaluation.best:
            check_measure(parts.recipe, bool(self.batches), is_sharded(parts.model))

    def due(self, clock: Clock, step: int) -> bool:
        return clock.progress(step) >= self.next and not clock.done(step)

    def looked(self, clock: Clock, step: int) -> None:
        """The next one comes later."""
        self.next = clock.progress(step) + self.parts.recipe.evaluation.every

    def look(self, state: State, log: Log) -> bool:
        """The loss on all of it; whether it is the lowest so far.

        Every rank looks: no slower than one looking while the others wait, and right for weights in shares.
        """
        if not self.batches:
            return False
        began, parts = time.monotonic(), self.parts
        look = Look(parts.model)
        state.held_out = held_out(parts.model, look, self.batches, parts.machine) | look.figures()
        fold(parts.model)
        line = {"step": state.step, "seconds": round(state.elapsed, 2), "held_out": state.held_out}
        log.add(line, state.held_out, "held_out/")
        self.timing.took(began)
        return bool(parts.run.world.agree([float(judge(look, state, parts.recipe))])[0])
