"""Commands around labels: `finetune`, `evaluate`, `predict`."""

import json as jsonlib
from pathlib import Path
from typing import Any

import typer

from sesame.cli.answers import ACCEPT, DEVICE, ENGINE, PRECISION

TASKS = ("classify", "regress", "tag", "qa", "choice", "seq2seq")
SOURCE = typer.Option(None, help="seq2seq: the column of the sources, or a text with {columns} in braces.")
TARGET = typer.Option(None, help="seq2seq: the column of the answers; guessed otherwise.")
PREFIX = typer.Option("", help="seq2seq: what stands before every source, such as 'summarize: '.")
BEAMS = typer.Option(None, min=1, help="seq2seq: hypotheses of the search for answers; by default 5.")
ALPHA = typer.Option(None, help="seq2seq: strength of the length penalty; by default 1.")
LONGEST = typer.Option(None, "--most", min=1, help="seq2seq: tokens of an answer at most; by default 128.")


def register(app: typer.Typer) -> None:
    app.command()(finetune)
    app.command()(evaluate)
    app.command()(predict)


def _columns(text: str | None, pair: str | None, label: str | None) -> dict[str, str]:
    return {role: name for role, name in (("text", text), ("pair", pair), ("label", label)) if name}


def finetune(
    model: str = typer.Argument(..., help="A model folder, or a run, to start from."),
    task: str = typer.Option(..., help="classify, regress, tag, qa, choice or seq2seq."),
    train: str = typer.Option(
        ..., help="Labelled rows: CSV, TSV, JSONL, Parquet, CoNLL columns, SQuAD JSON; seq2seq: also a.txt,b.txt."
    ),
    valid: str | None = typer.Option(None, help="Rows to choose by; otherwise a part of --train is kept aside."),
    test: str | None = typer.Option(None, help="Rows to judge by; nothing is chosen by them."),
    out: Path | None = typer.Option(None, "--out", help="The folder of the run; by default runs/TASK-FILE."),
    strategy: str = typer.Option("full", help="full, frozen, gradual, gpt, ulmfit, dai-le, or a .toml file."),
    seeds: int | None = typer.Option(None, min=1, help="Trainings; by default 5 below 10,000 examples, else 1."),
    seed: int = typer.Option(0, help="The first seed."),
    epochs: float | None = typer.Option(None, help="Passes over the examples; small sets get more by default."),
    rate: float | None = typer.Option(None, help="The peak learning rate."),
    layers: str | None = typer.Option(
        None,
        help="What the head reads: last, second-to-last, sum-last-4, concat-last-4, sum-all, first, mix, a number.",
    ),
    metric: str | None = typer.Option(None, help="The score that decides, such as accuracy, macro_f1 or matthews."),
    text_column: str | None = typer.Option(None, help="The column of the text; guessed otherwise."),
    pair_column: str | None = typer.Option(None, help="The column of the second text."),
    label_column: str | None = typer.Option(None, help="The column of the label."),
    multi: str | None = typer.Option(None, help="What separates several labels in one cell, such as '|'."),
    text: list[str] = typer.Option(
        [],
        "--text",
        help="Unlabelled text to adapt the model to first; `train`: the texts of --train. Repeat for more.",
    ),
    text_budget: str | None = typer.Option(None, help="Wall-clock for that, such as 10m; by default one pass."),
    text_steps: int | None = typer.Option(None, min=1, help="Optimiser steps on that, instead of a budget."),
    extend: int | None = typer.Option(None, min=1, help="Words of that text for the vocabulary, at most."),
    name: str | None = typer.Option(None, help="The task's name in the model; by default what --task says."),
    also: list[str] = typer.Option(
        [],
        metavar="[NAME=]KIND:TRAIN[:VALID[:TEST]]",
        help="A further task for the same encoder; can be given several times. --set alpha=0.5 draws small tasks more "
        "often than their size would. seq2seq: 'PREFIX=FILE'.",
    ),
    source: str | None = SOURCE,
    target: str | None = TARGET,
    prefix: str = PREFIX,
    steps: int | None = typer.Option(None, min=1, help="seq2seq: optimiser steps, instead of --epochs."),
    beams: int | None = BEAMS,
    alpha: float | None = ALPHA,
    most: int | None = LONGEST,
    keep: int | None = typer.Option(None, min=1, help="seq2seq: checkpoints to keep, for `sesame average`."),
    temperature: float | None = typer.Option(None, help="seq2seq: above 1 small tasks of --also are drawn more often."),
    cap: float | None = typer.Option(None, help="seq2seq: tasks of --also count as no larger than this."),
    settings: list[str] = typer.Option(
        [], "--set", metavar="KEY=VALUE", help="Change the strategy: adapt.layer_decay=0.9"
    ),
    baselines: bool = typer.Option(True, "--baselines/--no-baselines", help="Majority and TF-IDF beside the result."),
    device: str = typer.Option("auto", help="auto, cpu or cuda."),
    precision: str = typer.Option("auto", help="auto, fp32, bf16 or mixed."),
    save_minutes: float = typer.Option(5.0, help="Minutes between two checkpoints."),
    save_steps: int = typer.Option(0, min=0, help="Steps between two checkpoints, instead of minutes."),
) -> None:
    """Teach a model a task from labelled rows; ends with a score, its interval and a report.

    Example: sesame finetune runs/mine --task classify --train tickets.csv --out runs/tickets

    Several tasks, one encoder: sesame finetune runs/mine --task classify --train tickets.csv --also tag:names.conll

    An encoder-decoder: sesame finetune runs/t5 --task seq2seq --train mails.tsv --prefix "subject: " --metric rougeL
    """
    from sesame.cli.show import seconds
    from sesame.errors import SesameError
    from sesame.finetuning.run import finetune as run
    from sesame.finetuning.wishes import wishes_of

    if task not in TASKS:
        raise SesameError(f"--task {task}: must be one of {', '.join(TASKS)}")
    written: dict[str, Any] = {
        "source": source, "target": target, "prefix": prefix or None, "steps": steps, "beams": beams, "alpha": alpha,
        "most": most, "keep": keep, "temperature": temperature, "cap": cap,
    }  # fmt: skip
    if task == "seq2seq":
        labelled = {
            "--strategy": strategy != "full", "--layers": layers, "--multi": multi, "--text": text, "--name": name,
            "--text-column and its like (name --source and --target)": _columns(text_column, pair_column, label_column),
            "--extend": extend, "--text-budget": text_budget, "--text-steps": text_steps,
        }  # fmt: skip
        _refuse(labelled, "does not go with --task seq2seq")
        written |= {
            "valid": valid, "test": test, "seeds": seeds, "epochs": epochs, "rate": rate, "metric": metric, "also": also,
            "settings": settings, "device": device, "precision": precision, "seed": seed, "save_minutes": save_minutes,
            "save_steps": save_steps,
        }  # fmt: skip
        _answering(model, train, out, written)
        return
    _refuse({f"--{name}": value for name, value in written.items()}, "goes with --task seq2seq only")
    run(
        wishes_of(
            model, task, train, out or Path("runs") / f"{task}-{Path(train).name.split('.')[0]}", valid=valid, test=test,
            strategy=strategy, seeds=seeds, seed=seed, epochs=epochs, rate=rate, layers=layers, multi=multi, metric=metric,
            text_column=text_column, pair_column=pair_column, label_column=label_column,
            settings=settings, baselines=baselines, device=device, name=name, also=also,
            precision=precision, save_minutes=save_minutes, save_steps=save_steps, text=text,
            text_budget=seconds(text_budget, "--text-budget"), text_steps=text_steps, extend=extend or 0,
        )
    )  # fmt: skip


def _answering(model: str, train: str, out: Path | None, written: dict[str, Any]) -> None:
    from sesame.finetuning.answering import Wishes, finetune

    place = out or Path("runs") / f"seq2seq-{Path(train.split(',')[0]).name.split('.')[0]}"
    given = {name: value for name, value in written.items() if value is not None}
    finetune(Wishes(model=model, train=train, out=place, **given))


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
    """Score a model: on labelled rows that it was taught, with an interval; by prompts; or by its perplexity on a text.

    Example: sesame evaluate runs/tickets --data test.csv --against runs/tickets-frozen

    A pre-trained model on a whole suite: sesame evaluate runs/mine --suite glue --data glue/ --seeds 5 --out runs/glue

    A decoder on plain text: sesame evaluate runs/gpt --text test.txt --stride 256

    A decoder on rows that it was not taught: sesame evaluate runs/gpt --data test.csv --shots 0,1,5
    An encoder-decoder on pairs of texts: sesame evaluate runs/en-de --data test.tsv --beams 5 --against runs/other
    """
    columns = _columns(text_column, pair_column, label_column)
    way = _way(text, data, suite, shots)
    groups: dict[str, dict[str, Any]] = {
        "--data": {"--multi": multi, "--against": against},
        "--data or --shots": {"--task": task, "--text-column and its like": columns},
        "--suite": {"--only": only, "--strategy": strategy, "--set": settings, "--out": out},
        "--suite or --shots": {"--seeds": seeds},
        "--shots": {"--template": template, "--words": words, "--by": by, "--train": train},
        "--text": {"--length": length, "--stride": stride, "--memory or --no-memory": memory is not None},
    }
    for needed, given in groups.items():
        if way not in needed.split(" or "):
            _refuse(given, f"does not go with {way}" if needed.startswith("--data") else f"goes with {needed} only")
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

    written: dict[str, Any] = {
        "source": source, "target": target, "prefix": prefix or None, "metric": metric, "beams": beams, "alpha": alpha,
        "most": most,
    }  # fmt: skip
    if is_answering(model) and task is None and not columns:
        _answers(model, data, {**written, "against": against}, device, json)
        return
    _refuse({f"--{name}": value for name, value in written.items()}, "is for encoder-decoders")
    found = judge(model, data, task=task, columns=columns, multi=multi, against=against, device=device)
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
    if "versus" in found:
        v = {key: 100 * value for key, value in found["versus"].items()}
        console.print(
            f"{_verdict(v['difference'])} {found['against']} by {v['difference']:+.2f} {found['metric']} "
            f"(95 %: {v['low']:+.2f} to {v['high']:+.2f}, p = {v['p'] / 100:.4f})"
        )


def _verdict(difference: float) -> str:
    return "no different from" if difference == 0 else "better than" if difference > 0 else "worse than"


def _refuse(given: dict[str, Any], why: str) -> None:
    from sesame.errors import SesameError

    for option, value in given.items():
        if value:
            raise SesameError(f"{option}: {why}; leave it out")


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

    console = Console(highlight=False, markup=False, emoji=False)  # labels and names of files are shown as they are
    table = Table("score", "value", "95 % over examples")
    for name, value in found["scores"].items():
        interval = found["interval"] if name == found["metric"] else None
        table.add_row(name, f"{value:.4f}", f"{interval[0]:.4f} to {interval[1]:.4f}" if interval else "")
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
            f"{_verdict(v['difference'])} {found['against']} by {v['difference']:+.4f} {found['metric']} "
            f"(95 %: {v['low']:+.4f} to {v['high']:+.4f}, p = {v['p']:.4f})"
        )


def predict(
    model: str = typer.Argument(..., help="A fine-tuned model folder, or a run."),
    texts: list[str] = typer.Argument(None, help="Texts; without them, --file or lines of standard input."),
    file: Path | None = typer.Option(None, help="Texts a line (.txt), CSV, TSV, JSONL, Parquet, CoNLL or SQuAD JSON."),
    task: str | None = typer.Option(None, help="The task by name, if the model was taught several."),
    context: str | None = typer.Option(None, help="qa: the text that the questions are about."),
    pair: str | None = typer.Option(None, help="The second text of a pair."),
    text_column: str | None = typer.Option(None, help="The column of the text; guessed otherwise."),
    pair_column: str | None = typer.Option(None, help="The column of the second text."),
    abstain: float = typer.Option(0.0, min=0.0, max=1.0, help="Give no answer below this probability."),
    out: Path | None = typer.Option(None, help="Write answers here (.jsonl or .csv) instead of to the screen."),
    json: bool = typer.Option(False, "--json", help="One JSON object a text."),
    device: str = DEVICE,
    engine: str = ENGINE,
    precision: str = PRECISION,
    accept: bool = ACCEPT,
) -> None:
    """Answers of a fine-tuned model, with probabilities and places in the original text.

    Example: sesame predict runs/tickets "My card was swallowed" --json
    """
    from sesame.api import load
    from sesame.cli.answers import numbered_lines
    from sesame.cli.predictions import answered, check_out, examples_of, is_table, write_replies
    from sesame.errors import SesameError

    check_out(out)
    loaded = load(model, device, engine, precision, accept)
    kind = loaded.task(task).config.kind
    table = file is not None and is_table(file, kind)
    if table and texts:
        raise SesameError("give texts or --file, not both")
    given = None if table else numbered_lines(texts, file, empty=kind != "choice")
    examples = examples_of(kind, given, file, context or pair, _columns(text_column, pair_column, None))
    replies = answered(lambda full: loaded.predict(full, task, abstain, progress=True), examples)
    write_replies(examples, replies, out, json)
