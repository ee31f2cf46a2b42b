"""Commands around labels: `finetune`, `predict`; `evaluate` has a file of its own."""

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
    app.command()(predict)


def columns_of(text: str | None, pair: str | None, label: str | None) -> dict[str, str]:
    return {role: name for role, name in (("text", text), ("pair", pair), ("label", label)) if name}


def refuse(given: dict[str, Any], why: str) -> None:
    """Options that say nothing here."""
    from sesame.errors import SesameError

    for option, value in given.items():
        if value or (value == 0 and value is not False):  # --alpha 0 is said, too
            raise SesameError(f"{option}: {why}; leave it out")


def finetune(
    model: str = typer.Argument(..., help="A model folder, or a run, to start from."),
    task: str = typer.Option(..., help="classify, regress, tag, qa, choice or seq2seq."),
    train: str = typer.Option(
        ..., help="Labelled rows: CSV, TSV, JSONL, Parquet, CoNLL columns, SQuAD JSON; seq2seq: also a.txt,b.txt."
    ),
    valid: str | None = typer.Option(None, help="Rows to choose by; otherwise a part of --train is kept aside."),
    test: str | None = typer.Option(None, help="Rows to judge by; nothing is chosen by them."),
    out: Path | None = typer.Option(None, "--out", help="The folder of the run; by default runs/TASK-FILE."),
    strategy: str = typer.Option("full", help="full, frozen, gradual, gpt, ulmfit, dai-le, tagger, or a .toml file."),
    seeds: int | None = typer.Option(
        None, min=1, help="How many trainings; by default 5 below 10,000 examples, else 1."
    ),
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
    extend: int | None = typer.Option(None, min=1, help="Add at most N words of that text to the vocabulary."),
    name: str | None = typer.Option(None, help="The task's name in the model; by default what --task says."),
    also: list[str] = typer.Option(
        [],
        metavar="TASK",
        help="A further task for the same encoder, such as tag:names.conll or NAME=tag:names.conll; FILE:VALID:TEST "
        "names all rows. Repeat for more; --set alpha=0.5 draws small tasks more often. seq2seq: 'PREFIX=FILE'.",
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
    no_baselines: bool = typer.Option(False, "--no-baselines", help="Leave out majority and TF-IDF beside the result."),
    device: str = typer.Option("auto", help="auto, cpu or cuda."),
    precision: str = typer.Option("auto", help="auto, fp32, bf16 or mixed."),
    save_minutes: float = typer.Option(5.0, help="Minutes between two checkpoints."),
    save_steps: int = typer.Option(
        0, min=0, help="Steps between two checkpoints, instead of minutes.", show_default=False
    ),
) -> None:
    """Teach a model a task from labelled rows. Ends with a score, its interval and a report.

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
            "--text-column and its like (name --source and --target)": columns_of(text_column, pair_column, label_column),
            "--extend": extend, "--text-budget": text_budget, "--text-steps": text_steps,
        }  # fmt: skip
        refuse(labelled, "does not go with --task seq2seq")
        written |= {
            "valid": valid, "test": test, "seeds": seeds, "epochs": epochs, "rate": rate, "metric": metric, "also": also,
            "settings": settings, "device": device, "precision": precision, "seed": seed, "save_minutes": save_minutes,
            "save_steps": save_steps,
        }  # fmt: skip
        _answering(model, train, out, written)
        return
    refuse({f"--{name}": value for name, value in written.items()}, "goes with --task seq2seq only")
    run(
        wishes_of(
            model, task, train, out or Path("runs") / f"{task}-{Path(train).name.split('.')[0]}", valid=valid, test=test,
            strategy=strategy, seeds=seeds, seed=seed, epochs=epochs, rate=rate, layers=layers, multi=multi, metric=metric,
            text_column=text_column, pair_column=pair_column, label_column=label_column,
            settings=settings, baselines=not no_baselines, device=device, name=name, also=also,
            precision=precision, save_minutes=save_minutes, save_steps=save_steps, text=text,
            text_budget=seconds(text_budget, "--text-budget"), text_steps=text_steps, extend=extend or 0,
        )
    )  # fmt: skip


def _answering(model: str, train: str, out: Path | None, written: dict[str, Any]) -> None:
    from sesame.finetuning.answering import finetune
    from sesame.finetuning.answering_wishes import Wishes

    place = out or Path("runs") / f"seq2seq-{Path(train.split(',')[0]).name.split('.')[0]}"
    given = {name: value for name, value in written.items() if value is not None}
    finetune(Wishes(model=model, train=train, out=place, **given))


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
    beside: list[str] = typer.Option(
        [],
        "--with",
        metavar="MODEL",
        help="Another model of the same labels: the mean of all probabilities; repeat it.",
    ),
    out: Path | None = typer.Option(None, help="Write answers here (.jsonl or .csv) instead of to the screen."),
    json: bool = typer.Option(False, "--json", help="One JSON object a text."),
    device: str = DEVICE,
    engine: str = ENGINE,
    precision: str = PRECISION,
    accept: bool = ACCEPT,
) -> None:
    """Answer with a fine-tuned model: labels, tags or spans, with probabilities and places in the original text.

    Example: sesame predict runs/tickets "My card was swallowed" --json
    """
    from sesame.cli.answers import numbered_lines
    from sesame.cli.predictions import answered, check_out, examples_of, is_table, write_replies
    from sesame.errors import SesameError
    from sesame.opening import load

    check_out(out)
    loaded = load(model, device, engine, precision, accept)
    others = [load(other, device, engine, precision, accept) for other in beside]
    kind = loaded.task(task).config.kind
    table = file is not None and is_table(file, kind)
    if table and texts:
        raise SesameError("give texts or --file, not both")
    given = None if table else numbered_lines(texts, file, empty=kind != "choice")
    examples = examples_of(kind, given, file, context or pair, columns_of(text_column, pair_column, None))
    replies = answered(lambda full: loaded.predict(full, task, abstain, True, beside=others), examples)
    write_replies(examples, replies, out, json)
