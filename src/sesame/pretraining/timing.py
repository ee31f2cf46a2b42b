"""The seconds of a run under a budget: what is spent before the first step, and what is kept for the last look and save."""

import time

from sesame.train.loop import Clock

RESERVE = 3.0  # seconds for the end, until it is seen how long looking and saving take


class Timing:
    """`budget` seconds that begin now; None: steps say when to end."""

    clock: Clock  # of the stage that runs

    def __init__(self, budget: float | None) -> None:
        self.budget, self.overhead, self.reserve = budget, 0.0, RESERVE
        self.restart()

    def restart(self) -> None:
        """The budget counts from now."""
        self.began = time.monotonic()

    def begin(self) -> None:
        """The first step comes now."""
        self.overhead = time.monotonic() - self.began

    def stage(self, steps: int, elapsed: float, last: float) -> Clock:
        """The clock of a stage that ends at a share `last` of the run."""
        self.clock = Clock(steps, self._left(), time.monotonic(), elapsed, last)
        return self.clock

    def took(self, began: float) -> None:
        """Keep as much time of the budget for the end as looking and saving, begun at `began`, were seen to take."""
        self.reserve = max(self.reserve, 2.0 + 2.0 * (time.monotonic() - began))
        if self.clock.budget is not None:
            self.clock.budget = self._left()

    def _left(self) -> float | None:
        return None if self.budget is None else max(self.budget - self.overhead - self.reserve, 1.0)
