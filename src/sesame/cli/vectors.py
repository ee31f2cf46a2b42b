"""`sesame vectors`: static vectors from a text."""

from pathlib import Path

import typer


def register(app: typer.Typer) -> None:
    app.command()(vectors)


def vectors(
    text: list[str] = typer.Argument(..., help="Text: .txt, .jsonl, .parquet, packed or not, or folders of them."),
    out: Path = typer.Option(..., "--out", help="The file: word2vec's text format; fastText also .bin, with n-grams."),
    kind: str = typer.Option("word2vec", help="word2vec, fasttext or glove."),
    width: int = typer.Option(100, min=1, help="Numbers of a vector."),
    window: int = typer.Option(0, min=0, help="Words to each side; by default 5, GloVe 10.", show_default=False),
    epochs: int = typer.Option(
        0, min=0, help="Passes over the text; by default 5, GloVe 25 over its pairs.", show_default=False
    ),
    min_count: int = typer.Option(5, min=1, help="Rarer words get no vector."),
    most: int = typer.Option(400_000, min=2, help="Words at most, the most frequent."),
    lowercase: bool = typer.Option(True, "--lowercase/--keep-case", help="Whether capitals count."),
    seed: int = typer.Option(0, help="Where chance begins."),
    threads: int = typer.Option(1, min=1, help="Of gensim; with more than one, vectors differ from run to run."),
    field: str = typer.Option("text", help="The field or column of .jsonl and .parquet."),
) -> None:
    """Train static word vectors on a text: word2vec, fastText or GloVe.

    Example: sesame vectors corpus.txt --kind fasttext --width 100 --out vectors.bin
    """
    from sesame.cli.show import check_new
    from sesame.data.streams import PACKED
    from sesame.data.vector_files import write_vectors
    from sesame.data.vector_training import Training, train_vectors
    from sesame.errors import SesameError
    from sesame.progress import say

    binary = out.suffix.lower() == ".bin"
    if binary and kind != "fasttext":
        raise SesameError(f"--out {out}: only fastText has n-grams to keep in a .bin file; take .txt")
    if out.suffix.lower() in PACKED:
        raise SesameError(f"--out {out}: vectors are written as they are; take .txt, and pack the file yourself")
    check_new(out)
    if out.is_dir():
        raise SesameError(f"--out {out}: is a folder; name a file in it, such as {out / 'vectors.txt'}")
    how = Training(kind, width, window, epochs, min_count, most, lowercase, seed, threads, field)
    found, model = train_vectors(text, how)
    if binary:
        _write_binary(model, out)
    else:
        write_vectors(found, out)
    say(f"{out}: {len(found.words):,} vectors of {found.width}")


def _write_binary(model: object, out: Path) -> None:
    """Gensim writes to a name; the whole file then takes its place."""
    import shutil
    import tempfile

    from gensim.models.fasttext import save_facebook_model

    from sesame.files import sweep, whole_file

    sweep(out)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made.bin"
        save_facebook_model(model, str(made))
        with made.open("rb") as given, whole_file(out) as handle:
            shutil.copyfileobj(given, handle)
