"""`sesame vectors`: static vectors from a text; `sesame words`: a model to teach from them."""

from pathlib import Path

import typer


def register(app: typer.Typer) -> None:
    app.command()(vectors)
    app.command()(words)


def vectors(
    text: list[str] = typer.Argument(..., help="Text: .txt, .jsonl, .parquet, packed or not, or folders of them."),
    out: Path = typer.Option(..., "--out", help="The file: word2vec's text format; fastText also .bin, with n-grams."),
    kind: str = typer.Option("word2vec", help="word2vec, fasttext or glove."),
    width: int = typer.Option(100, min=1, help="Numbers of a vector."),
    window: int = typer.Option(0, min=0, help="Words to each side; by default 5, GloVe 10."),
    epochs: int = typer.Option(0, min=0, help="Passes over the text; by default 5, GloVe 25 over its pairs."),
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
    from sesame.data.vector_files import write_vectors
    from sesame.data.vector_training import Training, train_vectors
    from sesame.errors import SesameError
    from sesame.progress import say

    binary = out.suffix.lower() == ".bin"
    if binary and kind != "fasttext":
        raise SesameError(f"--out {out}: only fastText has n-grams to keep in a .bin file; take .txt")
    check_new(out)
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

    from sesame.files import whole_file

    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made.bin"
        save_facebook_model(model, str(made))
        with made.open("rb") as given, whole_file(out) as handle:
            shutil.copyfileobj(given, handle)


def words(
    out: Path = typer.Option(..., "--out", help="The model folder."),
    train: str | None = typer.Option(None, help="Labelled rows whose words it shall know, as for `sesame finetune`."),
    task: str = typer.Option("tag", help="How these rows are read: tag, classify, regress, qa or choice."),
    vectors: Path | None = typer.Option(None, "--vectors", help="Static vectors to start from; otherwise at random."),
    frozen: bool = typer.Option(False, "--frozen/--tuned", help="Whether the vectors stay as they are."),
    unknown: str = typer.Option("unk", help="Words of the rows without a vector: unk, letters, random or class."),
    most: int | None = typer.Option(None, min=1, help="Only the first vectors of the file."),
    width: int = typer.Option(256, min=2, help="Of a state, both directions together."),
    word_width: int = typer.Option(100, min=1, help="Of a word vector, without --vectors."),
    depth: int = typer.Option(1, min=1, help="Layers of the LSTM."),
    dropout: float = typer.Option(0.5, help="Before and behind each layer."),
    min_count: int = typer.Option(2, min=1, help="Rarer words of the rows are unknown, which teaches what that means."),
    lowercase: bool = typer.Option(False, "--lowercase", help="Capitals do not count; so if no vector has any."),
    seed: int = typer.Option(0, help="Where chance begins."),
) -> None:
    """Make a model of words to teach: static vectors, frozen or tuned, under a fresh bidirectional LSTM.

    Example: sesame words --train train.conll --vectors glove.txt --frozen --out runs/words
    """
    from collections import Counter

    from sesame.checkpoint.folder import save_parts
    from sesame.checkpoint.word_model import count_words, word_model
    from sesame.cli.show import check_new
    from sesame.data.labelled import read_labelled
    from sesame.data.vector_files import read_vectors
    from sesame.errors import SesameError
    from sesame.files import whole_folder
    from sesame.progress import say

    if train is None and vectors is None:
        raise SesameError("give --train FILE, --vectors FILE or both: a model of words must know some")
    check_new(out)
    counted = Counter[str]() if train is None else count_words(read_labelled(train, task, labels=False).examples)
    given = None if vectors is None else read_vectors(vectors, most, unknown)
    made = word_model(
        counted, given, frozen=frozen, width=width, word_width=word_width, depth=depth, dropout=dropout,
        min_count=min_count, lowercase=lowercase, seed=seed,
    )  # fmt: skip
    with whole_folder(out) as folder:
        save_parts(folder, made)
    say(f"{out}: {made.backbone.vocab:,} words; teach it with sesame finetune {out} --task tag --rate 1e-2")
