"""Commands on model folders: `convert`."""

from pathlib import Path

import typer


def register(app: typer.Typer) -> None:
    app.command()(convert)


def convert(
    model: str = typer.Argument(..., help="A model folder of ours or of Hugging Face."),
    out: Path = typer.Option(..., "--out", help="The folder to write."),
    tokenizer: str | None = typer.Option(None, help="Take this tokenizer instead of the folder's own."),
) -> None:
    """Rewrite any model folder (old names, .bin, shards) as one clean folder that Sesame and transformers open.

    Example: sesame convert old-bert/ --out clean-bert
    """
    from sesame.checkpoint.folder import check_fit, load_parts, save_parts
    from sesame.cli.show import check_new
    from sesame.files import whole_folder
    from sesame.progress import say
    from sesame.text import Tokenizer

    check_new(out)
    parts = load_parts(model)
    if tokenizer is not None:
        parts.tokenizer = Tokenizer.load(tokenizer)
        check_fit(parts.tokenizer, parts.backbone.vocab, tokenizer)
    with whole_folder(out) as folder:
        save_parts(folder, parts)
    heads = ", ".join(parts.heads) or "none"
    say(f"{out}: {sum(t.numel() for t in parts.state().values()):,} parameters, heads: {heads}")
    if parts.unused:
        say(f"left behind, because no part of Sesame uses them: {', '.join(parts.unused[:8])}")
    if parts.tokenizer is None:
        say("the folder has no tokenizer; give one with --tokenizer")
