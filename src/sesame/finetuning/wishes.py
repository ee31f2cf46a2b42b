"""What a user asks of a fine-tuning: the wishes, and what makes two runs the same run."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

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

    def asked(self) -> list[Asked]:
        """All tasks of the run, this one first."""
        first = Asked(
            self.name or self.task, self.task, self.train, self.valid, self.test, self.columns, self.multi, self.metric
        )
        found = [first, *(parse_also(one) if isinstance(one, str) else one for one in self.also)]
        check_names(found)
        return found


def identity_of(wishes: Wishes, also: Sequence[Asked], transfer: Transfer) -> dict[str, Any]:
    """What makes two runs the same run."""
    kept: dict[str, Any] = {"model": wishes.model, "task": wishes.task, "seed": wishes.seed, "columns": wishes.columns}
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
