"""Commands on model folders: `convert`, `average`, `tagger`, `expand`."""

from pathlib import Path
from typing import Any

import typer

FORMATS = {  # and the options that they have
    "transformers": (),
    "onnx": ("--task", "--precision", "--layers", "--pooling", "--check"),
    "ctranslate2": ("--precision", "--check"),
    "elmo": (),
}
MOST = 1000  # lines of --check that are read: enough to tell a difference of a percent


def register(app: typer.Typer) -> None:
    app.command()(convert)
    app.command()(average)
    app.command()(tagger)
    app.command()(expand)


def convert(
    model: str = typer.Argument(..., help="A model folder of ours or of Hugging Face."),
    out: Path = typer.Option(..., "--out", help="The folder to write."),
    to: str = typer.Option(
        "transformers",
        help="transformers (which Sesame opens too), onnx, ctranslate2 (encoder-decoders), or elmo (HDF5).",
    ),
    tokenizer: str | None = typer.Option(None, help="Take this tokenizer instead of the folder's own."),
    task: str | None = typer.Option(None, help="onnx: the task to export, or fill, or embed."),
    precision: str | None = typer.Option(None, help="onnx, ctranslate2: fp32 or int8."),
    layers: str | None = typer.Option(None, help="onnx, embed: which layers, as in `sesame embed`."),
    pooling: str | None = typer.Option(None, help="onnx, embed: mean, max, cls or pooler."),
    check: Path | None = typer.Option(
        None, help="Exports: compare on the lines of this file, not on built-in sentences."
    ),
) -> None:
    """Rewrite any model folder (old names, .bin, shards) as one clean folder, or export one head of it.

    Example: sesame convert old-bert/ --out clean-bert
    Example: sesame convert runs/topics --to onnx --precision int8 --out topics-onnx
    Example: sesame convert runs/en-de --to ctranslate2 --precision int8 --out en-de-fast
    """
    from sesame.checkpoint.loading import check_fit, load_parts
    from sesame.cli.show import check_new
    from sesame.config import unknown
    from sesame.errors import SesameError
    from sesame.text import Tokenizer

    if to not in FORMATS:
        raise SesameError(unknown(to, dict.fromkeys(FORMATS), "--to", "choice"))
    only = {"--task": task, "--precision": precision, "--layers": layers, "--pooling": pooling, "--check": check}
    given = [name for name, value in only.items() if value is not None and name not in FORMATS[to]]
    if given:
        raise SesameError(f"{given[0]} belongs to an export; add --to onnx or leave it out")
    check_new(out)
    parts = load_parts(model)
    if tokenizer is not None:
        parts.tokenizer = Tokenizer.load(tokenizer, parts.backbone.vocab)
        check_fit(parts.tokenizer, parts.backbone.vocab, tokenizer)
    if to == "onnx":
        _export(parts, model, out, task, precision or "fp32", layers, pooling, check)
    elif to == "ctranslate2":
        _export_translator(parts, out, precision or "fp32", check)
    elif to == "elmo":
        _export_elmo(parts, out)
    else:
        _rewrite(parts, out)


def average(
    models: list[str] = typer.Argument(..., help="A run, with --last; or two or more model folders of equal shape."),
    last: int | None = typer.Option(
        None, min=2, help="So many of the run's newest checkpoints (pretrain with --keep)."
    ),
    out: Path = typer.Option(..., "--out", help="The folder to write."),
) -> None:
    """Average several checkpoints into one model.

    Example: sesame average runs/en-de --last 5 --out en-de-averaged
    """
    from sesame.averaging import average as run
    from sesame.averaging import last_checkpoints
    from sesame.errors import SesameError

    if last is not None and len(models) != 1:
        raise SesameError("--last takes checkpoints of one run; name one run, or leave --last out")
    run(last_checkpoints(models[0], last) if last is not None else models, out)


def tagger(
    out: Path = typer.Option(..., "--out", help="The folder to write."),
    train: str | None = typer.Option(None, help="Rows to tag: their words become the tokenizer."),
    tokenizer: str | None = typer.Option(None, help="Instead: a tokenizer folder. Without both: that of --lm."),
    lm: str | None = typer.Option(None, help="A biLM, a run of recipe elmo: its frozen states are read too."),
    at: str = typer.Option(
        "first", help="The layer that reads them: first (ELMo, all layers mixed) or second (TagLM)."
    ),
    vectors: str | None = typer.Option(None, help="Static vectors (word2vec, GloVe, fastText) that words start from."),
    frozen: bool = typer.Option(False, "--frozen/--tuned", help="Whether these vectors stay as they are."),
    unknown: str = typer.Option("unk", help="Words without a vector: unk (at random), letters, random or class."),
    settings: list[str] = typer.Option([], "--set", help="key=value, such as width=400 or dropout=0.5."),
    seed: int = typer.Option(0, help="Of the weights that it starts from."),
) -> None:
    """Make an untaught tagger, a BiLSTM on words and letters, for `sesame finetune DIR --task tag --strategy tagger`.

    Example: sesame tagger --train train.conll --lm runs/elmo --at second --out taglm
    """
    from sesame.cli.show import check_new
    from sesame.taggers import make_tagger

    check_new(out)
    chosen = [f"lm_at={at}", f"frozen={str(frozen).lower()}", *settings]
    words = {"train": train, "tokenizer": tokenizer, "vectors": vectors, "unknown": unknown}
    make_tagger(out, lm=lm, settings=chosen, seed=seed, **words)  # type: ignore[arg-type]


def expand(
    model: str = typer.Argument(..., help="A skip-thought model: a run, or its folder."),
    vectors: str = typer.Option(..., help="Static vectors (word2vec, GloVe, fastText) that know more words."),
    out: Path = typer.Option(..., "--out", help="The folder to write."),
    most: int | None = typer.Option(None, min=1, help="Only the first so many words of the file."),
) -> None:
    """Teach a skip-thought model words that it has not seen, by a linear map from static vectors to its own.

    Example: sesame expand runs/skip-thought --vectors glove.txt --out skip-thought-wide
    """
    from sesame.cli.show import check_new
    from sesame.expansion import expand as run

    check_new(out)
    run(model, vectors, out, most)


def _rewrite(parts: Any, out: Path) -> None:
    from sesame.checkpoint.saving import save_parts
    from sesame.files import whole_folder
    from sesame.progress import say

    with whole_folder(out) as folder:
        save_parts(folder, parts)
    heads = ", ".join(parts.heads) or "none"
    say(f"{out}: {sum(t.numel() for t in parts.state().values()):,} parameters, heads: {heads}")
    if parts.unused:
        say(f"left behind, because no part of Sesame uses them: {', '.join(parts.unused[:8])}")
    if parts.tokenizer is None:
        say("the folder has no tokenizer; give one with --tokenizer")


def _export(
    parts: Any,
    model: str,
    out: Path,
    task: str | None,
    precision: str,
    layers: str | None,
    pooling: str | None,
    check: Path | None,
) -> None:
    from sesame.checkpoint.onnx import export
    from sesame.checkpoint.onnx.check import SAMPLES
    from sesame.checkpoint.onnx.engine import FILE, check_precision
    from sesame.checkpoint.onnx.heads import EMBED, choose_head
    from sesame.cli.answers import lines_of
    from sesame.errors import SesameError
    from sesame.files import whole_folder
    from sesame.progress import say

    check_precision(precision)
    head = choose_head(parts, task, model, layers or "last", pooling or "mean")
    if head.kind != EMBED and (layers or pooling):
        raise SesameError(f"--layers and --pooling are for vectors, but {head.name!r} is exported; add --task {EMBED}")
    texts = SAMPLES if check is None else lines_of(None, check)[:MOST]
    with whole_folder(out) as folder:
        report = export(folder, parts, head, precision, texts)
    size = (out / FILE).stat().st_size
    say(f"{out}: {head.name} ({head.kind}) in {precision}, {size / 1e6:.1f} MB; {report.sentence()}")
    if parts.tokenizer is None:
        say("the folder has no tokenizer; give one with --tokenizer")


def _export_elmo(parts: Any, out: Path) -> None:
    from sesame.checkpoint.elmo import write_elmo
    from sesame.files import whole_folder
    from sesame.progress import say

    with whole_folder(out) as folder:
        write_elmo(folder, parts.backbone)
    say(f"{out}: weights and options as ELMo's were published; vocabulary and softmax are no part of them")


def _export_translator(parts: Any, out: Path, precision: str, check: Path | None) -> None:
    from sesame.checkpoint.ctranslate2 import export
    from sesame.cli.answers import lines_of
    from sesame.files import whole_folder
    from sesame.progress import say
    from sesame.text.samples import ENGLISH

    texts = ENGLISH if check is None else lines_of(None, check)[:MOST]
    with whole_folder(out) as folder:
        report = export(folder, parts, precision, texts)
    size = (out / "model.bin").stat().st_size
    say(f"{out}: for CTranslate2 in {precision}, {size / 1e6:.1f} MB; {report.sentence()}")
