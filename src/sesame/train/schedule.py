"""The learning rate over time, as a factor of its peak.

Everything is a function of progress, from 0 to 1. For a run of N steps progress is step / N; for a run with a budget it is
the share of the time used, so that the rate reaches its end exactly at the deadline, however fast the machine is.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from sesame.errors import SesameError


def linear(past: float) -> float:
    """Straight down to 0 (BERT)."""
    return 1.0 - past


def cosine(past: float) -> float:
    """Half a cosine down to 0 (Loshchilov & Hutter 2017)."""
    return 0.5 * (1.0 + math.cos(math.pi * past))


def slanted(past: float) -> float:
    """Slanted triangular, down to 1/32 of the peak (Howard & Ruder 2018); its way up begins there too, see `factor`."""
    return (1.0 + (1.0 - past) * 31.0) / 32.0


def constant(past: float) -> float:
    return 1.0


DECAYS: dict[str, Callable[[float], float]] = {
    "linear": linear,
    "cosine": cosine,
    "slanted": slanted,
    "constant": constant,
}


@dataclass(frozen=True)
class Schedule:
    """Linear warm-up over the first share of the run, then a decay. "inverse_sqrt" is the Transformer's (Vaswani 2017): the
    rate falls as √(end of the warm-up / now), whether the warm-up was counted in shares or in steps."""

    kind: Literal["linear", "cosine", "inverse_sqrt", "slanted", "constant"] = "linear"
    warmup: float = 0.01  # share of the run
    warmup_steps: int = 0  # but at least so many steps

    def __post_init__(self) -> None:
        if not 0 <= self.warmup < 1:
            raise SesameError(f"schedule.warmup is {self.warmup}; it is a share of the run, from 0 to below 1")
        if self.kind == "inverse_sqrt" and not (self.warmup or self.warmup_steps > 0):
            raise SesameError(
                "schedule.kind = inverse_sqrt falls from the end of the warm-up on, and there is none; set schedule.warmup "
                "or schedule.warmup_steps above 0"
            )

    def factor(self, progress: float, step: int) -> float:
        progress = min(max(progress, 0.0), 1.0)
        up = progress / self.warmup if progress < self.warmup else 1.0
        if self.warmup_steps:
            up = min(up, (step + 1) / self.warmup_steps)
        if self.kind == "inverse_sqrt":
            end = max(self.warmup, progress * self.warmup_steps / (step + 1))  # the progress of so many steps
            return up * math.sqrt(end / progress) if progress > end else up
        past = max(0.0, (progress - self.warmup) / (1.0 - self.warmup))
        if self.kind == "slanted":  # equation 3: both sides of the triangle end at 1/32
            return slanted(max(past, 1.0 - up))
        return up * DECAYS[self.kind](past)
