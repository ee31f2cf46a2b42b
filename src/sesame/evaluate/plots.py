"""The pictures of a report, drawn by matplotlib as SVG that lives inside the page.

Three things are unusual here.
- The colors are roles: a figure is drawn in stand-in colors that become the page's CSS variables, so that one picture is
  right in the light and in the dark.
- Words from the data never reach matplotlib. It draws an ASCII stand-in of about the same width, and the word itself,
  escaped, takes its place in the SVG: any script is drawn by the reader's own fonts, and "$", "<" or a missing glyph
  cannot break a picture.
- Figures are made without pyplot: there is no global state, and nothing to close.
"""

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from html import escape
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sesame.files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN_CLASSES = 20  # of a confusion matrix
SHOWN_POINTS = 150  # of a curve
WIDTH = 360  # of a picture, in CSS pixels: as wide as a phone
SIZE = 11.0  # of the letters

# The stand-in colors and the CSS variables that they become.
INK, MUTED, LINE, ACCENT, WARM, PAPER = "#010101", "#020202", "#030303", "#040404", "#050505", "#060606"
_ROLES = {INK: "ink", MUTED: "muted", LINE: "line", ACCENT: "accent", WARM: "warm", PAPER: "paper"}

Curve = list[tuple[float, float]]


def number(value: Any) -> float | None:
    """`value` as a finite number, or None: results come from JSON, where NaN and null both mean "not known"."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if math.isfinite(found) else None


def shown(value: Any) -> str:
    """A score as people read it: 0.912, 88.4, or a dash."""
    found = number(value)
    if found is None:
        return "–"
    return f"{found:.3f}" if abs(found) < 10 else f"{found:,.1f}"


def clean(text: Any) -> str:
    """`text` for HTML and SVG: escaped, and without the characters that no document may hold."""
    kept = re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]", "\ufffd", str(text))
    return escape(kept)


def _columns(text: str) -> int:
    """The width of a text in Latin letters: Chinese counts double, combining marks not at all."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _cut(text: str, limit: int) -> str:
    if _columns(text) <= limit:
        return text
    while text and _columns(text) > limit - 1:
        text = text[:-1]
    return text.rstrip() + "…"


class _Picture:
    """One figure; sizes and margins are CSS pixels."""

    def __init__(self, name: str, width: float = WIDTH, height: float = 230) -> None:
        from matplotlib.figure import Figure

        self.name, self.width, self.height = name, width, height
        self.figure = Figure(figsize=(width / 72, height / 72))  # the SVG backend counts 72 dots an inch
        self.names: dict[str, str] = {}

    def axes(self, left: float = 46, right: float = 12, top: float = 10, bottom: float = 38) -> "Axes":
        box = (left / self.width, bottom / self.height)
        axes = self.figure.add_axes((*box, 1 - (left + right) / self.width, 1 - (top + bottom) / self.height))
        _bare(axes)
        return axes

    def word(self, text: Any, limit: int = 24) -> str:
        """The stand-in for a word of the data, about as wide as the word."""
        word = _cut(" ".join(str(text).split()), limit)
        stand_in = f"~{len(self.names)}".ljust(_columns(word), "n")
        self.names[stand_in] = clean(word)
        return stand_in

    def svg(self) -> str:
        """The whole SVG file, with the words in place; the same figure gives the same bytes."""
        import matplotlib

        text = StringIO()
        with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": self.name}):
            self.figure.savefig(text, format="svg", metadata={"Date": None}, transparent=True)
        return re.sub(r">(~\d+n*)</text>", lambda found: f">{self.names[found[1]]}</text>", text.getvalue())

    def inline(self, told: str) -> str:
        """The SVG for a page: colored by the page, with the text `told` for those who cannot see it."""
        text = self.svg()
        text = text[text.index("<svg") :]
        text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.DOTALL)
        text = re.sub(r'<g id="[^"]*"', "<g", text)  # the same in every figure, and nobody asks for them
        text = re.sub(r"<[^>]*>", _in_roles, text)
        limits = f"min-width:{0.8 * self.width:.0f}px;max-width:{1.3 * self.width:.0f}px"
        opening = f'<svg viewBox="0 0 {self.width:g} {self.height:g}" role="img" aria-label="{clean(told)}"'
        return re.sub(r"<svg[^>]*>", lambda _: f'{opening} style="{limits}">', text, count=1)


def _in_roles(tag: re.Match[str]) -> str:
    """Inside a tag: colors become the page's, and letters take the page's font."""
    colored = re.sub(r"#(0[1-6])\1\1\b", lambda found: f"var(--{_ROLES[found[0]]})", tag[0])
    return re.sub(r"font-family: [^;\"]*;? ?", "", colored)


def _bare(axes: "Axes") -> None:
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(LINE)
    axes.tick_params(length=0, labelsize=SIZE, labelcolor=MUTED, pad=5)
    axes.grid(axis="y", color=LINE, linewidth=0.8)
    axes.set_axisbelow(True)


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
    picture = _Picture("score", height=76 + 30 * len(baselines))
    labels = [picture.word("this model", 16), *(picture.word(name, 16) for name, _ in baselines)]
    axes = picture.axes(left=24 + 6.2 * max(map(len, labels)), right=52, bottom=36)
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x", color=LINE, linewidth=0.8)
    for row, (_, value) in enumerate(baselines, start=1):
        shape = "<" if value < left else ">" if value > right else "s"  # the value itself stands at the right
        place = min(max(value, left), right)
        axes.plot([place], [row], shape, color=WARM if row == 1 else MUTED, markersize=6, clip_on=False)
    if baselines:
        axes.axvline(baselines[0][1], color=WARM, linewidth=1, linestyle=(0, (3, 3)))
    if low is not None and high is not None:
        axes.plot([low, high], [0, 0], color=ACCENT, linewidth=14, alpha=0.25, solid_capstyle="butt")
    axes.plot(values, [0.14 * (-1) ** k for k in range(len(values))], "o", color=ACCENT, markersize=3.5, alpha=0.8)
    if mean is not None:
        axes.plot([mean, mean], [-0.32, 0.32], color=ACCENT, linewidth=2.5)
    for row, value in enumerate([mean, *(value for _, value in baselines)]):
        style: dict[str, Any] = {"color": MUTED} if row else {"color": INK, "weight": "bold"}
        axes.text(1.04, row, shown(value), transform=axes.get_yaxis_transform(), size=SIZE, va="center", **style)
    axes.set_yticks(range(len(labels)), labels, color=INK)
    axes.tick_params(axis="y", pad=11)
    axes.set_ylim(len(baselines) + 0.5, -0.6)
    axes.set_xlim(left, right)
    axes.set_xlabel(picture.word(metric), color=MUTED, size=SIZE)
    axes.locator_params(axis="x", nbins=5)
    others = "".join(f"; {name} {shown(value)}" for name, value in baselines)
    sure = f", 95 % interval {shown(low)} to {shown(high)}" if low is not None and high is not None else ""
    return picture.inline(f"{metric}: this model {shown(mean)}{sure}{others}.")


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
    picture = _Picture(f"curve of {what}", height=220)
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
    from matplotlib.patches import Rectangle

    chosen = most_confused(counts)
    cell = 44 if len(chosen) <= 6 else 30 if len(chosen) <= 12 else 24
    margin = 22 + 6 * min(22, max(_columns(str(labels[k])) for k in chosen))
    side = cell * len(chosen)
    picture = _Picture("confusion", max(margin + side + 14, 264), 26 + side + 0.75 * margin + 14)
    axes = picture.axes(left=margin, right=picture.width - margin - side, top=26, bottom=0.75 * margin + 14)
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)
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
    picture = _Picture("reliability", height=270)
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


# ---- a picture for the documentation --------------------------------------------------------------------------------

# Okabe and Ito's colors, which people with any color vision can tell apart; the markers say it a second time.
_PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
_MARKERS = "osD^vPX"


def few_labels(curves: Mapping[str, Any], path: Path) -> None:
    """Write an SVG of score against labels: one panel a set, one color a method, a band from the lowest seed to the highest.

    `curves`: {"title", "x", "y", "sets": {set: {method: {labels: [a value for each seed]}}}}.
    """
    from matplotlib.patches import Rectangle

    sets: Mapping[str, Mapping[str, Mapping[Any, Sequence[float]]]] = curves["sets"]
    methods = list(dict.fromkeys(method for panel in sets.values() for method in panel))
    down = max(1, math.ceil(len(sets) / 3))
    across = max(1, math.ceil(len(sets) / down))
    picture = _Picture("few labels", 40 + 270 * across, 60 + 230 * down + 22 * math.ceil(len(methods) / 4))
    whole = picture.figure.transFigure
    picture.figure.add_artist(
        Rectangle((0, 0), 1, 1, transform=whole, facecolor="#ffffff", zorder=-1)
    )  # also in the dark
    for place, (name, panel) in enumerate(sets.items()):
        left, top = 52 + 270 * (place % across), 66 + 230 * (place // across)
        box = (left / picture.width, 1 - (top + 160) / picture.height, 222 / picture.width, 160 / picture.height)
        axes = picture.figure.add_axes(box)
        _panel(picture, axes, panel, methods)
        axes.set_title(picture.word(name, 36), size=12, loc="left", color="#222222", weight="bold")
        axes.set_xlabel(picture.word(curves.get("x", ""), 36), size=SIZE, color="#555555")
        if place % across == 0:
            axes.set_ylabel(picture.word(curves.get("y", ""), 24), size=SIZE, color="#555555", rotation_mode="anchor")
    picture.figure.text(14 / picture.width, 1 - 28 / picture.height, picture.word(curves.get("title", ""), 90), size=14)
    _legend(picture, methods)
    described = f'<svg role="img" aria-label="{clean(curves.get("title", ""))}"'
    write_whole(path, picture.svg().replace("<svg", described, 1))


def _panel(
    picture: _Picture, axes: "Axes", panel: Mapping[str, Mapping[Any, Sequence[float]]], methods: list[str]
) -> None:
    _bare(axes)
    axes.spines["bottom"].set_color("#bbbbbb")
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    seen: set[float] = set()
    for method, points in panel.items():
        known = {float(x): [v for v in map(number, values) if v is not None] for x, values in points.items()}
        xs = sorted(x for x, values in known.items() if values)
        seen.update(xs)
        kind = methods.index(method) % len(_PALETTE)
        means = [sum(known[x]) / len(known[x]) for x in xs]
        axes.fill_between(
            xs, [min(known[x]) for x in xs], [max(known[x]) for x in xs], color=_PALETTE[kind], alpha=0.18, linewidth=0
        )
        axes.plot(xs, means, color=_PALETTE[kind], marker=_MARKERS[kind], markersize=4.5, linewidth=1.8)
    if smallest := min((x for x in seen if x > 0), default=None):
        axes.set_xscale("symlog" if min(seen) <= 0 else "log", **({"linthresh": smallest} if min(seen) <= 0 else {}))
    axes.set_xticks(sorted(seen), [f"{x:g}" for x in sorted(seen)])
    axes.set_xticks([], minor=True)
    axes.tick_params(labelcolor="#555555")


def _legend(picture: _Picture, methods: list[str]) -> None:
    from matplotlib.lines import Line2D

    lines = [
        Line2D([], [], color=_PALETTE[k % 7], marker=_MARKERS[k % 7], markersize=5, linewidth=1.8)
        for k in range(len(methods))
    ]
    picture.figure.legend(
        lines,
        [picture.word(method, 30) for method in methods],
        loc="lower center",
        ncols=min(4, max(1, len(methods))),
        frameon=False,
        fontsize=SIZE,
        labelcolor="#222222",
    )
