"""What `sesame evaluate` does with a model that was not taught a task: perplexity of texts, answers to prompts."""

import json as jsonlib
from math import isfinite
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from sesame.evaluate.perplexity import Surprise

MOST_TOLD = 1e6  # above it a perplexity is told by its size


def surprise(
    model: str, text: list[str], length: int | None, stride: int | None, memory: bool | None, device: str, json: bool
) -> None:
    """How unexpected texts are."""
    from sesame.backbones import BiLM
    from sesame.checkpoint.loading import load_parts
    from sesame.data.readers import read_documents
    from sesame.evaluate.both_ways import both_ways
    from sesame.evaluate.perplexity import Reading, check_reads, perplexity
    from sesame.progress import bar
    from sesame.train.precision import choose_machine

    parts = load_parts(model)
    two = isinstance(parts.backbone, BiLM)
    if not two:
        check_reads(parts, model)
    texts = [document.text for document in read_documents(text)]
    parts.to(choose_machine(device).device)
    with bar("perplexity", None, "pieces") as shown:
        reading = Reading(length or 0, memory, stride=stride or 0)
        each = both_ways(parts, texts, reading, shown) if two else {"": perplexity(parts, texts, reading, shown)}
    if json:
        figures = {way: found.figures() for way, found in each.items()}
        typer.echo(jsonlib.dumps(figures if two else figures[""]))
        return
    for way, found in each.items():
        typer.echo(f"{way} {_told(found)}".strip())


def _told(found: "Surprise") -> str:
    mean = f"{found.per_word:.2f}" if found.per_word < MOST_TOLD else f"{found.per_word:.1e}"
    by_word = f"{mean} per word" if isfinite(found.per_word) else "none per word (too few spaces)"
    return (
        f"perplexity {found.perplexity:.2f} per piece, {by_word}, "
        f"{found.bits_per_byte:.4f} bits per byte ({found.pieces:,} pieces, {found.words:,} words, {found.bytes:,} bytes)"
    )


def shots(
    model: str, data: str, numbers: str, template: str | None, words: str | None, by: str, json: bool, **more: Any
) -> None:
    """Answers by prompts, with and without examples."""
    from sesame.errors import SesameError
    from sesame.evaluate.shots import few_shot

    try:
        counts = list(dict.fromkeys(int(part) for part in numbers.split(",")))
    except ValueError as error:
        raise SesameError(f"--shots {numbers}: give whole numbers with commas between them, such as 0,1,5") from error
    pattern = None if template is None else template.replace("\\n", "\n")
    found = few_shot(model, data, shots=counts, template=pattern, words=_words(words), by=by, **more)  # type: ignore[arg-type]
    if json:
        typer.echo(jsonlib.dumps(found, ensure_ascii=False))
        return
    _show(found)


def _words(given: str | None) -> dict[str, str]:
    from sesame.errors import SesameError

    found: dict[str, str] = {}
    for part in (given or "").split(",") if given else []:
        label, mark, word = part.partition("=")
        if not mark or not word.strip():
            raise SesameError(f"--words {part!r}: write label=word, such as positive=great,negative=awful")
        found[label.strip()] = word.strip()
    return found


def _show(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table("shots", "seeds", found["metric"], "spread", "least to most")
    for row in found["results"]:
        spread = "" if row["std"] is None else f"± {row['std']:.4f}"
        between = "" if row["seeds"] == 1 else f"{row['least']:.4f} to {row['most']:.4f}"
        table.add_row(str(row["shots"]), str(row["seeds"]), f"{row['mean']:.4f}", spread, between)
    console.print(table)
    if found["majority"] is not None:
        console.print(f"{found['rows']:,} rows; always the commonest label: {found['majority']:.4f}")
