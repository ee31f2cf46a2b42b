"""A picture for the documentation: how the scores of several methods grow with the number of labels."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sesame.evaluate.picture import SIZE, Picture, bare
from sesame.evaluate.wording import clean, number
from sesame.files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    picture = Picture("few labels", 40 + 270 * across, 60 + 230 * down + 22 * math.ceil(len(methods) / 4))
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
    picture: Picture, axes: "Axes", panel: Mapping[str, Mapping[Any, Sequence[float]]], methods: list[str]
) -> None:
    bare(axes)
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


def _legend(picture: Picture, methods: list[str]) -> None:
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
