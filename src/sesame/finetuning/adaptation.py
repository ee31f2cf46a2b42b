"""Unlabelled text before labels: a model first goes on with its pre-training on the user's own text, then learns the task.

Paper: Gururangan et al. 2020, "Don't Stop Pretraining" (https://arxiv.org/abs/2004.10964): text of the domain helps
(domain-adaptive), and so do the bare texts of the task (task-adaptive, here `--text train`).

    RUN/adapted/       a pre-training run with the recipe `adapt`, from the start model; an LSTM's is `adapt-lstm` (ULMFiT)
    RUN/adapted/final  what fine-tuning then starts from
"""

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sesame.backbones import LSTM, BiLM, Encoder, SkipThought, TransformerXL, XLNet
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.data.corpus_files import corpus_files
from sesame.data.examples import Example
from sesame.data.readers import read_documents
from sesame.data.streams import whole_lines
from sesame.data.tables import TABLES, TEXTS, fold, inner_suffix, read_table
from sesame.errors import SesameError
from sesame.files import whole_file
from sesame.pretraining.run import pretrain
from sesame.pretraining.wishes import Wishes
from sesame.progress import say
from sesame.text.template import around

TRAIN = "train"  # stands for the texts of the training rows
LENGTH = 128
KINDS = (Encoder, XLNet, LSTM)  # what goes on with a text before it is taught
RECIPES = {
    BiLM: "elmo",
    SkipThought: "skip-thought",
    TransformerXL: "transformer-xl",
}  # what goes on with one by itself


def adapt(
    run: Path, model: str, text: Sequence[str], rows: Sequence[Example], column: str | None = None, **wishes: Any
) -> Path:
    """Go on with the pre-training of `model` in `run`/adapted; gives the folder of the adapted model.

    `rows` are the training examples that `--text train` stands for, `column` is the user's name for the column of the text
    in tables. `wishes` are those of `pretraining.Wishes`; without budget and steps, it is one pass over the text.
    """
    folder, extracts = run / "adapted", run / "text"
    final = folder / "final"
    if (final / "config.json").is_file():
        say(f"{final}: the model is adapted to the text already")
        return final
    once = wishes.get("budget") is None and wishes.get("steps") is None
    say(f"adapting {model} to unlabelled text first, in {folder}")
    try:
        files = corpora(text, rows, extracts, column)
        recipe, settings = _recipe(model)
        pretrain(Wishes(recipe, files, folder, start=model, settings=settings, one_pass=once, **wishes))
    except SesameError:
        if not (folder / "recipe.toml").is_file():  # a mistake at the start: leave nothing behind
            shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(extracts, ignore_errors=True)
        raise
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    shutil.rmtree(extracts, ignore_errors=True)
    return final


def adaptable(start: Parts) -> bool:
    """Whether `--text` is of use to what a fine-tuning starts from. The LSTM of a sequence autoencoder, which tells no tokens
    by itself, came from an encoder-decoder and cannot go on."""
    return isinstance(start.backbone, KINDS) and (not isinstance(start.backbone, LSTM) or bool(start.heads))


def _recipe(model: str) -> tuple[str, list[str]]:
    """With what a model goes on, and the settings that depend on it."""
    parts = load_parts(model)
    if not isinstance(parts.backbone, KINDS):
        recipe = parts.family if parts.backbone.answers and parts.family in ("t5", "bart") else None
        recipe = next((name for kind, name in RECIPES.items() if isinstance(parts.backbone, kind)), recipe)
        first = f", or go on pre-training it first (`sesame pretrain {recipe} --start {model}`)" if recipe else ""
        raise SesameError(
            f"{model}: a model of this kind cannot be adapted to a text before it is taught; leave --text out{first}"
        )
    longest = parts.backbone.config.max_length
    if isinstance(parts.backbone, LSTM):
        return "adapt-lstm", [f"tokenizer.template={_template(parts)}", f"stages.main.length={min(70, longest)}"]
    settings = [f"stages.short.length={min(LENGTH, longest)}"]
    if isinstance(parts.backbone, Encoder) and parts.backbone.config.causal:  # as it was pre-trained: next tokens
        head = "mlm" if "mlm" in parts.heads else "lm"
        settings += ["objectives.mlm=false", f"objectives.clm.head={head}", f"tokenizer.template={_template(parts)}"]
    if isinstance(parts.backbone, XLNet):  # as it was pre-trained: without masks
        settings += ["objectives.mlm=false", "objectives.plm.weight=1.0"]
    return "adapt", settings


def _template(parts: Parts) -> str:
    """Whether texts begin with a mark."""
    return "end" if parts.tokenizer is not None and not around(parts.tokenizer)[0] else "bert"


def text_of(text: Sequence[str]) -> list[Path]:
    """The files behind `--text`; the training rows are no files of their own."""
    named = [Path(name) for name in text if name != TRAIN]
    return [file for path in named for file in (corpus_files([path]) if path.is_dir() else [path])]


def corpora(text: Sequence[str], rows: Sequence[Example], folder: Path, column: str | None = None) -> list[str]:
    """The texts as files that pre-training reads; of tables and training rows, the text goes to JSON lines in `folder`."""
    files: list[str] = []
    for number, name in enumerate(text, 1):
        path = Path(name)
        target = folder / f"{number}.jsonl"
        if name == TRAIN:
            found = dict.fromkeys(part for row in rows for part in (row.text, row.pair, *row.options) if part)
            say(f"--text train: {len(found):,} different texts of the training rows")
            files.append(_write(target, found))
        elif path.is_file() and path.stat().st_size and inner_suffix(path) in TABLES:
            files.append(_table(path, target, column))
        else:
            files.append(name)  # text, a folder, or a mistake that the reader of corpora names
    return files


def _table(path: Path, target: Path, wanted: str | None) -> str:
    if inner_suffix(path) in (".csv", ".tsv", ".tab"):
        table = read_table(path, [wanted] if wanted else [], whole=False)
        for warning in table.warnings:
            say(f"warning: {warning}")
        name = _column(path, table.columns, wanted)
        found = [str(row[name]) for _, row in table.rows if row[name].strip()]
        lost = len(table.rows) - len(found)
        say(
            f'{path}: {len(found):,} texts of the column "{name}"'
            + (f"; left out {lost:,} empty cells" if lost else "")
        )
        if not found:
            raise SesameError(f'{path}: the column "{name}" is empty; choose another one with --text-column')
        return _write(target, found)
    name = _column(path, _fields(path), wanted)
    if name == "text":
        return str(path)
    say(f'{path}: the texts of the field "{name}"')
    return _write(target, (document.text for document in read_documents([path], name)))


def _fields(path: Path) -> list[str]:
    """The fields of the first row; none where there is no such row, which the reader complains about."""
    if inner_suffix(path) == ".parquet":
        try:
            import pyarrow as arrow
            import pyarrow.parquet as parquet
        except ImportError:
            raise SesameError(f"{path}: reading .parquet files needs a package; pip install pyarrow") from None
        try:
            return list(parquet.read_schema(path).names)
        except arrow.ArrowException:
            return ["text"]
    for _, line in whole_lines(path):
        if line.strip():
            try:
                row = json.loads(line)
            except ValueError:
                break
            return list(row) if isinstance(row, dict) else ["text"]
    return ["text"]


def _column(path: Path, columns: Sequence[str], wanted: str | None) -> str:
    """The user's column if the table has it, else the first that is called like a text."""
    known = {fold(name): name for name in reversed(columns)}
    for name in ([wanted] if wanted else []) + TEXTS:
        if fold(name) in known:
            return known[fold(name)]
    if len(columns) == 1:
        return columns[0]
    shown = ", ".join(map(repr, columns[:30])) or "none"
    raise SesameError(
        f"{path}: cannot tell which column holds the text; its columns are {shown}, choose one with --text-column"
    )


def _write(target: Path, texts: Iterable[str]) -> str:
    with whole_file(target) as handle:
        handle.writelines(_lines(texts))
    return str(target)


def _lines(texts: Iterable[str]) -> Iterator[bytes]:
    for text in texts:
        yield (json.dumps({"text": text}) + "\n").encode()
