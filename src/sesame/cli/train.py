"""Commands that train: `pretrain`, `demo`."""

from pathlib import Path

import typer


def register(app: typer.Typer) -> None:
    app.command()(pretrain)
    app.command()(demo)


def pretrain(
    recipe: str = typer.Argument(..., help="A recipe by name (`sesame recipes`) or a .toml file."),
    text: list[str] = typer.Option(
        [],
        "--text",
        help="Text files or folders; repeat, or list several after one. Several languages: en=FILE ru=FILE",
    ),
    out: Path | None = typer.Option(None, "--out", help="The folder of the run; by default runs/RECIPE-SIZE."),
    more: list[str] = typer.Argument(None, help="More text files.", show_default=False),
    size: str | None = typer.Option(None, help="tiny, mini, small, medium, base or large."),
    start: str | None = typer.Option(None, help="A model folder to go on from."),
    extend: int | None = typer.Option(
        None, min=1, help="Add at most N words of the text to the vocabulary of the start model."
    ),
    tokenizer: str | None = typer.Option(
        None, help="A tokenizer folder or file; otherwise one is trained on the text."
    ),
    vectors: str | None = typer.Option(
        None, help="Static vectors that the token table starts from: words that are tokens."
    ),
    freeze_vectors: bool = typer.Option(False, "--freeze-vectors", help="The token table does not train."),
    valid: list[str] = typer.Option([], "--valid", help="Held-out text; otherwise a part of the text is kept aside."),
    pairs: list[str] = typer.Option(
        [], "--pairs", metavar="A-B=FILE", help="Translations: en-ru=pairs.tsv, .jsonl, or twice for two plain files."
    ),
    budget: str | None = typer.Option(None, help="Wall-clock for everything, such as 10m or 1h30m."),
    steps: int | None = typer.Option(None, min=1, help="Optimiser steps instead of a budget."),
    seed: int = typer.Option(0, help="Another seed is another run."),
    settings: list[str] = typer.Option([], "--set", metavar="KEY=VALUE", help="Change the recipe: optimizer.rate=1e-3"),
    entities: str | None = typer.Option(
        None,
        help="A file with one entity a line, or .jsonl of texts and their spans; masks hide them whole where the recipe says "
        "so (ernie).",
    ),
    scale_lr: int | None = typer.Option(
        None,
        "--scale-lr",
        min=1,
        metavar="BATCH",
        help="The batch that the recipe's rate is good for: the rate becomes rate * batch / BATCH.",
    ),
    device: str = typer.Option("auto", help="auto, cpu or cuda."),
    precision: str = typer.Option("auto", help="auto, fp32, bf16 or mixed."),
    save_minutes: float = typer.Option(5.0, help="Minutes between two checkpoints."),
    save_steps: int = typer.Option(
        0, min=0, help="Steps between two checkpoints, instead of minutes.", show_default=False
    ),
    keep: int = typer.Option(
        0, min=0, help="Checkpoints to keep, for `sesame average`; by default 2.", show_default=False
    ),
    field: str = typer.Option("text", help="The field of .jsonl and .parquet that holds the text."),
    compile: bool | None = typer.Option(None, "--compile/--no-compile", help="torch.compile; by default on a GPU."),
    rehearse: bool = typer.Option(
        False, "--rehearse", help="Compile before the clock of --budget starts: for comparisons of methods."
    ),
    parallel: str = typer.Option(
        "auto", help="Under torchrun: ddp (all weights on each process), fsdp (a share of them) or auto."
    ),
    dry_run: bool = typer.Option(
        False, "--dry-run", help="Prepare, measure a few steps and say what the run would be; needs no --out."
    ),
    json: bool = typer.Option(False, "--json", help="The plan of --dry-run for a program."),
) -> None:
    """Pre-train a model on raw text. The same command goes on after any interruption.

    Example: sesame pretrain bert --size mini --text corpus.txt.xz --budget 20m --out runs/mine
    """
    from sesame.cli.show import seconds
    from sesame.errors import SesameError
    from sesame.pretraining.run import pretrain as run
    from sesame.pretraining.wishes import wishes_of

    if json and not dry_run:
        raise SesameError("--json prints the plan of --dry-run; add that, or leave --json out")
    wishes = wishes_of(
        recipe, [*text, *(more or [])], out, size=size, start=start, tokenizer=tokenizer, valid=valid, pairs=pairs,
        budget=seconds(budget), steps=steps, seed=seed, settings=settings, device=device, precision=precision,
        save_minutes=save_minutes, save_steps=save_steps, field=field, compile=compile, extend=extend or 0,
        parallel=parallel, keep=keep, scale_lr=scale_lr or 0, rehearse=rehearse, entities=entities,
        vectors=vectors, freeze_vectors=freeze_vectors,
    )  # fmt: skip
    if dry_run:
        from sesame.cli.plan_table import show
        from sesame.pretraining.dry_run import dry_run as plan

        show(plan(wishes), json)
    else:
        run(wishes)


def demo(
    out: Path = typer.Option(Path("demo"), "--out", help="The folder for the demo's text and models."),
    budget: str = typer.Option("90s", help="Wall-clock for the pre-training."),
) -> None:
    """The whole story on text that is already on this machine: the documentation of its Python packages.

    Example: sesame demo
    """
    from sesame.cli.show import seconds
    from sesame.demo import run_demo

    run_demo(out, seconds(budget) or 90.0)
