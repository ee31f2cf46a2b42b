"""Commands before the training: `doctor`, `tokenizer`, `recipes`, `trees`."""

from pathlib import Path

import typer


def register(app: typer.Typer) -> None:
    app.command()(doctor)
    app.command()(tokenizer)
    app.command()(recipes)
    app.command()(trees)


def doctor(
    text: list[str] = typer.Argument(..., help="Text files or folders."),
    tokenizer: str | None = typer.Option(None, help="A tokenizer folder or file, or a run, to examine on this text."),
    field: str = typer.Option("text", help="The field of .jsonl and .parquet that holds the text."),
    json: bool = typer.Option(False, "--json", help="The findings for a program."),
) -> None:
    """Find problems in a text and a tokenizer before you train on them. Exit code 1 if something would hurt.

    Example: sesame doctor corpus.txt.xz --tokenizer runs/mine/tokenizer
    """
    from sesame.doctor import run_doctor

    raise typer.Exit(run_doctor(text, tokenizer, field, json))


def tokenizer(
    text: list[str] = typer.Argument(..., help="Text files or folders."),
    out: Path = typer.Option(..., "--out", help="The folder to write."),
    kind: str = typer.Option("wordpiece", help="wordpiece, bpe, unigram, word or spaced."),
    size: int = typer.Option(30_000, min=8, max=10_000_000, help="How many pieces."),
    lowercase: bool | None = typer.Option(
        None,
        "--lowercase/--cased",
        help="Lower-case the text; letters stay apart (й is not и). By default for all but bpe, whose bytes then give back "
        "every text.",
    ),
    strip_accents: bool = typer.Option(
        False, "--strip-accents", help="Drop accents as BERT's uncased models do (й becomes и)."
    ),
    field: str = typer.Option("text", help="The field of .jsonl and .parquet that holds the text."),
) -> None:
    """Train a tokenizer on raw text.

    Example: sesame tokenizer corpus.txt.xz --kind wordpiece --size 16384 --out my-tokenizer
    """
    from sesame.cli.show import check_new
    from sesame.data.corpus_files import corpus_files
    from sesame.data.vocabulary import tokenizer_from
    from sesame.errors import SesameError
    from sesame.files import whole_folder
    from sesame.progress import say

    if kind not in ("wordpiece", "bpe", "unigram", "word", "spaced"):
        raise SesameError(f"--kind {kind}: must be wordpiece, bpe, unigram, word or spaced")
    check_new(out)
    small = kind != "bpe" if lowercase is None else lowercase
    made = tokenizer_from(corpus_files(text), field, kind, size, small, strip_accents)  # type: ignore[arg-type]
    with whole_folder(out) as folder:
        made.save(folder)
    say(f"{out}: {len(made):,} pieces")


def recipes(
    action: str | None = typer.Argument(None, help="`show` prints one recipe."),
    name: str | None = typer.Argument(None, help="Which recipe."),
) -> None:
    """List the published methods that can be trained, or show one with all its numbers.

    Example: sesame recipes show bert
    """
    from importlib import resources

    from sesame.errors import SesameError
    from sesame.recipe import read_recipe, recipe_names

    if action is None:
        wide = max(map(len, recipe_names()))
        for known in recipe_names():
            table = read_recipe(known)
            lines = table.get("about", ""), table.get("paper", ""), "sizes: " + ", ".join(table.get("sizes", {}))
            typer.echo(
                "\n".join(f"{before:{wide}}  {line}" for before, line in zip((known, "", ""), lines, strict=True))
            )
    elif action == "show" and name is not None:
        read_recipe(name)  # a clear complaint about a name that is not there
        own = name.endswith(".toml")
        place = Path(name) if own else resources.files("sesame") / "recipes" / f"{name}.toml"
        typer.echo(place.read_text(encoding="utf-8"), nl=False)
    else:
        raise SesameError("write `sesame recipes` for the list, or `sesame recipes show NAME`")


def trees(
    files: list[str] = typer.Argument(
        ..., help="Bracketed trees (.mrg ...), JSON lines with a field tree, or folders."
    ),
    out: Path = typer.Option(..., "--out", help="The .jsonl file to write."),
    leaves: str = typer.Option("XX", help="What stands for each word of an answer: XX, words or tags."),
    functions: bool = typer.Option(False, help="Keep functions and indices: NP-SBJ-1."),
) -> None:
    """Turn parse trees into pairs of a sentence and its tree in one line, so that parsing becomes translation.

    Example: sesame trees wsj/ --out train.jsonl
    Then: sesame pretrain transformer --pairs words-tree=train.jsonl --out runs/parser
    """
    import json

    from sesame.cli.show import check_new
    from sesame.data.trees import bare, linearize, read_trees
    from sesame.errors import SesameError
    from sesame.files import write_whole
    from sesame.progress import say

    if out.suffix != ".jsonl":
        raise SesameError(f"--out {out}: must end in .jsonl, by which others know that its lines are JSON")
    check_new(out)
    lines, empty = [], 0
    for tree in read_trees(files):
        plain = bare(tree, functions=functions)
        if plain.words:
            pair = {"source": " ".join(plain.words), "target": linearize(plain, leaves)}  # type: ignore[arg-type]
            lines.append(json.dumps(pair, ensure_ascii=False) + "\n")
        else:
            empty += 1
    write_whole(out, "".join(lines))
    left_out = f"; {empty:,} without a word were left out" if empty else ""
    found = "1 sentence and its tree" if len(lines) == 1 else f"{len(lines):,} sentences and their trees"
    say(f"{out}: {found}{left_out}")
