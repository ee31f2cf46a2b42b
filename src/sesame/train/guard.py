"""A watch over the loss: a batch that breaks the training is undone and left out, and its text is named."""

import math
from statistics import median

from sesame.errors import SesameError

WINDOW = 64
SPIKE = 1.5  # times the median of the last losses
MOST = 20  # skipped batches before the run itself is called broken


class Guard:
    """Looks at one loss after the other. The decision depends on the losses alone, so a resumed run decides the same."""

    def __init__(self, history: list[float], spikes: bool = True) -> None:
        self.history, self.spikes = history, spikes  # a small labelled set has hard batches that are no accident

    def trouble(self, loss: float, norm: float) -> str | None:
        """What is wrong with this step, or None; a good loss is remembered."""
        if not math.isfinite(loss) or not math.isfinite(norm):
            return f"the loss became {loss}" if not math.isfinite(loss) else f"the gradient norm became {norm}"
        if self.spikes and len(self.history) >= WINDOW // 2:
            usual = median(self.history)
            if loss > SPIKE * usual + 0.5:
                return f"the loss jumped to {loss:.2f} from about {usual:.2f}"
        self.history.append(loss)
        del self.history[:-WINDOW]
        return None


def check_skipped(skipped: list[int]) -> None:
    if len(skipped) > MOST:
        raise SesameError(
            f"{len(skipped)} batches had to be left out: the training diverges; lower the rate "
            "(--set optimizer.rate=...) or lengthen the warm-up (--set schedule.warmup=0.1)"
        )
