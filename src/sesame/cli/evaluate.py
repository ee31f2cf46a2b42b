"""`sesame evaluate`: scores of what a model was taught, and of answers; what it was not taught is measured in measure.py."""

import json as jsonlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from sesame.cli.teach import ALPHA, BEAMS, LONGEST, PREFIX, SOURCE, TARGET, columns_of, refuse


def register(app: typer.Typer) -> None:
    app.command()(evaluate)


def evaluate(
    model: str = typer.Argument(..., help="A fine-tuned model folder, or a run; for --suite a pre-trained one."),
    data: str | None = typer.Option(None, help="Labelled rows; for --suite a folder of data sets."),
    text: list[str] = typer.Option([], "--text", help="Instead of --data: texts, for the perplexity of a decoder."),
    task: str | None = typer.Option(
        None, help="The task by name, if the model was taught several; for --shots classify, choice or qa."
    ),
    text_column: str | None = typer.Option(None, help="The column of the text; guessed otherwise."),
    pair_column: str | None = typer.Option(None, help="The column of the second text."),
    label_column: str | None = typer.Option(None, help="The column of the label."),
    shots: str | None = typer.Option(None, help="Answers by prompts, of a model that was not taught: 0, or 0,1,5."),
    template: str | None = typer.Option(None, help="--shots: the prompt, such as '{text}\\nSentiment: {label}'."),
    words: str | None = typer.Option(None, help="--shots: label=word, such as positive=great,negative=awful."),
    by: str | None = typer.Option(None, help="--shots: score words by sum, mean, calibrated or pmi."),
    train: str | None = typer.Option(None, help="--shots: rows to draw them from; otherwise some of --data."),
    length: int | None = typer.Option(None, min=2, help="--text: tokens that are read at a time."),
    stride: int | None = typer.Option(None, min=1, help="--text: a window begins every so many tokens."),
    memory: bool | None = typer.Option(None, "--memory/--no-memory", help="--text: remember earlier parts."),
    multi: str | None = typer.Option(None, help="What separates several labels in one cell, such as '|'."),
    against: str | None = typer.Option(None, help="Another model, compared example by example (paired bootstrap)."),
    beside: list[str] = typer.Option(
        [],
        "--with",
        metavar="MODEL",
        help="Another model that answers along: the mean of all probabilities; repeat it.",
    ),
    suite: str | None = typer.Option(None, help="Fine-tune on all tasks of glue, squad, ner or layers; one table."),
    only: str | None = typer.Option(None, help="--suite: some of its tasks, such as sst2,cola."),
    seeds: int | None = typer.Option(
        None, min=1, help="--suite: trainings of each task; --shots: draws, 5 if not said."
    ),
    strategy: str | None = typer.Option(None, help="--suite: full (frozen for layers), gradual, or a .toml file."),
    settings: list[str] = typer.Option([], "--set", metavar="KEY=VALUE", help="--suite: change the strategy."),
    out: Path | None = typer.Option(None, "--out", help="--suite: the folder of its runs; by default runs/SUITE."),
    source: str | None = SOURCE,
    target: str | None = TARGET,
    prefix: str = PREFIX,
    metric: str | None = typer.Option(None, help="seq2seq: the score that --against compares; by default bleu."),
    beams: int | None = BEAMS,
    alpha: float | None = ALPHA,
    most: int | None = LONGEST,
    device: str = typer.Option("auto", help="auto, cpu or cuda."),
    json: bool = typer.Option(False, "--json", help="The scores as JSON."),
) -> None:
    """Score a model on labelled rows, with an interval; by prompts; or by its perplexity on a text.

    Example: sesame evaluate runs/tickets --data test.csv --against runs/tickets-frozen

    A pre-trained model on a whole suite: sesame evaluate runs/mine --suite glue --data glue/ --seeds 5 --out runs/glue

    A decoder on plain text: sesame evaluate runs/gpt --text test.txt --stride 256

    A decoder on rows that it was not taught: sesame evaluate runs/gpt --data test.csv --shots 0,1,5

    An encoder-decoder on pairs of texts: sesame evaluate runs/en-de --data test.tsv --beams 5 --against runs/other
    """
    columns = columns_of(text_column, pair_column, label_column)
    way = _way(text, data, suite, shots)
    written: dict[str, Any] = {
        "source": source, "target": target, "prefix": prefix or None, "metric": metric, "beams": beams, "alpha": alpha,
        "most": most,
    }  # fmt: skip
    groups: dict[str, dict[str, Any]] = {
        "--data": {
            "--multi": multi,
            "--against": against,
            "--with": beside,
            **{f"--{name}": value for name, value in written.items()},
        },
        "--data or --shots": {"--task": task, "--text-column and its like": columns},
        "--suite": {"--only": only, "--strategy": strategy, "--set": settings, "--out": out},
        "--suite or --shots": {"--seeds": seeds},
        "--shots": {"--template": template, "--words": words, "--by": by, "--train": train},
        "--text": {"--length": length, "--stride": stride, "--memory or --no-memory": memory is not None},
    }
    for needed, given in groups.items():
        if way not in needed.split(" or "):
            refuse(given, f"does not go with {way}" if needed.startswith("--data") else f"goes with {needed} only")
    if way == "--text":
        from sesame.cli.measure import surprise

        surprise(model, text, length, stride, memory, device, json)
        return
    assert data is not None, "_way has complained"
    if shots is not None:
        from sesame.cli.measure import shots as by_prompts

        more = {"kind": task or "classify", "train": train, "columns": columns, "device": device, "seeds": seeds or 5}
        by_prompts(model, data, shots, template, words, by or "sum", json, **more)
        return
    if suite:
        _suite(suite, model, data, out, only, seeds, strategy, settings, device, json)
        return
    from sesame.evaluate.judge import judge
    from sesame.evaluate.spoken import is_answering

    if is_answering(model) and task is None and not columns:
        _answers(model, data, {**written, "against": against, "beside": beside}, device, json)
        return
    refuse({f"--{name}": value for name, value in written.items()}, "is for encoder-decoders")
    found = judge(model, data, task=task, columns=columns, multi=multi, against=against, beside=beside, device=device)
    if json:
        typer.echo(jsonlib.dumps(found, ensure_ascii=False))
        return
    _show(found)


def _way(text: list[str], data: str | None, suite: str | None, shots: str | None) -> str:
    """Which of the things that it can do a call of `evaluate` asks for, by the option that says so."""
    from sesame.errors import SesameError

    asked = [way for way, given in (("--text", text), ("--suite", suite), ("--shots", shots)) if given]
    if len(asked) > 1 or (text and data is not None):
        raise SesameError(
            f"{' and '.join([*asked, *(['--data'] if text and data else [])])} do not go together; leave one out"
        )
    if not text and data is None:
        raise SesameError("give --data FILE with labelled rows, or --text FILE for the perplexity of a decoder")
    return asked[0] if asked else "--data"


def _answers(model: str, data: str, written: dict[str, Any], device: str, json: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    from sesame.cli.measure import MOST_TOLD
    from sesame.evaluate.spoken import judge_answers

    given = {"beams": 5, **{name: value for name, value in written.items() if value is not None}}
    found = judge_answers(model, data, device=device, **given)
    if json:
        typer.echo(jsonlib.dumps(found, ensure_ascii=False))
        return
    console = Console(highlight=False, markup=False, emoji=False)
    table = Table("score", "value", "95 % over examples")
    for name, value in found["scores"].items():
        low, high = found["intervals"][name]
        table.add_row(name, f"{100 * value:.2f}", f"{100 * low:.2f} to {100 * high:.2f}")
    console.print(table)
    for name, signature in found["signatures"].items():
        typer.echo(f"{name}|{signature}")
    if "perplexity" in found:
        surprise = found["perplexity"]
        told = {"piece": surprise["perplexity"], "word": surprise["perplexity_per_word"]}
        shown = [f"{value:.2f} per {name}" for name, value in told.items() if value is not None and value < MOST_TOLD]
        typer.echo(f"perplexity of the answers wanted: {', '.join(shown) or f'above {MOST_TOLD:,.0f}'}")
    if "versus" in found:
        v = {key: 100 * value for key, value in found["versus"].items()}
        console.print(
            f"{_verdict(found['versus'])} {found['against']}: {v['difference']:+.2f} {found['metric']} "
            f"(95 %: {v['low']:+.2f} to {v['high']:+.2f}, p = {v['p'] / 100:.4f})"
        )


def _verdict(versus: Mapping[str, float]) -> str:
    """What may be said of a difference: only one that its interval and p both tell from chance is clear."""
    if versus["difference"] == 0:
        return "no different from"
    clear = (versus["low"] > 0 or versus["high"] < 0) and versus["p"] < 0.05
    return f"{'' if clear else 'not clearly '}{'better' if versus['difference'] > 0 else 'worse'} than"


def _suite(
    suite: str, model: str, data: str, out: Path | None, only: str | None, seeds: int | None, strategy: str | None,
    settings: list[str], device: str, json: bool,
) -> None:  # fmt: skip
    from sesame.finetuning.suites import run_suite, shown

    names = [name.strip() for name in (only or "").split(",") if name.strip()]
    found = run_suite(
        model, suite, data, out or Path("runs") / suite,
        only=names, seeds=seeds, strategy=strategy, settings=settings, device=device,
    )  # fmt: skip
    typer.echo(jsonlib.dumps(found, ensure_ascii=False) if json else shown(found))


def _show(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    from sesame.evaluate.scoring import figure

    console = Console(highlight=False, markup=False, emoji=False)  # labels and names of files are shown as they are
    table = Table("score", "value", "95 % over examples")
    for name, value in found["scores"].items():
        interval = found["interval"] if name == found["metric"] else None
        ends = [figure(name, end) for end in interval or ()]
        table.add_row(name, figure(name, value), " to ".join(ends))
    console.print(table)
    if found.get("per_class"):
        classes = Table("label", "precision", "recall", "F1", "rows")
        for row in found["per_class"]:
            shown = [f"{row[key]:.3f}" for key in ("precision", "recall", "f1")]
            classes.add_row(str(row["label"]), *shown, f"{row['count']:,}")
        console.print(classes)
    if "versus" in found:
        v = found["versus"]
        console.print(
            f"{_verdict(v)} {found['against']}: {v['difference']:+.4f} {found['metric']} "
            f"(95 %: {v['low']:+.4f} to {v['high']:+.4f}, p = {v['p']:.4f})"
        )
