"""Commands that show what a model has learnt: `explain`, `neighbours`."""

import json as jsonlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from sesame.explain.occurrences import Occurrence
    from sesame.explain.senses import Near, Numbers

AROUND = 42  # characters on each side of a word in a table


def register(app: typer.Typer) -> None:
    app.command()(explain)
    app.command()(neighbours)


def explain(
    model: str = typer.Argument(..., help="A model folder, or a run."),
    text: str | None = typer.Argument(
        None, help="The text; neighbours: a word; layers need none, nor heads with --data."
    ),
    what: str = typer.Option(..., help="attention, attribution, heads, layers or neighbours."),
    out: Path | None = typer.Option(
        None, help="The page (.html) or picture (.png, .svg). The figures are printed anyway."
    ),
    pair: str | None = typer.Option(None, help="A second text; for questions the context."),
    task: str | None = typer.Option(None, help="The task by name, if the model was taught several; 'mask' for none."),
    label: str = typer.Option("", help="The label, tag or token asked about; qa: span, start or end; else an answer."),
    at: str = typer.Option("", help="tag: a word or its number; masks: the number of one."),
    baseline: str = typer.Option("", help="attribution: what stands for no text, mask (default) or pad."),
    layer: int | None = typer.Option(None, min=1, help="attention as a picture: from 1; by default the last."),
    head: int | None = typer.Option(None, min=1, help="attention as a picture: one head; by default all."),
    data: str | None = typer.Option(None, help="Labelled rows for heads and layers; texts for neighbours."),
    kind: str | None = typer.Option(None, help="layers: classify, regress or tag; by default as the model was taught."),
    text_column: str | None = typer.Option(None, help="The column of the text; guessed otherwise."),
    pair_column: str | None = typer.Option(None, help="The column of the second text."),
    label_column: str | None = typer.Option(None, help="The column of the label."),
    device: str = typer.Option("auto", help="auto, cpu or cuda."),
    json: bool = typer.Option(False, "--json", help="JSON instead of a table."),
) -> None:
    """Look inside a model: where it looks, what each token adds, what each head is worth, what each layer knows.

    Example: sesame explain runs/tickets "The parcel never came." --what attribution --out parcel.html
    """
    from sesame.cli import explanations
    from sesame.cli.answers import check_utf8

    for given in (text, pair, label):
        check_utf8(given or "", "the command line")
    if what == "neighbours" and text is not None and data is not None:
        neighbours(model, text, [data], 3, 500, 12, None, "sum-last-4", False, "letters", out, device, json)
        return
    columns = {"text": text_column, "pair": pair_column, "label": label_column}
    wanted = explanations.Wanted(
        model, text, pair, task, label, at, baseline, layer, head, data, kind,
        {role: name for role, name in columns.items() if name is not None}, out, device, json,
    )  # fmt: skip
    explanations.show(what, wanted)


def neighbours(
    model: str = typer.Argument(..., help="A model folder, a run, or a file of static vectors (.txt, .vec, .bin)."),
    word: str = typer.Argument(..., help="The word; with a model also the beginning of one: 'play*'."),
    text: list[str] = typer.Option([], "--text", help="Text to find the word in. Repeat for more. Not with vectors."),
    top: int = typer.Option(3, min=1, help="Neighbours of each occurrence; of a static vector five times as many."),
    most: int = typer.Option(500, min=2, help="Occurrences at most, the first of the text."),
    show: int = typer.Option(12, min=1, help="Occurrences in the table; --out has all."),
    senses: int | None = typer.Option(None, min=1, help="Groups of occurrences; by default as many as fit best."),
    layers: str = typer.Option("sum-last-4", help="Whose states: as for `sesame embed`."),
    hide: bool = typer.Option(
        False, "--hide", help="Put a mask in the place of the word: senses by what stands around it alone."
    ),
    unknown: str = typer.Option(
        "letters", help="Static vectors, for words without one: unk, letters, lookup, random or class."
    ),
    out: Path | None = typer.Option(None, help="Write a page (.html) with all of it."),
    device: str = typer.Option("auto", help="auto, cpu or cuda."),
    json: bool = typer.Option(False, "--json", help="JSON instead of a table."),
) -> None:
    """Show what stands near a word: other occurrences of it in the same sense, or the words near a static vector.

    Example: sesame neighbours runs/mine --text news.txt "play" --out play.html
    """
    from sesame.cli.show import check_new
    from sesame.errors import SesameError

    if Path(model).is_file():
        if text or out is not None or hide:
            raise SesameError(
                f"{model}: a static vector does not depend on a text; leave out --text, --out and --hide, or name a "
                "model folder"
            )
        _static(model, word, 5 * top, unknown, json)
        return
    if not text:
        raise SesameError("give --text FILE: a model's vectors of a word depend on what stands around it")
    if out is not None:
        if out.suffix != ".html":
            raise SesameError(f"--out {out}: must end in .html")
        check_new(out)
    found, near, groups = _in_context(model, word, text, most, top, senses, layers, hide, device)
    if out is not None:
        from sesame.explain.neighbors_page import write_neighbors
        from sesame.progress import say

        write_neighbors(out, word, found, near, groups)
        say(f"{out}: {len(found)} occurrences")
    if json:
        for row in range(len(found)):
            typer.echo(jsonlib.dumps(_record(found, near, groups, row), ensure_ascii=False))
    else:
        _table(found, near, groups, show)


def _static(path: str, word: str, count: int, unknown: str, json: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    from sesame.data.vector_files import read_vectors
    from sesame.errors import SesameError
    from sesame.progress import say

    vectors = read_vectors(path, policy=unknown)
    if not word.strip():
        raise SesameError("the word is empty; give one")
    if vectors.row(word) is None:
        if unknown == "letters" and (vectors.vector(word) == vectors.vector("")).all():
            raise SesameError(
                f"{path}: has no vector for {word!r}, nor words that are spelled like it; give another word"
            )
        say(f"{path}: has no vector for {word!r}; it is given one by --unknown {unknown}")
    found = vectors.neighbors(word, count)
    if json:
        typer.echo(jsonlib.dumps({"word": word, "neighbours": [list(pair) for pair in found]}, ensure_ascii=False))
        return
    table = Table("word", "cosine")
    for other, cosine in found:
        table.add_row(_plain(other), f"{cosine:.3f}")
    Console(highlight=False, emoji=False).print(table)


def _in_context(
    model: str,
    word: str,
    text: list[str],
    most: int,
    top: int,
    senses: int | None,
    layers: str,
    hide: bool,
    device: str,
) -> "tuple[list[Occurrence], Near, Numbers]":
    from sesame.checkpoint.loading import load_parts
    from sesame.checkpoint.reading import reading
    from sesame.data.readers import read_documents
    from sesame.errors import SesameError
    from sesame.explain import senses as grouping
    from sesame.explain.occurrences import contextual, find
    from sesame.progress import bar, say
    from sesame.train.precision import choose_machine

    parts = reading(load_parts(model))
    if parts.tokenizer is None:
        raise SesameError(f"{model}: has no tokenizer; put tokenizer.json or vocab.txt beside the weights")
    found = find(word, read_documents(text), most)
    if len(found) < 2:
        raise SesameError(
            f"{word!r} stands {len(found)} times in {', '.join(text)}; neighbours need two occurrences, so give more text"
        )
    if len(found) == most:
        say(f"only the first {most} occurrences are read; see --most")
    parts.to(choose_machine(device).device)
    with bar("read", len(found), "occurrences") as shown:
        vectors = contextual(parts.backbone, parts.tokenizer, found, layers, shown, hide=hide)
    return found, grouping.nearest(vectors, top), grouping.senses(vectors, senses)


def _record(found: "list[Occurrence]", near: "Near", groups: "Numbers", row: int) -> dict[str, Any]:
    others = zip(near.rows[row].tolist(), near.cosines[row].tolist(), strict=True)
    one = found[row]
    return {
        "text": one.text, "start": one.start, "end": one.end, "place": one.place, "sense": int(groups[row]) + 1,
        "near": [{"text": found[other].text, "place": found[other].place, "cosine": cosine} for other, cosine in others],
    }  # fmt: skip


def _table(found: "list[Occurrence]", near: "Near", groups: "Numbers", show: int) -> None:
    """As many rows of each sense as its share, at least one."""
    from rich.console import Console
    from rich.table import Table

    table = Table("sense", "occurrence", "cosine, nearest others", show_lines=True)
    for row in _chosen(groups.tolist(), show):
        near_by = zip(near.rows[row].tolist(), near.cosines[row].tolist(), strict=True)
        others = "\n".join(f"{cosine:.2f} {_sentence(found[other])}" for other, cosine in near_by)
        table.add_row(str(int(groups[row]) + 1), _sentence(found[row]), others)
    Console(highlight=False, emoji=False).print(table)


def _chosen(groups: list[int], show: int) -> list[int]:
    rows: list[int] = []
    for group in range(max(groups) + 1):
        of_group = [row for row, its in enumerate(groups) if its == group]
        rows += of_group[: max(1, round(show * len(of_group) / len(groups)))]
    return rows


def _sentence(one: "Occurrence") -> str:
    from sesame.explain.neighbors_page import around

    before, word, behind = map(_plain, around(one, AROUND))
    return f"{before}[bold]{word}[/bold]{behind}"


def _plain(text: str) -> str:
    from rich.markup import escape

    shown = " ".join(text.split()) or " "
    return escape((" " if text[:1].isspace() else "") + shown + (" " if text[-1:].isspace() and text.strip() else ""))
