"""Learning curves for a screen: a smooth line through all values, then no more points than a screen can show.

    smooth_t = m_t / (1 - b^t),  m_t = b m_(t-1) + (1 - b) x_t,  b = 1 - 1 / max(4, n / 50)

The mean that forgets (corrected for its start at 0 as Adam's, Kingma & Ba 2015) looks back over a fiftieth of the run. It is
taken over all n values; only then points are left out.

Unusual: of each stretch the lowest and the highest value stay, so that a spike of one step is still seen, and every point
that is shown stands in the log.
"""

from collections.abc import Sequence
from typing import Any

from sesame.runs import Point, RunLine

POINTS = 400  # of a curve
CURVES = 16  # held-out ones of a run


def curves_of(run: RunLine) -> dict[str, Any]:
    """Columns of numbers: `train` (with `rate` where it was told), and a held-out curve for each name."""
    clock = {step: told for step, *told in run.clock}
    rates = dict(run.rate)
    kept = thinned([value for _, value in run.loss])
    smooth = smoothed([value for _, value in run.loss])
    train = _columns([run.loss[place] for place in kept], clock, run)
    train["smooth"] = [short(smooth[place]) for place in kept]
    train["rate"] = [short(rates[step]) if step in rates else None for step in train["step"]]
    train["loss"] = train.pop("value")
    held_out = {}
    for name, points in list(run.held_out.items())[:CURVES]:
        places = thinned([value for _, value in points])
        held_out[name] = _columns([points[place] for place in places], clock, run)
    return {"train": train, "held_out": held_out}


def _columns(points: Sequence[Point], clock: dict[int, list[Any]], run: RunLine) -> dict[str, Any]:
    """Each point with its three places on the x axis; None for a count that the run does not keep."""
    told = [clock[step] for step, _ in points]
    return {
        "step": [step for step, _ in points],
        "tokens": [tokens for tokens, _ in told] if run.tokens else None,
        "seconds": [seconds for _, seconds in told] if run.seconds else None,
        "value": [short(value) for _, value in points],
    }


def smoothed(values: Sequence[float]) -> list[float]:
    beta = 1 - 1 / max(4.0, len(values) / 50)
    found, mean, weight = [], 0.0, 0.0
    for value in values:
        mean, weight = beta * mean + (1 - beta) * value, beta * weight + (1 - beta)
        found.append(mean / weight)
    return found


def thinned(values: Sequence[float], most: int = POINTS) -> list[int]:
    """Which values stay: all, or the first, the last, and of each stretch between them the lowest and the highest."""
    count = len(values)
    if count <= most:
        return list(range(count))
    stretches = (most - 2) // 2
    cuts = [1 + round(number * (count - 2) / stretches) for number in range(stretches + 1)]
    kept = {0, count - 1}
    for stretch in map(range, cuts, cuts[1:]):
        kept |= {min(stretch, key=values.__getitem__), max(stretch, key=values.__getitem__)}
    return sorted(kept)


def short(value: float) -> float:
    """Six digits: more cannot be seen, and would be most of the answer."""
    return float(f"{value:.6g}")
