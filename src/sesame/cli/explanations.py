"""What `sesame explain` does, one function for each --what: compute, write the page or picture, tell the figures."""

import json as jsonlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from sesame.cli.show import check_new
from sesame.errors import SesameError

if TYPE_CHECKING:
    from sesame.checkpoint.folder import Parts
    from sesame.data.examples import Example
    from sesame.explain.asked import Question
    from sesame.tasks import Task

MOST = 10  # heads shown on a screen that is too narrow for all
WITHOUT = "mask"  # --task of a model that was taught some: its masked-language head instead


@dataclass(frozen=True)
class Wanted:
    """The options, as they were given."""

    model: str
    text: str | None
    pair: str | None
    task: str | None
    label: str
    at: str
    baseline: str
    layer: int | None
    head: int | None
    data: str | None
    kind: str | None
    columns: dict[str, str]
    out: Path | None
    device: str
    json: bool

    def needs(self, what: str) -> str:
        if self.text is None or not self.text.strip():
            raise SesameError(f'--what {what} is about a text; give one: sesame explain {self.model} "some text"')
        return self.text


def show(what: str, wanted: Wanted) -> None:
    kinds: dict[str, Callable[[Wanted, Parts], None]] = {
        "attention": _attention, "attribution": _attribution, "heads": _heads, "layers": _layers,
    }  # fmt: skip
    if what == "neighbours":
        raise SesameError("--what neighbours needs a word and the texts to find it in: --data FILE")
    if what not in kinds:
        raise SesameError(f"--what {what}: must be one of {', '.join(kinds)}, neighbours")
    if wanted.out is not None:
        if wanted.out.suffix.lower() not in (".html", ".png", ".svg"):
            raise SesameError(f"--out {wanted.out}: must end in .html, .png or .svg")
        check_new(wanted.out)
    from sesame.checkpoint.loading import load_parts
    from sesame.train.precision import choose_machine

    parts = load_parts(wanted.model)
    if parts.tokenizer is None:
        raise SesameError(f"{wanted.model}: has no tokenizer; put tokenizer.json or vocab.txt beside the weights")
    parts.to(choose_machine(wanted.device).device)
    kinds[what](wanted, parts)


def _page(wanted: Wanted) -> bool:
    return wanted.out is not None and wanted.out.suffix.lower() == ".html"


def _done(wanted: Wanted) -> None:
    from sesame.progress import say

    if wanted.out is not None:
        say(f"{wanted.out}: written")


def _attention(wanted: Wanted, parts: "Parts") -> None:
    from sesame.explain.attention import look
    from sesame.explain.inside import draw_attention
    from sesame.explain.page import write_attention

    if wanted.out is None:
        raise SesameError("--what attention is for the eye: give --out FILE.html, or .png with --layer")
    found = look(parts, wanted.needs("attention"), wanted.pair, wanted.label or None)
    if _page(wanted):
        write_attention(found, wanted.out)
    else:
        draw_attention(found[0], wanted.out, wanted.layer, wanted.head)
    _done(wanted)


def _attribution(wanted: Wanted, parts: "Parts") -> None:
    from sesame.explain.attribution import attribute, baseline_of
    from sesame.explain.inside import draw_attribution
    from sesame.explain.page import write_attribution

    question = _question(wanted, parts, "attribution")
    assert parts.tokenizer is not None
    if wanted.baseline not in ("", "mask", "pad"):
        raise SesameError(f"--baseline {wanted.baseline}: must be mask or pad")
    baseline = baseline_of(parts.tokenizer, wanted.baseline)
    found = attribute(question, baseline, parts.tokenizer.token(baseline))
    if wanted.out is not None:
        (write_attribution if _page(wanted) else draw_attribution)(found, wanted.out)
    _done(wanted)
    pairs = list(zip(found.tokens, found.values, strict=True))
    if wanted.json:
        told = {
            "score": found.score,
            "base": found.base,
            "baseline": found.baseline,
            "gap": found.gap,
            "steps": found.steps,
        }
        typer.echo(jsonlib.dumps({"name": found.name, "tokens": pairs, **told}, ensure_ascii=False))
        return
    _table(["token", "adds"], [[token, f"{value:+.4f}"] for token, value in pairs])
    typer.echo(
        f"{found.name}: {found.base:.4f} with {found.baseline} everywhere, {found.score:.4f} with the text; "
        f"the contributions miss the difference by {found.gap:.2%} ({found.steps} steps)"
    )


def _heads(wanted: Wanted, parts: "Parts") -> None:
    import numpy as np

    from sesame.explain.heads import ablate, ablate_on, layers_of
    from sesame.explain.inside import draw_heads
    from sesame.explain.page import write_heads
    from sesame.progress import bar

    count = sum(layer.heads for layer in layers_of(parts.backbone))
    question = None if wanted.data is not None else _question(wanted, parts, "heads (without --data)")
    with bar("heads", count, "heads") as shown:
        if question is None:
            task = _task(wanted, parts)
            if task is None:
                raise SesameError(
                    f"{wanted.model}: was taught no task to measure on rows; teach it one, or give a text instead of --data"
                )
            found = ablate_on(parts, task, _rows(wanted, task.config.kind), shown)
        else:
            found = ablate(parts.backbone, question.name, question.now, shown)
    if wanted.out is not None:
        (write_heads if _page(wanted) else draw_heads)(found, wanted.out)
    _done(wanted)
    change = found.change.tolist()
    if wanted.json:
        rows = [[None if np.isnan(value) else value for value in row] for row in change]
        told = {"name": found.name, "whole": found.whole, "rows": found.rows, "interval": found.between}
        typer.echo(jsonlib.dumps({**told, "layers": found.layers, "change": rows}, ensure_ascii=False))
        return
    _head_table(found.layers, change)
    sure = "" if found.between is None else f" (95 % interval {found.between[0]:.4f} to {found.between[1]:.4f})"
    typer.echo(f"change of {found.name} without the head; with all heads it is {found.whole:.4f}{sure}")


def _head_table(layers: Sequence[str], change: list[list[float]]) -> None:
    """All heads, or where a screen is too narrow for their numbers those that change most."""
    from math import isnan

    from rich.console import Console

    narrow = max(map(len, (*layers, "layer \\ head"))) + 4 + len(change[0]) * len("│ +0.000 ")
    if narrow <= Console().width:
        names = map(str, range(1, len(change[0]) + 1))
        cells = [["" if isnan(value) else f"{value:+.3f}" for value in row] for row in change]
        _table(["layer \\ head", *names], [[name, *row] for name, row in zip(layers, cells, strict=True)])
        return
    each = [(layer, head, x) for layer, row in zip(layers, change, strict=True) for head, x in enumerate(row, 1)]
    found = sorted((one for one in each if not isnan(one[2])), key=lambda one: -abs(one[2]))
    _table(["layer", "head", "change"], [[layer, str(head), f"{x:+.3f}"] for layer, head, x in found[:MOST]])
    typer.echo(
        f"the {min(MOST, len(found))} heads of {len(found)} that change most; a wider screen, --out or --json has all"
    )


def _layers(wanted: Wanted, parts: "Parts") -> None:
    from sesame.checkpoint.reading import reading
    from sesame.explain.inside import draw_layers
    from sesame.explain.layers import learnt_mixes, probe
    from sesame.explain.page import write_layers
    from sesame.progress import bar

    if wanted.data is None:
        raise SesameError("--what layers needs labelled rows to probe with: --data FILE")
    task = _task(wanted, parts) if wanted.kind is None else None
    kind = wanted.kind or ("classify" if task is None else task.config.kind)
    rows = _rows(wanted, kind)
    assert parts.tokenizer is not None
    with bar("layers", len(rows), "texts") as shown:
        found = probe(reading(parts).backbone, parts.tokenizer, rows, kind, shown=shown)
    mixes = learnt_mixes(parts.tasks)
    if wanted.out is not None:
        (write_layers if _page(wanted) else draw_layers)(found, wanted.out, mixes)
    _done(wanted)
    if wanted.json:
        typer.echo(jsonlib.dumps({**vars(found), "mixes": mixes}, ensure_ascii=False))
        return
    learnt = [*zip(*mixes.values(), strict=True), ("",) * len(mixes)]  # the equal mix has none
    named = [
        [name, f"{mean:.4f}", f"± {spread:.4f}", *(f"{share:.1%}" if share != "" else "" for share in shares)]
        for (name, mean, spread), shares in zip(
            found.each(), learnt if mixes else [()] * len(found.each()), strict=True
        )
    ]
    _table(["layer", found.metric, "spread", *(f"{name} reads" for name in mixes)], named)
    typer.echo(
        f"{found.rows:,} rows, {found.folds} folds; without reading {found.least:.4f}; mix: the mean of all layers"
    )


def _task(wanted: Wanted, parts: "Parts") -> "Task | None":
    """The one that is named, the only one, or none."""
    if wanted.task == WITHOUT and WITHOUT not in parts.tasks:
        return None
    if wanted.task is not None and wanted.task not in parts.tasks:
        known = ", ".join(parts.tasks) or "none"
        raise SesameError(f"--task {wanted.task}: the model was not taught it (it was taught: {known}); choose another")
    if wanted.task is None and len(parts.tasks) > 1:
        raise SesameError(
            f"{wanted.model}: was taught several tasks ({', '.join(parts.tasks)}); choose one with --task"
        )
    return parts.tasks[wanted.task] if wanted.task else next(iter(parts.tasks.values()), None)


def _question(wanted: Wanted, parts: "Parts", what: str) -> "Question":
    from sesame.explain.asked import Wish, ask

    return ask(parts, wanted.needs(what), wanted.pair, _task(wanted, parts), Wish(wanted.label, wanted.at))


def _rows(wanted: Wanted, kind: str) -> "list[Example]":
    from sesame.data.labelled import read_labelled
    from sesame.progress import say

    assert wanted.data is not None
    found = read_labelled(wanted.data, kind, wanted.columns)
    for line in (found.said, *found.warnings):
        say(line)
    return found.examples


def _table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*(names[:1]))
    for name in names[1:]:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*map(str, row))
    Console(highlight=False, markup=False, emoji=False).print(table)  # ":cat:" is a text and no cat
