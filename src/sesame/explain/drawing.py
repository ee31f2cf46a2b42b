"""Pictures as files, PNG, SVG or a page (HTML) by the ending of the name, drawn by matplotlib without its global state.

Words come from the data: none is read as a formula, and letters that the font of a PNG does not have are counted and told; an
SVG holds letters, which whoever shows it draws, and so does the SVG within a page.
"""

import warnings
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sesame.errors import SesameError
from sesame.explain.alignment import Alignment
from sesame.explain.by_length import Group
from sesame.explain.page import write_picture
from sesame.files import whole_file
from sesame.progress import say

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ENDINGS = (".png", ".svg", ".html")
SIZE = 11.0  # of the letters
COLORS = (
    "#2b6cb0",
    "#c05621",
    "#2f855a",
    "#805ad5",
    "#b83280",
    "#744210",
    "#285e61",
    "#4a5568",
)  # readable, told apart
MARKERS = "osD^vP*X"
LONGEST = 28  # letters of a name in a picture


def check_picture(path: Path) -> None:
    if path.suffix.lower() not in ENDINGS:
        raise SesameError(f"--out {path}: must end in .png, .svg or .html")


def draw_alignment(found: Alignment, path: Path, title: str = "") -> None:
    """The source above, the answer on the left; the darker, the more it looked there."""
    rows, columns = found.weights.shape
    figure = new_figure(2.2 + 0.36 * columns, 1.6 + 0.36 * rows)
    axes = figure.add_subplot()
    axes.imshow(found.weights, cmap="Greys", vmin=0.0, vmax=max(float(found.weights.max()), 1e-6), aspect="equal")
    axes.xaxis.tick_top()
    axes.set_xticks(range(columns), found.source, rotation=60, ha="left", rotation_mode="anchor", parse_math=False)
    axes.set_yticks(range(rows), found.answer, parse_math=False)
    axes.tick_params(which="both", length=0)
    axes.set_xticks(np.arange(columns + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(rows + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="#dddddd", linewidth=0.5)
    which = f"layer {found.layer} of {found.layers}, mean of its heads" if found.layers > 1 else "attention"
    shown = title or f"Where the decoder looks ({which})"
    axes.set_xlabel(shown, parse_math=False)
    looks = (f"{word} at {found.source[at]}" for word, at in zip(found.answer, found.weights.argmax(1), strict=True))
    write_figure(figure, path, shown, "Each token of the answer and where it looks most: " + ", ".join(looks))


def draw_vectors(
    vectors: npt.NDArray[np.float32], path: Path, labels: Sequence[str] | None = None, names: Sequence[str] | None = None,
    title: str = "",
) -> None:  # fmt: skip
    """Sentence vectors on their first two principal components; a color for each label, a name beside each point."""
    if len(vectors) < 3:
        raise SesameError(f"{len(vectors)} texts are too few for a picture of their vectors; give at least 3")
    points, shares = components(vectors)
    figure = new_figure(7.0, 5.6)
    axes = figure.add_subplot()
    kinds = list(dict.fromkeys(labels)) if labels is not None else [""]
    given = np.array(labels if labels is not None else [""] * len(vectors))
    for number, kind in enumerate(kinds):
        of_kind = points[given == kind]
        axes.scatter(
            of_kind[:, 0], of_kind[:, 1], s=26, color=COLORS[number % len(COLORS)], alpha=0.8, linewidths=0,
            marker=MARKERS[number % len(MARKERS)], label=cut(kind) or None,
        )  # fmt: skip
    middle = points[:, 0].min() / 2 + points[:, 0].max() / 2
    for (x, y), name in zip(points, names or (), strict=False):
        side, shift = ("right", -5) if x > middle else ("left", 5)  # towards the middle, where there is room
        axes.annotate(
            cut(name), (x, y), (shift, 3), textcoords="offset points", ha=side, fontsize=SIZE - 2, parse_math=False
        )
    if labels is not None:
        _legend(axes)
    axes.set_xlabel(f"first principal component ({shares[0]:.0%} of the variance)")
    axes.set_ylabel(f"second ({shares[1]:.0%})")
    shown = title or f"{len(vectors)} texts, PCA of their vectors"
    axes.set_title(shown, loc="left", fontsize=SIZE, parse_math=False)
    bare(axes)
    of = f", one color for each of {len(kinds)} labels: {', '.join(map(cut, kinds))}" if labels is not None else ""
    write_figure(figure, path, shown, f"{len(vectors)} points on two axes{of}")


def components(vectors: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.float64], list[float]]:
    """The first two principal components (N, 2) and their shares of the variance; signs are fixed, so pictures repeat."""
    moved = vectors.astype(np.float64) - vectors.astype(np.float64).mean(0)
    left, size, right = np.linalg.svd(moved, full_matrices=False)
    points = np.zeros((len(vectors), 2))
    some = min(2, len(size))
    signs = np.sign(right[np.arange(some), np.abs(right[:some]).argmax(1)])
    points[:, :some] = left[:, :some] * size[:some] * signs
    total = max(float((size**2).sum()), 1e-300)
    return points, [*(float(value) for value in size[:some] ** 2 / total), 0.0][:2]


def draw_lengths(groups: Sequence[Group], path: Path, title: str = "") -> None:
    """BLEU over source length, a line with its interval for each system."""
    figure = new_figure(7.0, 4.4)
    axes = figure.add_subplot()
    at = np.arange(len(groups))
    for number, name in enumerate(groups[0].scores):
        scores = [group.scores[name] for group in groups]
        middle = np.array([100 * score.value for score in scores])
        color = COLORS[number % len(COLORS)]
        if all(score.low is not None and score.high is not None for score in scores):
            low, high = (np.array([100 * getattr(score, end) for score in scores]) for end in ("low", "high"))
            axes.fill_between(at, low, high, color=color, alpha=0.12, linewidth=0)
        axes.plot(at, middle, color=color, marker=MARKERS[number % len(MARKERS)], markersize=5, label=cut(name))
    axes.set_xticks(at, [f"{group.name}\n({len(group.rows)})" for group in groups])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("words of the source (sentences)")
    axes.set_ylabel("BLEU")
    shown = title or "BLEU by length of the source"
    axes.set_title(shown, loc="left", fontsize=SIZE, parse_math=False)
    _legend(axes)
    bare(axes)
    each = (", ".join(f"{name} {100 * score.value:.1f}" for name, score in group.scores.items()) for group in groups)
    said = "; ".join(f"{group.name} words: {scores}" for group, scores in zip(groups, each, strict=True))
    write_figure(figure, path, shown, f"BLEU by length. {said}")


# ---- what all of them share -----------------------------------------------------------------------------------------


def new_figure(width: float, height: float) -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=(min(width, 40.0), min(height, 40.0)), layout="constrained")


def bare(axes: "Axes") -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#e5e5e5", linewidth=0.6)
    axes.set_axisbelow(True)


def _legend(axes: "Axes") -> None:
    legend = axes.legend(frameon=False, fontsize=SIZE - 1)
    for text in legend.get_texts():
        text.set_parse_math(False)


def cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def write_figure(figure: "Figure", path: Path, title: str = "", said: str = "") -> None:
    """`title` and `said`, the picture in words, are for a page."""
    check_picture(path)
    from matplotlib import rc_context

    page = path.suffix.lower() == ".html"
    kind = "svg" if page else path.suffix.lower()[1:]
    settings: dict[Any, Any] = {"font.size": SIZE, "svg.fonttype": "none", "svg.hashsalt": "sesame"}
    same = {"Date": None} if kind == "svg" else {"Software": None}  # the same picture is the same file
    if page:
        same |= dict.fromkeys(("Creator", "Format", "Type"))  # a page needs none
    drawn = BytesIO()
    with warnings.catch_warnings(record=True) as told, rc_context(settings):
        warnings.simplefilter("always")
        wide = "tight"  # titles wider than the axes
        figure.savefig(drawn, format=kind, dpi=160, metadata=same, bbox_inches=wide, transparent=page)
    if page:
        write_picture(drawn.getvalue().decode("utf-8"), path, title, said)
        return
    with whole_file(path) as handle:
        handle.write(drawn.getvalue())
    missing = {str(one.message) for one in told if "Glyph" in str(one.message)}
    if missing and kind == "png":
        say(f"{path}: the font lacks {len(missing)} letters of the text; take .svg, which a browser draws with its own")
