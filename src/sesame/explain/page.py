"""Explanations as single HTML pages: no network, light or dark as the reader likes.

Contributions, dropped heads and probes need no script; attention has one of ours, in `attention.js`, and its numbers inside
the page: 16 bits for each weight, in Base64.

A picture that has no page of its own kind (`drawing.py`) becomes one as it is, its SVG inside; in the dark its lightness is
turned round, not its hues.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np

from sesame.errors import SesameError
from sesame.evaluate.wording import clean
from sesame.explain.attention import CAPTION, Maps
from sesame.explain.attribution import Attribution
from sesame.explain.heads import Ablation
from sesame.explain.layers import Probe
from sesame.files import write_whole

MOST = 40_000_000  # weights of a page: about 100 MB
_STYLE = """
:root{color-scheme:light dark;--ink:#1a202c;--paper:#fff;--soft:#4a5568;--line:#cbd5e0;--plus:43,108,176;--minus:192,86,33}
@media(prefers-color-scheme:dark){:root{--ink:#e2e8f0;--paper:#12161d;--soft:#a0aec0;--line:#3a4454;--plus:99,179,237;
--minus:246,173,85}}
body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:var(--ink);
background:var(--paper)}
h1{font-size:1.4rem}h2{font-size:1.1rem}.note{color:var(--soft)}.wide{overflow-x:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}th,td{padding:.25rem .6rem;border:1px solid var(--line);
text-align:right}th:first-child{text-align:left}
.text{line-height:2.4}.text span{padding:.15rem .3rem;margin:.1rem;border-radius:.25rem;white-space:pre}
.plus{background:rgba(var(--plus),var(--much))}.minus{background:rgba(var(--minus),var(--much))}
"""
_ATTENTION = """
.bar{display:flex;flex-wrap:wrap;gap:.5rem 1.2rem;align-items:center;margin:1rem 0}select,button{font:inherit}
#thumbs{display:grid;gap:.25rem;justify-content:start;overflow-x:auto;margin:1rem 0}#thumbs button{padding:0;
border:2px solid var(--line);background:none;line-height:0;cursor:pointer}
#thumbs button[aria-pressed=true]{border-color:rgb(var(--plus))}
#thumbs span{line-height:1.2;align-self:center;font-size:.8rem;color:var(--soft)}
#said{min-height:1.6em;font-variant-numeric:tabular-nums}#matrix,#lines{overflow:auto;max-height:80vh}
svg text{fill:var(--ink);font:13px system-ui,sans-serif}svg .hot{font-weight:700}svg line{stroke:rgb(var(--plus))}
svg rect{fill:rgb(var(--plus))}svg rect.cell{stroke:var(--line);stroke-width:.3}
"""
_PICTURE = """
svg{max-width:100%;height:auto}
@media(prefers-color-scheme:dark){svg{filter:invert(.9) hue-rotate(180deg)}}
"""


def _whole(path: Path, title: str, body: str, style: str = "", script: str = "", images: bool = False) -> None:
    rules = "default-src 'none'; style-src 'unsafe-inline'" + ("; script-src 'unsafe-inline'" if script else "")
    rules += "; img-src data:" if images else ""  # within the page, nothing is fetched
    write_whole(
        path,
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{clean(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{rules}">\n'
        f"<style>{_STYLE}{style}</style>\n</head>\n<body>\n<main>\n<h1>{clean(title)}</h1>\n{body}\n</main>\n{script}</body>\n</html>\n",
    )


# ---- attention --------------------------------------------------------------------------------------------------------


def write_attention(found: Sequence[Maps], path: Path, title: str = "Attention") -> None:
    """All layers and heads: thumbnails, the matrix of one head, and its lines."""
    count = sum(layer.size for maps in found for layer in maps.layers)
    if count > MOST:
        raise SesameError(
            f"{path}: {count:,} weights are too many for a page; shorten the text or take .png with --layer"
        )
    body = (
        f'<p class="note">{clean(CAPTION)}</p>\n<div class="bar" role="group" aria-label="What is shown">'
        '<label>Kind <select id="kind"></select></label><label>Layer <select id="layer"></select></label>'
        '<label>Head <select id="head"></select></label></div>\n'
        '<h2>All heads</h2><p class="note">A row is a layer, from the first; choose one.</p><div id="thumbs"></div>\n'
        '<p id="said" aria-live="polite"></p>\n<h2>Matrix</h2><p class="note">A row looks at its columns; its weights sum to '
        '1.</p><div id="matrix" tabindex="0" role="region" aria-label="Matrix"></div>\n<h2>Lines</h2><p class="note">Left '
        'looks at right; point at a token to see its own.</p><div id="lines" tabindex="0" role="region" aria-label="Lines">'
        "</div>\n<noscript>This page needs its script to draw.</noscript>"
    )
    data = json.dumps([_packed(maps) for maps in found], ensure_ascii=True).replace("<", "\\u003c")
    code = files("sesame.explain").joinpath("attention.js").read_text(encoding="utf-8")
    script = f'<script type="application/json" id="data">{data}</script>\n<script>\n{code}</script>\n'
    _whole(path, title, body, _ATTENTION, script)


def _packed(maps: Maps) -> dict[str, object]:
    whole = [np.round(np.clip(layer, 0, 1) * 65535).astype("<u2") for layer in maps.layers]
    return {
        "name": maps.name, "rows": [_safe(token) for token in maps.rows], "columns": [_safe(t) for t in maps.columns],
        "heads": [len(layer) for layer in whole],
        "weights": [base64.b64encode(layer.tobytes()).decode("ascii") for layer in whole],
    }  # fmt: skip


def _safe(token: str) -> str:
    """Half of a surrogate pair is no character."""
    return token.encode("utf-8", "replace").decode("utf-8")


# ---- a picture --------------------------------------------------------------------------------------------------------


def write_picture(svg: str, path: Path, title: str, said: str) -> None:
    """An SVG of matplotlib's; `said` is the picture in words, for those who do not see it."""
    drawn = svg[svg.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{clean(said)}"', 1)
    _whole(path, title, f'<div class="wide">{drawn}</div>', _PICTURE, images=True)


# ---- contributions ----------------------------------------------------------------------------------------------------


def write_attribution(found: Attribution, path: Path, title: str = "What each token adds") -> None:
    most = max([abs(value) for value in found.values] or [0.0]) or 1.0
    tokens = " ".join(
        f'<span class="{"plus" if value >= 0 else "minus"}" style="--much:{0.75 * abs(value) / most:.3f}" '
        f'title="{value:+.4f}">{clean(token)}</span>'
        for token, value in zip(found.tokens, found.values, strict=True)
    )
    rows = "".join(
        f"<tr><th>{clean(token)}</th><td>{value:+.4f}</td></tr>"
        for token, value in zip(found.tokens, found.values, strict=True)
    )
    total, difference = sum(found.values), found.score - found.base
    body = (
        f"<p>Asked about: {clean(found.name)}. It is {found.base:.4f} where {clean(found.baseline)} stands for every token "
        f"of the text, and {found.score:.4f} with the text: a difference of {difference:+.4f}.</p>\n"
        f'<p class="text">{tokens}</p>\n<p class="note">Blue adds to it, orange takes from it. Integrated gradients in '
        f"{found.steps} steps; the contributions sum to {total:+.4f}, which misses the difference by {found.gap:.2%}. "
        "They depend on the baseline, and say what this model did with this text: not what is true of the words, nor what "
        'another text would change.</p>\n<div class="wide"><table><thead><tr><th>token</th><th>adds</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )
    _whole(path, title, body)


# ---- heads and layers -------------------------------------------------------------------------------------------------


def write_heads(found: Ablation, path: Path, title: str = "What each head is worth") -> None:
    change = found.change
    most = float(np.nanmax(np.abs(change))) or 1.0
    head = "".join(f"<th>{number + 1}</th>" for number in range(change.shape[1]))
    rows = "".join(
        f"<tr><th>{clean(name)}</th>" + "".join(_cell(value, most) for value in row) + "</tr>"
        for name, row in zip(found.layers, change.tolist(), strict=True)
    )
    sure = "" if found.between is None else (
        f" on {found.rows:,} rows (95 % interval {found.between[0]:.4f} to {found.between[1]:.4f}: smaller changes may "
        "be luck)"
    )  # fmt: skip
    body = (
        f"<p>Measured: {clean(found.name)}. With all heads it is {found.whole:.4f}{sure}.</p>\n"
        f'<div class="wide"><table><caption class="note">Change without the head (columns) of the layer (rows)</caption>'
        f"<thead><tr><th>layer</th>{head}</tr></thead><tbody>{rows}</tbody></table></div>\n"
        '<p class="note">Orange: it falls without the head, so the head helped; blue: it rises. One head is dropped at a '
        "time. Heads that stand in for each other look useless one by one, so the changes do not add up.</p>"
    )
    _whole(path, title, body)


def _cell(value: float, most: float) -> str:
    if np.isnan(value):
        return "<td></td>"
    kind = "plus" if value >= 0 else "minus"
    return f'<td class="{kind}" style="--much:{0.75 * abs(value) / most:.3f}">{value:+.4f}</td>'


def write_layers(
    found: Probe, path: Path, mixes: Mapping[str, Sequence[float]] | None = None, title: str = "What each layer knows"
) -> None:
    """`mixes`: how much of each layer tasks read, as `learnt_mixes` gives it."""
    rows = "".join(
        f"<tr><th>{name}</th><td>{mean:.4f}</td><td>± {spread:.4f}</td></tr>" for name, mean, spread in found.each()
    )
    body = (
        f"<p>A linear probe on the frozen states of each layer: {found.metric} over {found.folds} folds of {found.rows:,} "
        f"rows. Without reading it is {found.least:.4f}.</p>\n{_curve(found)}\n"
        f'<div class="wide"><table><thead><tr><th>layer</th><th>{found.metric}</th><th>spread</th></tr></thead><tbody>{rows}'
        '</tbody></table></div>\n<p class="note">mix: the mean of the states of all layers. A probe tells what can be read '
        "off a layer by a straight cut, not whether the model uses it. Layers whose spreads overlap cannot be told apart.</p>"
        + "".join(_learnt(name, shares) for name, shares in (mixes or {}).items())
    )
    _whole(path, title, body)


def _learnt(task: str, shares: Sequence[float]) -> str:
    """What a task reads of each layer."""
    most = max(shares)
    rows = "".join(
        f'<tr><th>{"embeddings" if number == 0 else number}</th><td class="plus" style="--much:{0.75 * share / most:.3f}">'
        f"{share:.1%}</td></tr>"
        for number, share in enumerate(shares)
    )
    return (
        f"\n<h2>What the task {clean(task)} reads</h2>\n<p>It learnt how much of each layer to mix.</p>\n"
        f'<div class="wide"><table><thead><tr><th>layer</th><th>share</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _curve(found: Probe) -> str:
    """The means with their spreads, as SVG in the page's colors; the mix stands apart."""
    each = found.each()
    low = min([found.least, *(m - s for _, m, s in each)])
    high = max(m + s for _, m, s in each)
    span, count = max(high - low, 1e-9), len(found.means)

    def x(number: int) -> float:
        return 50 + 530 * number / count

    def y(value: float) -> float:
        return 190 - 170 * (value - low) / span

    line = " ".join(f"{x(number):.1f},{y(mean):.1f}" for number, mean in enumerate(found.means))
    bars = "".join(f'<path d="M{x(n):.1f} {y(m - s):.1f}V{y(m + s):.1f}"/>' for n, (_, m, s) in enumerate(each))
    names = "".join(
        f'<text x="{x(n):.1f}" y="212" text-anchor="middle">{name if n == count else n}</text>'
        for n, (name, _, _) in enumerate(each)
    )
    ends = "".join(f'<text x="44" y="{y(v) + 4:.1f}" text-anchor="end">{v:.2f}</text>' for v in (low, high))
    said = f"{found.metric} by layer, from {found.means[0]:.3f} at the embeddings to {found.means[-1]:.3f} at the last"
    return (
        f'<svg viewBox="0 0 600 220" role="img" aria-label="{said}" style="max-width:40rem;width:100%" fill="none" '
        f'stroke="currentColor"><path d="M50 {y(found.least):.1f}H580" stroke-dasharray="5 4" opacity=".5"/>'
        f'<polyline points="{line}" stroke="rgb(var(--plus))" stroke-width="2.5"/>'
        f'<circle cx="{x(count):.1f}" cy="{y(found.mix[0]):.1f}" r="4" stroke="rgb(var(--plus))" stroke-width="2"/>'
        f'<g stroke="rgb(var(--plus))">{bars}</g><g fill="currentColor" stroke="none" font-size="13">{names}{ends}</g></svg>'
    )
