"""What `sesame predict` reads and writes."""

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from sesame.cli.show import check_new
from sesame.data.conll import has_tags
from sesame.data.corpus_files import TEXT
from sesame.data.examples import Example
from sesame.data.labelled import has_text, read_labelled
from sesame.data.tables import TABLES, inner_suffix
from sesame.errors import SesameError
from sesame.files import write_whole
from sesame.progress import say
from sesame.tasks import Reply


def examples_of(
    kind: str,
    lines: Sequence[tuple[str, str]] | None,
    file: Path | None,
    second: str | None,
    columns: Mapping[str, str],
) -> list[Example]:
    """Rows of a table, or texts of the command line or of lines with their places, each with the same second text if one is
    given."""
    if lines is None:
        assert file is not None
        found = read_labelled(file, kind, dict(columns), labels=False)
        say(found.said)
        for warning in found.warnings:
            say(warning)
        return found.examples
    texts = [text for _, text in lines]
    if kind == "choice":
        if second is not None or len(texts) < 3:
            raise SesameError("give a stem and at least two options, as separate texts, or rows with --file")
        return [Example("command line", texts[0], options=tuple(texts[1:]))]
    if kind == "qa":
        if second is None:
            raise SesameError('give the text to answer from: --context "..."; or rows with --file')
        return [Example(place, second, question) for place, question in lines]
    return [Example(place, text, second) for place, text in lines]


def is_table(file: Path, kind: str) -> bool:
    """Whether a file holds rows; else each of its lines is a text. Columns of words and tags are rows by any name."""
    suffix = inner_suffix(file)
    if suffix in TABLES or kind != "tag":
        return suffix in TABLES
    return suffix not in ("", *TEXT) or (file.is_file() and has_tags(file))


def check_out(out: Path | None) -> None:
    """Refuse, before any work, a file that cannot be written."""
    if out is None:
        return
    if out.suffix not in (".jsonl", ".csv"):
        raise SesameError(f"--out {out}: must end in .jsonl or .csv")
    check_new(out)


def answered(ask: Callable[[list[Example]], list[Reply]], examples: Sequence[Example]) -> list[Reply]:
    """A reply for every row, in order: where there is nothing to read, one without an answer, so that no row is shifted."""
    full = [number for number, example in enumerate(examples) if has_text(example)]
    if not full:
        raise SesameError(f"{examples[0].place}: there is no text, nor in any other row; give one to answer about")
    found = ask([examples[number] for number in full])
    if len(full) == len(examples):
        return found
    first = next(example.place for example in examples if not has_text(example))
    missing = len(examples) - len(full)
    say(f"{missing:,} of {len(examples):,} rows have no text, and get no answer, first {first}")
    nothing = dict.fromkeys(key for reply in found[:1] for key in reply if key != "abstained")
    replies: list[Reply] = [{**nothing, "empty": True} for _ in examples]
    for number, reply in zip(full, found, strict=True):
        replies[number] = reply
    return replies


def write_replies(
    examples: Sequence[Example], replies: Sequence[Mapping[str, Any]], out: Path | None, as_json: bool
) -> None:
    rows = [
        {
            "place": e.place,
            **({"id": e.id} if e.id else {}),
            "text": e.text,
            **({"pair": e.pair} if e.pair else {}),
            **r,
        }
        for e, r in zip(examples, replies, strict=True)
    ]
    if out is None:
        for row in rows:
            typer.echo(json.dumps(row, ensure_ascii=False) if as_json else _line(row))
        return
    if out.suffix == ".csv":
        write_whole(out, _csv(rows))
    else:
        write_whole(out, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    say(f"{out}: {len(rows):,} answers")


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """One column a key; what is no plain value is written as JSON."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    handle = io.StringIO()
    writer = csv.writer(handle)
    writer.writerow(keys)
    for row in rows:
        cells = [row.get(key, "") for key in keys]
        writer.writerow([json.dumps(c, ensure_ascii=False) if isinstance(c, dict | list) else c for c in cells])
    return handle.getvalue()


def _line(row: Mapping[str, Any]) -> str:
    """For people: the answer, how sure, and the text."""
    text = row["text"].replace("\n", " ")
    short = text if len(text) <= 100 else text[:97] + "..."
    if row.get("empty"):
        return f"(no text)\t{short}"
    if "entities" in row:
        found = "  ".join(f"{e['text']} [{e['label']} {e['probability']:.0%}]" for e in row["entities"])
        return f"{short}\n  {found or '(no entities)'}"
    if "value" in row:
        return f"{row['value']:.4g}\t{short}"
    if "labels" in row:
        return f"{', '.join(row['labels']) or '(none)'}\t{short}"
    if "answer" in row:
        said = "(not sure enough)" if row["answer"] is None else row["answer"] or "(no answer)"
        return f"{row['pair']}\n  {said}  {row['probability']:.0%}"
    if "choice" in row:
        said = "(not sure enough)" if row["choice"] is None else row["option"]
        return f"{said}\t{max(row['probabilities']):.0%}\t{short}"
    said = "(not sure enough)" if row["label"] is None else row["label"]
    return f"{said}\t{row['probability']:.0%}\t{short}"
