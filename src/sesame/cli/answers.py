"""Commands that ask a model: `fill`, `embed`."""

import json as jsonlib
import sys
from collections.abc import Iterator
from pathlib import Path

import typer

DEVICE = typer.Option("auto", help="auto, cpu or cuda.")
ENGINE = typer.Option("torch", help="Who computes: torch or onnx.")
PRECISION = typer.Option("fp32", help="fp32, bf16 (CPUs with AMX or AVX512-BF16, GPUs) or int8 (CPUs).")
ACCEPT = typer.Option(False, "--accept", help="Take bf16 or int8 even if too few answers agree with fp32.")


def register(app: typer.Typer) -> None:
    app.command()(fill)
    app.command()(embed)


def lines_of(texts: list[str] | None, file: Path | None, empty: bool = False, tables: bool = False) -> list[str]:
    """Texts from the command line, from a file (one a line), or from standard input; `empty` lines are left out or kept, and
    `tables` are refused, or read as the lines that they are."""
    return [text for _, text in numbered_lines(texts, file, empty, tables)]


def numbered_lines(
    texts: list[str] | None, file: Path | None, empty: bool = False, tables: bool = False
) -> list[tuple[str, str]]:
    """The same with their places; lines that are left out are counted."""
    from sesame.errors import SesameError
    from sesame.progress import say

    if texts and file is not None:
        raise SesameError("give texts or --file, not both")
    if texts:
        for text in texts:
            check_utf8(text, "the command line")
        return [(f"text {number}", text) for number, text in enumerate(texts, 1)]
    if file is None and sys.stdin.isatty():
        raise SesameError('give a text, such as "Paris is the [MASK] of France.", or --file FILE, or pipe lines in')
    found = list(_standard_input() if file is None else _lines(file, tables))
    kept = [(place, text) for place, text in found if text.strip()]
    if not kept:
        raise SesameError(f"{file or 'standard input'}: holds no text")
    if len(kept) < len(found) and not empty:
        say(f"{file or 'standard input'}: {len(found) - len(kept):,} of {len(found):,} lines are empty, and left out")
    return found if empty else kept


def check_utf8(text: str, place: str) -> None:
    """Bytes that are no UTF-8 reach Python as lone surrogates."""
    from sesame.errors import SesameError

    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise SesameError(f"{place}: the text is not UTF-8; convert it, for example with iconv")


def _standard_input() -> Iterator[tuple[str, str]]:
    for number, line in enumerate(sys.stdin.buffer, 1):
        text = line.decode("utf-8", "surrogateescape").rstrip("\r\n")
        check_utf8(text, f"standard input, line {number}")
        yield f"standard input, line {number}", text


def _lines(file: Path, tables: bool) -> Iterator[tuple[str, str]]:
    """Every line of a text, or the texts of JSON lines and Parquet."""
    from sesame.data.corpus_files import file_kind
    from sesame.data.readers import read_texts
    from sesame.data.streams import lines
    from sesame.errors import SesameError

    if not file.is_file():
        there = "is a folder; name a file in it" if file.is_dir() else "no such file; check the name"
        raise SesameError(f"{file}: {there}")
    if not tables and file_kind(file) != "text":
        yield from read_texts(file)
        return
    for number, text, whole in lines(file, 1 << 20, None):
        if not whole:
            raise SesameError(
                f"{file}:{number}: is longer than a million characters; a line is one text, so cut it into several"
            )
        yield f"{file}:{number}", text


def fill(
    model: str = typer.Argument(..., help="A model folder, or a run."),
    texts: list[str] = typer.Argument(None, help="Texts with [MASK]; without them, lines of standard input."),
    file: Path | None = typer.Option(None, help="A file with one text a line."),
    top: int = typer.Option(5, min=1, help="How many tokens for each mask."),
    device: str = DEVICE,
    engine: str = ENGINE,
    precision: str = PRECISION,
    accept: bool = ACCEPT,
    json: bool = typer.Option(False, "--json", help="One JSON object a text."),
) -> None:
    """Fill the masks in a text: the best tokens with their probabilities.

    Example: sesame fill runs/mine "The capital of France is [MASK]."
    """
    import sesame

    wanted = lines_of(texts, file)
    answers = sesame.load(model, device, engine, precision, accept).fill(wanted, top)
    for text, masks in zip(wanted, answers, strict=True):
        if json:
            found = [
                {"start": m.start, "end": m.end, "tokens": m.tokens, "probabilities": m.probabilities} for m in masks
            ]
            typer.echo(jsonlib.dumps({"text": text, "masks": found}, ensure_ascii=False))
            continue
        typer.echo(text)
        for number, mask in enumerate(masks, 1):
            best = "  ".join(
                f"{token} {chance:.1%}" for token, chance in zip(mask.tokens, mask.probabilities, strict=True)
            )
            typer.echo(f"  {number}. {best}")


def embed(
    model: str = typer.Argument(..., help="A model folder, or a run."),
    texts: list[str] = typer.Argument(None, help="Texts; without them, lines of standard input."),
    file: Path | None = typer.Option(None, help="A file with one text a line."),
    layers: str = typer.Option(
        "last", help="last, second-to-last, first, sum-last-4, concat-last-4, sum-all, or a number."
    ),
    pooling: str | None = typer.Option(
        None, help="mean, max, cls or pooler; by default mean; cls for skip-thought, where it is the sentence vector."
    ),
    out: Path | None = typer.Option(None, help="Write a NumPy file (.npy) instead of JSON lines."),
    device: str = DEVICE,
    engine: str = ENGINE,
    precision: str = PRECISION,
    accept: bool = ACCEPT,
) -> None:
    """Turn texts into vectors.

    Example: sesame embed runs/mine --file tickets.txt --layers sum-last-4 --out vectors.npy
    """
    import numpy as np

    import sesame
    from sesame.cli.show import check_new
    from sesame.errors import SesameError
    from sesame.files import whole_file
    from sesame.progress import say

    if out is not None:
        if out.suffix != ".npy":
            raise SesameError(f"--out {out}: must end in .npy")
        check_new(out)
    wanted = lines_of(texts, file, empty=True)
    given = [number for number, text in enumerate(wanted) if text.strip()]
    asked = [wanted[number] for number in given]
    found = sesame.load(model, device, engine, precision, accept).embed(asked, layers, pooling, progress=True)
    vectors = np.zeros((len(wanted), found.shape[1]), found.dtype)
    vectors[given] = found
    if len(given) < len(wanted):
        say(f"{len(wanted) - len(given):,} of {len(wanted):,} lines are empty; their vectors are zeros")
    if out is None:
        for text, vector in zip(wanted, vectors, strict=True):
            typer.echo(
                jsonlib.dumps({"text": text, "vector": [round(float(x), 6) for x in vector]}, ensure_ascii=False)
            )
    else:
        with whole_file(out) as handle:
            np.save(handle, vectors)
        say(f"{out}: {len(vectors):,} vector{'' if len(vectors) == 1 else 's'} of {vectors.shape[1]}")
