"""`sesame runs`: all runs under a folder."""

import json as jsonlib
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from sesame.runs import RunLine

WIDE = 120  # letters of a terminal that has room for everything
COLORS = {"done": "green", "running": "cyan", "interrupted": "yellow"}


def register(app: typer.Typer) -> None:
    app.command()(runs)


def runs(
    folder: Path = typer.Argument(Path("runs"), help="Where the runs are."),
    parts: bool = typer.Option(False, "--parts", help="Also runs within runs: seeds, text that was read first."),
    json: bool = typer.Option(False, "--json", help="JSON, one run a line, with whole curves."),
) -> None:
    """Show all runs under a folder: how far, how well, and whether they are done.

    Example: sesame runs runs
    """
    from sesame.progress import say
    from sesame.runs import find_runs

    found = find_runs(folder, parts)
    if broken := sum(run.broken for run in found):
        say(f"{broken:,} lines of logs or recipes could not be read and are left out")
    if json:
        for run in found:
            typer.echo(jsonlib.dumps(run.to_json(), ensure_ascii=False))
        return
    if not found:
        say(f"{folder}: holds no run yet; `sesame pretrain` and `sesame finetune` make them")
        return
    _table(found)


def _table(found: "list[RunLine]") -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from sesame.progress import duration
    from sesame.runs import sparkline

    console = Console(highlight=False)
    wide = console.width >= WIDE
    table = Table(box=None, pad_edge=False)
    table.add_column("run", overflow="fold", min_width=16)
    for name, kept in (("recipe", True), ("size", wide), ("step", True), ("tokens", wide), ("held out", True)):
        if kept:
            table.add_column(name, justify="left" if name in ("recipe", "size") else "right")
    for name in ("loss", "state", "age"):
        table.add_column(name, no_wrap=True)
    for run in found:
        step = f"{run.step:,}" + ("" if run.steps is None else f" / {run.steps:,}")
        last = "\n".join(f"{escape(name)} {value:.3f}" for name, value in run.last().items())
        last += "" if run.kept is None else f"\nof step {run.kept:,}"
        table.add_row(
            escape(run.name),
            *(
                (escape(run.recipe), escape(run.size), step, _amount(run.tokens))
                if wide
                else (escape(run.recipe), step)
            ),
            last,
            sparkline([value for _, value in run.loss], 16 if wide else 8)
            + (f" {run.loss[-1][1]:.2f}" if run.loss else ""),
            f"[{COLORS[run.state]}]{run.state}[/]",
            duration(run.age),
        )
    console.print(table)


def _amount(tokens: int) -> str:
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if tokens >= size:
            return f"{tokens / size:.1f} {sign}"
    return str(tokens or "")
