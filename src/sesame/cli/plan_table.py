"""The plan of a dry run for people and for programs."""

import json
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from sesame.pretraining.dry_run import Plan, StagePlan
from sesame.progress import duration
from sesame.train.accounting import memory_text, rate_text


def show(plan: Plan, as_json: bool) -> None:
    """Print the plan on stdout."""
    if as_json:
        print(json.dumps(plan.to_json(), indent=2))
        return
    console = Console()
    console.print(table(plan))
    for warning in plan.warnings:
        console.print(f"[yellow]note:[/] {warning}", highlight=False)
    if plan.settings:
        given = " ".join(f"--set {setting}" for setting in plan.settings)
        console.print(f"to train as measured here, add: {given}", highlight=False, markup=False)


def table(plan: Plan) -> Table:
    """A column for each stage, and one for the run if there are several."""
    several = len(plan.stages) > 1
    made = Table(
        title=f"{plan.recipe} on {plan.device} in {plan.precision}: nothing is trained yet", title_justify="left"
    )
    made.add_column()
    for stage in plan.stages:
        made.add_column(stage.name, justify="right")
    if several:
        made.add_column("whole run", justify="right")
    for name, cells, whole in _lines(plan):
        made.add_row(name, *cells, *([whole] if several else []))
    return made


def _lines(plan: Plan) -> list[tuple[str, list[str], str]]:
    """Name, a cell for each stage, a cell for the whole."""

    def each(cell: Callable[[StagePlan], str]) -> list[str]:
        return [cell(stage) for stage in plan.stages]

    same = [""] * (len(plan.stages) - 1)
    share = f"MFU (peak {plan.peak_source})" if plan.peak_flops else "MFU"
    return [
        ("parameters", [f"{plan.parameters / 1e6:.2f} M", *same], f"{plan.parameters / 1e6:.2f} M"),
        ("tokens of text", [f"{plan.text_tokens / 1e6:.2f} M", *same], f"{plan.text_tokens / 1e6:.2f} M"),
        ("length", each(lambda s: f"{s.length}"), ""),
        ("rows a step", each(lambda s: f"{s.batch:,}"), ""),
        ("rows at a time", each(lambda s: f"{s.micro:,}"), ""),
        ("rows that would fit", each(lambda s: f"{s.most:,}"), ""),
        ("memory", each(lambda s: memory_text(s.memory)), memory_text(max(s.memory for s in plan.stages))),
        ("FLOPs a token", each(lambda s: f"{s.flops_per_token:.3g}"), ""),
        ("tokens/s", each(lambda s: rate_text(s.tokens_per_second)), ""),
        (share, each(lambda s: "unknown" if s.mfu is None else f"{100 * s.mfu:.0f} %"), ""),
        ("padding", each(lambda s: f"{100 * s.padding:.0f} %"), ""),
        ("steps", each(lambda s: f"{s.steps:,}"), f"{plan.steps:,}"),
        ("tokens", each(lambda s: _big(s.tokens)), _big(plan.tokens)),
        ("passes over the text", each(lambda s: f"{s.passes:.2f}"), f"{plan.passes:.2f}"),
        ("time", each(lambda s: duration(s.seconds)), duration(plan.seconds)),
        ("compute, FLOPs", each(lambda s: f"{s.tokens * s.flops_per_token:.3g}"), f"{plan.flops:.3g}"),
    ]


def _big(value: float) -> str:
    return f"{value / 1e9:.2f} G" if value >= 1e9 else f"{value / 1e6:.2f} M"
