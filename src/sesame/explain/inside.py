"""Pictures of what is inside a model, PNG or SVG: attention of one layer, contributions, dropped heads, probes."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from sesame.errors import SesameError
from sesame.explain.attention import Maps
from sesame.explain.attribution import Attribution
from sesame.explain.drawing import COLORS, SIZE, bare, cut, new_figure, write_figure
from sesame.explain.heads import Ablation
from sesame.explain.layers import Probe

LABELLED = 48  # tokens on a side that still have room for their names
COLUMNS = 4  # heads side by side


def draw_attention(maps: Maps, path: Path, layer: int | None = None, head: int | None = None) -> None:
    """All heads of one layer, or one of them; the last layer if none is named. Numbers count from 1."""
    number = _chosen("--layer", layer, len(maps.layers), len(maps.layers))
    shown = maps.layers[number - 1]
    heads = range(len(shown)) if head is None else [_chosen("--head", head, len(shown), 1) - 1]
    wide = min(COLUMNS, len(heads))
    tall = -(-len(heads) // wide)
    rows, columns = shown.shape[1:]
    named = max(rows, columns) <= LABELLED
    width, height = (max(2.4, 0.22 * columns + 0.9), max(2.4, 0.22 * rows + 0.9)) if named else (3.2, 3.2)
    figure = new_figure(width * wide, height * tall + 0.7)
    for place, one in enumerate(heads):
        axes = figure.add_subplot(tall, wide, place + 1)
        axes.imshow(shown[one], cmap="Greys", vmin=0.0, vmax=max(float(shown[one].max()), 1e-6), aspect="equal")
        axes.set_title(f"head {one + 1}", loc="left", fontsize=SIZE - 1)
        axes.set_xticks(range(columns) if named else [], maps.columns if named else [], rotation=90, parse_math=False)
        axes.set_yticks(range(rows) if named else [], maps.rows if named else [], parse_math=False)
        axes.tick_params(length=0, labelsize=SIZE - 4)
    figure.suptitle(
        f"{maps.name}, layer {number} of {len(maps.layers)}. Attention is not explanation.",
        fontsize=SIZE,
        x=0.01,
        ha="left",
    )
    write_figure(figure, path)


def draw_attribution(found: Attribution, path: Path) -> None:
    """A bar for each token: what it adds to the score, or takes from it."""
    figure = new_figure(7.0, 1.4 + 0.24 * len(found.tokens))
    axes = figure.add_subplot()
    colors = [COLORS[0] if value >= 0 else COLORS[1] for value in found.values]
    places = np.arange(len(found.tokens))
    axes.barh(places, found.values, color=colors, height=0.7)
    axes.set_yticks(places, [cut(token) for token in found.tokens], parse_math=False)
    axes.invert_yaxis()
    axes.axvline(0, color="#555555", linewidth=0.8)
    axes.set_xlabel(
        f"adds to {cut_long(found.name)}\n{found.base:.3f} with {found.baseline} everywhere, {found.score:.3f} with the "
        f"text; the bars sum to the difference within {max(found.gap, 1e-4):.2%}",
        fontsize=SIZE - 2,
        parse_math=False,
    )
    bare(axes)
    write_figure(figure, path)


def draw_heads(found: Ablation, path: Path) -> None:
    """A heat map: how the score changes without each head."""
    change = found.change
    most = max(float(np.nanmax(np.abs(change))), 1e-12)
    figure = new_figure(2.2 + 0.55 * change.shape[1], 1.6 + 0.4 * change.shape[0])
    axes = figure.add_subplot()
    image = axes.imshow(change, cmap="RdBu", vmin=-most, vmax=most, aspect="auto")
    axes.set_xticks(range(change.shape[1]), [str(number + 1) for number in range(change.shape[1])])
    axes.set_yticks(range(change.shape[0]), found.layers)
    axes.tick_params(length=0)
    axes.set_xlabel("head")
    axes.set_ylabel("layer")
    axes.set_title(
        f"change of {cut_long(found.name)} without the head", loc="left", fontsize=SIZE - 1, parse_math=False
    )
    figure.colorbar(image, ax=axes, shrink=0.9)
    write_figure(figure, path)


def draw_layers(found: Probe, path: Path, mixes: Mapping[str, Sequence[float]] | None = None) -> None:
    """The probe's score from layer to layer, with the spread over folds; below it what tasks learnt to read of each layer."""
    figure = new_figure(7.0, 4.2 if not mixes else 6.6)
    grid = figure.add_gridspec(2, 1, height_ratios=[3, 2]) if mixes else None
    axes = figure.add_subplot() if grid is None else figure.add_subplot(grid[0])
    at, means, spreads = np.arange(len(found.means)), np.array(found.means), np.array(found.spreads)
    axes.fill_between(at, means - spreads, means + spreads, color=COLORS[0], alpha=0.15, linewidth=0)
    axes.plot(at, means, color=COLORS[0], marker="o", markersize=5)
    axes.errorbar([len(at)], [found.mix[0]], [found.mix[1]], color=COLORS[0], marker="s", markersize=6, capsize=3)
    axes.axhline(found.least, color="#777777", linewidth=0.9, linestyle="--")
    axes.set_xticks(range(len(at) + 1), [name for name, _, _ in found.each()])
    axes.set_xlabel("layer")
    axes.set_ylabel(f"{found.metric} of a linear probe")
    axes.set_title(
        f"{found.rows:,} rows, {found.folds} folds: mean and standard deviation; dashed: without reading",
        loc="left", fontsize=SIZE - 1,
    )  # fmt: skip
    bare(axes)
    if mixes and grid is not None:
        below = figure.add_subplot(grid[1], sharex=axes)
        wide = 0.8 / len(mixes)
        for number, (task, shares) in enumerate(mixes.items()):
            shift = (number - (len(mixes) - 1) / 2) * wide
            below.bar(at + shift, shares, width=wide, color=COLORS[number % len(COLORS)], label=cut(task))
        below.set_ylabel("share that a task reads")
        below.legend(frameon=False, fontsize=SIZE - 3)
        bare(below)
    write_figure(figure, path)


def cut_long(text: str, most: int = 70) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


def _chosen(option: str, wanted: int | None, count: int, default: int) -> int:
    number = default if wanted is None else wanted
    if not 1 <= number <= count:
        raise SesameError(f"{option} {number}: there are 1 to {count}; choose one of them")
    return number
