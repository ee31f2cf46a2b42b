"""The pictures of a report: scores against baselines, learning curves, the confusion matrix, reliability."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sesame.evaluate.picture import ACCENT, INK, LINE, MUTED, PAPER, SIZE, WARM, Picture
from sesame.evaluate.wording import columns, number, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN_CLASSES = 20  # of a confusion matrix
SHOWN_POINTS = 150  # of a curve

Curve = list[tuple[float, float]]


# ---- how good, how sure, against what -------------------------------------------------------------------------------


def score_picture(metric: str, score: Mapping[str, Any], baselines: Sequence[tuple[str, float]]) -> str:
    """The score of each seed as a dot, their mean and 95 % interval, and the baselines below.

    `baselines` has the best one first; it is also a dashed line: an interval that stays clear of it is a result. Dots need
    no zero, so the axis shows the model and its best rival; an arrow stands for a baseline that is far outside.
    """
    values = [value for given in score.get("values") or [] if (value := number(given)) is not None]
    mean, low, high = number(score.get("mean")), number(score.get("low")), number(score.get("high"))
    near = [value for value in (*values, mean, low, high, *(value for _, value in baselines[:1])) if value is not None]
    room = 0.5 * (max(near) - min(near)) or 0.05
    left, right = min(near) - room, max(near) + room
    picture = Picture("score", height=76 + 30 * len(baselines))
    labels = [picture.word("this model", 16), *(picture.word(name, 16) for name, _ in baselines)]
    axes = picture.axes(left=24 + 6.2 * max(map(len, labels)), right=52, bottom=36)
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x", color=LINE, linewidth=0.8)
    _rivals(axes, baselines, left, right)
    _ours(axes, values, mean, low, high)
    _figures(axes, [mean, *(value for _, value in baselines)])
    axes.set_yticks(range(len(labels)), labels, color=INK)
    axes.tick_params(axis="y", pad=11)
    axes.set_ylim(len(baselines) + 0.5, -0.6)
    axes.set_xlim(left, right)
    axes.set_xlabel(picture.word(metric), color=MUTED, size=SIZE)
    axes.locator_params(axis="x", nbins=5)
    others = "".join(f"; {name} {shown(value)}" for name, value in baselines)
    sure = f", 95 % interval {shown(low)} to {shown(high)}" if low is not None and high is not None else ""
    return picture.inline(f"{metric}: this model {shown(mean)}{sure}{others}.")


def _rivals(axes: "Axes", baselines: Sequence[tuple[str, float]], left: float, right: float) -> None:
    for row, (_, value) in enumerate(baselines, start=1):
        shape = "<" if value < left else ">" if value > right else "s"  # the value itself stands at the right
        place = min(max(value, left), right)
        axes.plot([place], [row], shape, color=WARM if row == 1 else MUTED, markersize=6, clip_on=False)
    if baselines:
        axes.axvline(baselines[0][1], color=WARM, linewidth=1, linestyle=(0, (3, 3)))


def _ours(axes: "Axes", values: Sequence[float], mean: float | None, low: float | None, high: float | None) -> None:
    if low is not None and high is not None:
        axes.plot([low, high], [0, 0], color=ACCENT, linewidth=14, alpha=0.25, solid_capstyle="butt")
    axes.plot(values, [0.14 * (-1) ** k for k in range(len(values))], "o", color=ACCENT, markersize=3.5, alpha=0.8)
    if mean is not None:
        axes.plot([mean, mean], [-0.32, 0.32], color=ACCENT, linewidth=2.5)


def _figures(axes: "Axes", values: Sequence[float | None]) -> None:
    """The values themselves, at the right."""
    for row, value in enumerate(values):
        style: dict[str, Any] = {"color": MUTED} if row else {"color": INK, "weight": "bold"}
        axes.text(1.04, row, shown(value), transform=axes.get_yaxis_transform(), size=SIZE, va="center", **style)


# ---- learning curves ------------------------------------------------------------------------------------------------


def tidy_curve(points: Any) -> Curve:
    """The known points of a curve, in order of steps; long ones become the means of `SHOWN_POINTS` equal stretches."""
    known = [(number(step), number(value)) for step, value in filter(None, points or [])]
    curve = sorted((step, value) for step, value in known if step is not None and value is not None)
    if len(curve) <= SHOWN_POINTS:
        return curve
    edges = [round(part * len(curve) / SHOWN_POINTS) for part in range(SHOWN_POINTS + 1)]
    parts = [curve[start:end] for start, end in pairwise(edges)]
    return [(sum(s for s, _ in part) / len(part), sum(v for _, v in part) / len(part)) for part in parts]


def _mean_curve(curves: Sequence[Curve]) -> Curve:
    """The mean of several curves over the steps that all of them have, each read between its points."""
    import numpy as np

    start, end = max(curve[0][0] for curve in curves), min(curve[-1][0] for curve in curves)
    steps = sorted({step for curve in curves for step, _ in curve if start <= step <= end})
    if len(steps) > SHOWN_POINTS:
        steps = np.linspace(start, end, SHOWN_POINTS).tolist()
    read = [np.interp(steps, [step for step, _ in curve], [value for _, value in curve]) for curve in curves]
    return list(zip(steps, np.mean(read, axis=0).tolist(), strict=True))


def curve_picture(what: str, given: Sequence[Any]) -> str:
    """One thin line for each seed and a thick one for their mean; "" when no seed has a point."""
    curves = [curve for points in given if (curve := tidy_curve(points))]
    if not curves:
        return ""
    picture = Picture(f"curve of {what}", height=220)
    axes = picture.axes()
    marker = "o" if max(map(len, curves)) <= 12 else ""
    for curve in curves if len(curves) > 1 else []:
        axes.plot(*zip(*curve, strict=True), color=ACCENT, alpha=0.4, linewidth=0.9, marker=marker, markersize=2.5)
    if mean := _mean_curve(curves):
        axes.plot(*zip(*mean, strict=True), color=ACCENT, linewidth=2.2, marker=marker, markersize=4)
    axes.set_xlabel("step", color=MUTED, size=SIZE)
    axes.locator_params(nbins=5)
    axes.xaxis.set_major_formatter(lambda step, _: f"{step / 1000:g}k" if step >= 10_000 else f"{step:g}")
    ends = [curve[-1][1] for curve in curves]
    seeds = f"{len(curves)} seeds" if len(curves) > 1 else "one seed"
    return picture.inline(f"{what} by step, {seeds}: it ends at {shown(sum(ends) / len(ends))}.")


# ---- confusion ------------------------------------------------------------------------------------------------------


def most_confused(counts: Sequence[Sequence[float]], limit: int = SHOWN_CLASSES) -> list[int]:
    """The `limit` classes with the most mistakes, as gold or as answer, in their own order."""
    wrong = [sum(row) + sum(other[k] for other in counts) - 2 * row[k] for k, row in enumerate(counts)]
    worst = sorted(range(len(counts)), key=lambda k: (-wrong[k], k))[:limit]
    return sorted(worst)


def confusion_picture(labels: Sequence[str], counts: Sequence[Sequence[float]]) -> str:
    """Rows: the gold label; columns: the answer. The shade is the share of the row: right ones and mistakes by hue."""
    chosen = most_confused(counts)
    cell = 44 if len(chosen) <= 6 else 30 if len(chosen) <= 12 else 24
    margin = 22 + 6 * min(22, max(columns(str(labels[k])) for k in chosen))
    side = cell * len(chosen)
    picture = Picture("confusion", max(margin + side + 14, 264), 26 + side + 0.75 * margin + 14)
    axes = picture.axes(left=margin, right=picture.width - margin - side, top=26, bottom=0.75 * margin + 14)
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)
    _cells(axes, chosen, counts, cell)
    words = [picture.word(labels[k], 22) for k in chosen]
    axes.set_yticks(range(len(chosen)), words, color=INK)
    axes.set_xticks(range(len(chosen)), words, color=INK, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_xlim(-0.5, len(chosen) - 0.5)
    axes.set_ylim(len(chosen) - 0.5, -0.5)
    told = "rows: what is right; columns: what the model said"
    axes.set_title(told, size=SIZE - 1, color=MUTED, loc="left", x=-margin / side)  # few classes are narrower than it
    right, total = sum(row[k] for k, row in enumerate(counts)), sum(map(sum, counts))
    return picture.inline(
        f"Confusion matrix of {len(chosen)} of {len(counts)} classes; {right:g} of all {total:g} answers are right."
    )


def _cells(axes: "Axes", chosen: Sequence[int], counts: Sequence[Sequence[float]], cell: int) -> None:
    from matplotlib.patches import Rectangle

    for y, gold in enumerate(chosen):
        total = sum(counts[gold])
        for x, said in enumerate(chosen):
            share = counts[gold][said] / total if total else 0.0
            color = ACCENT if gold == said else WARM
            shade = (color, 0.08 + 0.92 * share) if share else (LINE, 0.25)
            axes.add_patch(Rectangle((x - 0.47, y - 0.47), 0.94, 0.94, linewidth=0, facecolor=shade))
            if share:
                text = _count(counts[gold][said])
                size = min(SIZE, 1.45 * cell / max(len(text), 2))
                axes.text(x, y, text, ha="center", va="center", size=size, color=PAPER if share > 0.55 else INK)


def _count(count: float) -> str:
    return f"{count:g}" if count < 10_000 else f"{count / 1000:.0f}k"


# ---- calibration ----------------------------------------------------------------------------------------------------


def reliability_picture(bins: Sequence[Mapping[str, Any]]) -> str:
    """How often the model is right at each confidence; on the dashed line its probabilities can be taken at their word.

    The size of a dot and the bars at the bottom say how many answers stand behind it; "" when there are none.
    """
    known = [
        tuple(number(part.get(key)) for key in ("confidence", "accuracy", "count", "low", "high")) for part in bins
    ]
    points = [(c, a, n, low, high) for c, a, n, low, high in known if c is not None and a is not None and n]
    if not points:
        return ""
    most = max(n for _, _, n, _, _ in points)
    picture = Picture("reliability", height=270)
    axes = picture.axes(bottom=40)
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (3, 3)))
    for c, a, n, low, high in points:
        left, right = (low, high) if low is not None and high is not None else (c - 0.02, c + 0.02)
        axes.bar((left + right) / 2, 0.2 * n / most, width=0.9 * (right - left), color=MUTED, alpha=0.25)
        axes.plot([c, c], [c, a], color=WARM, linewidth=1.5, alpha=0.8)
    axes.plot([c for c, *_ in points], [a for _, a, *_ in points], color=ACCENT, linewidth=1, alpha=0.5)
    sizes = [12 + 70 * n / most for _, _, n, _, _ in points]
    axes.scatter([c for c, *_ in points], [a for _, a, *_ in points], s=sizes, color=ACCENT, linewidths=0, zorder=3)
    axes.set_xlim(-0.02, 1.03)
    axes.set_ylim(0, 1.04)
    axes.set_xlabel("how sure the model is", color=MUTED, size=SIZE)
    told = "; ".join(f"{c:.0%} sure, {a:.0%} right ({n:.0f})" for c, a, n, _, _ in points)
    return picture.inline(f"Reliability: {told}.")
