"""`sesame picture`: alignments, sentence vectors and BLEU by length, drawn to PNG, SVG or a page."""

from pathlib import Path

import typer

OUT = typer.Option(..., "--out", help="The picture: .png, .svg or a page, .html.")
TITLE = typer.Option("", help="What stands on the picture; otherwise what it shows.")
DEVICE = typer.Option("auto", help="auto, cpu or cuda.")


def register(app: typer.Typer) -> None:
    pictures = typer.Typer(
        no_args_is_help=True,
        help="Draw where a decoder looks, how texts lie, or how BLEU falls with length.\n\n"
        'Example: sesame picture alignment runs/en-de "A dog runs." --out dog.png',
    )
    pictures.command()(alignment)
    pictures.command()(vectors)
    pictures.command()(lengths)
    app.add_typer(pictures, name="picture")


def alignment(
    model: str = typer.Argument(..., help="An encoder-decoder: a model folder, or a run."),
    source: str = typer.Argument(..., help="The text that it reads."),
    out: Path = OUT,
    answer: str | None = typer.Option(None, help="An answer to ask about; otherwise the model's own."),
    layer: int | None = typer.Option(None, min=1, help="Of the decoder, from 1; by default the last but one."),
    beams: int = typer.Option(5, min=1, help="Hypotheses of the search for an answer."),
    title: str = TITLE,
    device: str = DEVICE,
) -> None:
    """Draw where an encoder-decoder looks while it answers.

    Example: sesame picture alignment runs/en-de "A dog runs." --out dog.png
    """
    _check(out)
    from sesame.checkpoint.loading import load_parts
    from sesame.explain.alignment import align
    from sesame.explain.drawing import draw_alignment
    from sesame.train.precision import choose_machine

    parts = load_parts(model)
    parts.to(choose_machine(device).device)
    found = align(parts, source, answer, layer, beams)
    draw_alignment(found, out, title)
    _done(out)


def vectors(
    model: str = typer.Argument(..., help="A model folder, a run, or a file of static vectors."),
    file: Path = typer.Option(..., help="One text a line; with --labelled: label, tab, text."),
    out: Path = OUT,
    labelled: bool = typer.Option(False, "--labelled", help="Lines begin with a label and a tab; it gives the color."),
    names: bool = typer.Option(False, "--names", help="Write the texts beside their points."),
    layers: str = typer.Option("last", help="As for `sesame embed`."),
    pooling: str | None = typer.Option(None, help="As for `sesame embed`."),
    title: str = TITLE,
    device: str = DEVICE,
) -> None:
    """Draw texts on the two principal components of their vectors.

    Example: sesame picture vectors runs/mine --file titles.tsv --labelled --out titles.svg
    """
    _check(out)
    from sesame.cli.answers import lines_of
    from sesame.errors import SesameError
    from sesame.explain.drawing import draw_vectors

    rows = [row for row in lines_of(None, file, empty=True, tables=True) if row.strip()]
    labels: list[str] | None = None
    if labelled:
        pairs = [row.split("\t", 1) for row in rows]
        for number, pair in enumerate(pairs, 1):
            if len(pair) < 2 or not pair[1].strip():
                raise SesameError(f"{file}: text {number} has no tab between a label and a text; leave out --labelled")
        labels, rows = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    if Path(model).is_file():
        from sesame.data.vector_files import read_vectors
        from sesame.explain.sentences import mean_vectors

        found = mean_vectors(read_vectors(model), rows)
    else:
        import sesame

        found = sesame.load(model, device).embed(rows, layers, pooling, progress=True)
    draw_vectors(found, out, labels, rows if names else None, title)
    _done(out)


def lengths(
    systems: list[str] = typer.Argument(..., metavar="NAME=FILE...", help="Translations, a line for each source."),
    source: Path = typer.Option(..., help="What was translated, one text a line."),
    reference: Path = typer.Option(..., help="How it should be translated."),
    out: Path = OUT,
    groups: int = typer.Option(6, min=1, help="Groups of lengths at most."),
    title: str = TITLE,
) -> None:
    """Draw BLEU by the length of the source, a line for each system, with 95 % intervals.

    Example: sesame picture lengths plain=a.txt attention=b.txt --source en.txt --reference de.txt --out lengths.svg
    """
    _check(out)
    from sesame.cli.answers import lines_of
    from sesame.errors import SesameError
    from sesame.explain.by_length import by_length
    from sesame.explain.drawing import draw_lengths

    said: dict[str, list[str]] = {}
    for system in systems:
        name, mark, file = system.partition("=")
        if not mark or not name or name in said:
            raise SesameError(f"{system}: write NAME=FILE, each name once, such as attention=b.txt")
        said[name] = lines_of(None, Path(file), empty=True)
    read, wanted = (lines_of(None, file, empty=True) for file in (source, reference))
    found = by_length(read, wanted, said, groups)
    draw_lengths(found, out, title)
    for group in found:
        scores = ", ".join(f"{name} {100 * score.value:.1f}" for name, score in group.scores.items())
        typer.echo(f"{group.name} words, {len(group.rows)} sentences: {scores}")
    _done(out)


def _check(out: Path) -> None:
    from sesame.cli.show import check_new
    from sesame.explain.drawing import check_picture

    check_picture(out)
    check_new(out)


def _done(out: Path) -> None:
    from sesame.progress import say

    say(f"{out}: drawn")
