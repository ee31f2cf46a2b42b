"""The seconds of a run under a budget: what is spent before the first step, and what is kept for the last look and save."""

import time

from sesame.progress import duration, say
from sesame.train.loop import Clock

LEAST = 1.0  # second of training, however little is left
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

    def begin(self, elapsed: float) -> None:
        """The first step comes now, `elapsed` seconds of training after the run's first."""
        self.overhead = time.monotonic() - self.began
        if self.budget is not None and not elapsed and self._left() == LEAST:
            say(
                f"the budget of {duration(self.budget)} is spent: what comes before the first step took "
                f"{duration(self.overhead)}, and {duration(self.reserve)} are kept for the end; it trains for a moment "
                "all the same, --budget may be longer"
            )

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
        return None if self.budget is None else max(self.budget - self.overhead - self.reserve, LEAST)
