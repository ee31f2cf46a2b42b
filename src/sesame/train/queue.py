"""Whether a device has run out of work: a GPU computes what was asked before, so that waiting for data may cost nothing."""

import time

import torch


class Queue:
    """`mark` after every step; `idle_since` then tells how much of a wait was lost."""

    def __init__(self, device: torch.device) -> None:
        self.event = torch.cuda.Event() if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self.marked = False

    def mark(self) -> None:
        if self.event is not None:
            self.event.record()
            self.marked = True

    def idle_since(self, moment: float) -> float:
        """Seconds since `moment` (of time.monotonic) if the work has run out by now, otherwise 0: the most that was lost."""
        if self.event is not None and self.marked and not self.event.query():  # type: ignore[no-untyped-call]
            return 0.0
        return time.monotonic() - moment
