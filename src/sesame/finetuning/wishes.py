"""What a user asks of a fine-tuning: the wishes, and what makes two runs the same run."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sesame.config import check_options, check_seconds, several
from sesame.errors import SesameError
from sesame.finetuning.adaptation import TRAIN
from sesame.finetuning.multitask import Asked, check_names, parse_also
from sesame.finetuning.transfer import Transfer
from sesame.train.precision import Precision


@dataclass(frozen=True)
class Wishes:
    """What the user asks of `sesame finetune`."""

    model: str
    task: Literal["classify", "regress", "tag", "qa", "choice"]
    train: str
    out: Path
    valid: str | None = None
    test: str | None = None
    strategy: str = "full"
    seeds: int | None = None  # None: 5 for small sets, 1 for large ones
    seed: int = 0  # the first one
    columns: dict[str, str] = field(default_factory=dict)
    multi: str | None = None  # what separates several labels in one cell
    metric: str | None = None  # decides which seed is best
    settings: Sequence[str] = ()
    baselines: bool = True
    device: str = "auto"
    precision: Precision = "auto"
    save_minutes: float = 5.0
    save_steps: int = 0
    name: str | None = None  # of the task in the checkpoint; by default its kind
    also: Sequence[str | Asked] = ()  # further tasks: [NAME=]KIND:TRAIN[:VALID[:TEST]]
    text: Sequence[str] = ()  # unlabelled, to adapt the model to first; "train": the texts of the training rows
    text_budget: float | None = None  # seconds
    text_steps: int | None = None
    extend: int = 0  # new words of that text for the vocabulary

    def __post_init__(self) -> None:
        if self.seeds is not None and self.seeds < 1:
            raise SesameError(f"--seeds {self.seeds}: give at least 1")
        if self.text_budget is not None and self.text_steps is not None:
            raise SesameError("--text-budget and --text-steps both say when to end; give one of them")
        check_seconds("text_budget", self.text_budget)

    def asked(self) -> list[Asked]:
        """All tasks of the run, this one first."""
        first = Asked(
            self.name or self.task, self.task, self.train, self.valid, self.test, self.columns, self.multi, self.metric
        )
        found = [first, *(parse_also(one) if isinstance(one, str) else one for one in self.also)]
        check_names(found)
        return found


_SHORT = ("epochs", "rate", "layers", "text_column", "pair_column", "label_column")  # for settings and columns


def wishes_of(
    model: str | Path,
    task: str,
    train: str | Path,
    out: str | Path,
    *,
    epochs: float | None = None,
    rate: float | None = None,
    layers: str | int | None = None,
    text_column: str | None = None,
    pair_column: str | None = None,
    label_column: str | None = None,
    **options: Any,
) -> Wishes:
    """The wishes, out of the options of the command; those that stand for settings or columns become these."""
    check_options(Wishes, options, "sesame.finetune", _SHORT)
    given = {"epochs": epochs, "optimizer.rate": rate, "task.layers": None if layers is None else f'"{layers}"'}
    changed = [f"{key}={value}" for key, value in given.items() if value is not None]
    if epochs is not None:
        changed.append("least_steps=0")  # exactly so many, then
    if rate is not None:
        changed.append("rate_width=0")  # exactly this, too
    named = {"text": text_column, "pair": pair_column, "label": label_column}
    columns = dict(options.pop("columns", None) or {}) | {role: name for role, name in named.items() if name}
    settings = [*changed, *several(options.pop("settings", ()))]
    for name in ("valid", "test"):
        options[name] = None if options.get(name) is None else str(options[name])
    also = options.pop("also", None) or ()
    return Wishes(
        model=str(model), task=task, train=str(train), out=Path(out), columns=columns, settings=settings,  # type: ignore[arg-type]
        also=[also] if isinstance(also, str) else also, text=several(options.pop("text", ())), **options,
    )  # fmt: skip


def identity_of(wishes: Wishes, also: Sequence[Asked], transfer: Transfer) -> dict[str, Any]:
    """What makes two runs the same run."""
    model = os.path.normpath(wishes.model)  # ./runs/mine is runs/mine
    kept: dict[str, Any] = {"model": model, "task": wishes.task, "seed": wishes.seed, "columns": wishes.columns}
    for key in ("train", "valid", "test"):
        if getattr(wishes, key) is not None:
            kept[key] = str(Path(getattr(wishes, key)).resolve())
    for key in ("seeds", "metric", "multi", "name"):
        if getattr(wishes, key) is not None:
            kept[key] = getattr(wishes, key)
    if wishes.text:
        kept["text"] = [name if name == TRAIN else str(Path(name).resolve()) for name in wishes.text]
        for key in ("text_budget", "text_steps", "extend"):
            if getattr(wishes, key):
                kept[key] = getattr(wishes, key)
    if also:
        kept["order"] = [one.name for one in also]
        kept["also"] = {
            one.name: {"kind": one.kind, "columns": dict(one.columns)}
            | {key: getattr(one, key) for key in ("multi", "metric") if getattr(one, key) is not None}
            | {part: str(Path(file).resolve()) for part, file in one.files().items()}
            for one in also
        }
    return {"transfer": transfer.to_dict(), "run": kept}


def content(file: Path) -> str:
    """A sum of the file, so that a run never goes on with other data."""
    if not file.is_file():
        raise SesameError(f"{file}: no such file; check the name")
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "blake2b").hexdigest()[:32]
