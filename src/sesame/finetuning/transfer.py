"""How a model is taught a task: a strategy file of `recipes/transfer/`, changed by `--set`; and what the data decide."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import torch

from sesame.backbones import EncoderHalfConfig, XLNetConfig
from sesame.checkpoint.tasks import held, squeeze_of, way_of
from sesame.config import build, merge, parse_setting, read_toml, unknown
from sesame.data.examples import Example
from sesame.errors import SesameError
from sesame.finetuning.framing import Frame
from sesame.tasks import TaskConfig
from sesame.tasks.base import Pooling
from sesame.train.adapt import Adapt
from sesame.train.optim import OptimConfig
from sesame.train.schedule import Schedule


@dataclass(frozen=True)
class TaskSettings:
    """What the user may decide of a task; the rest follows from the data. See `tasks/base.py`."""

    layers: str = "last"
    pooling: Literal["auto", Pooling] = "auto"  # auto: as `fitted` has it
    length: int = 0
    overlap: float = 0.25
    dropout: float = -1.0  # below 0: the model's own
    both: bool = False  # pairs in both orders: similarity
    frame: Frame = "auto"  # which tokens stand around texts: see `framing.py`

    def __post_init__(self) -> None:
        if self.dropout >= 1:
            raise SesameError(
                f"task.dropout is {self.dropout:g}; it lies from 0 to below 1, or is -1 for the model's own"
            )


@dataclass(frozen=True)
class Transfer:
    name: str
    about: str = ""
    batch: int = 32
    epochs: float = 3.0
    least_steps: int = 0  # more epochs where the set is small (0: never) ...
    class_steps: int = 0  # ... or has many classes: so many steps for each of them at least ...
    most_epochs: float = 20.0  # ... up to so many
    rate_width: int = 0  # optimizer.rate is for a model of this width, narrower ones take more; 0: as it stands
    alpha: float = 1.0  # several tasks: a step goes to one of them with p ~ size^alpha (1: by size, 0: evenly)
    task: TaskSettings = TaskSettings()
    adapt: Adapt = field(default_factory=Adapt)
    optimizer: OptimConfig = field(default_factory=OptimConfig)
    schedule: Schedule = field(default_factory=Schedule)

    def __post_init__(self) -> None:
        if self.batch < 1 or not 0 < self.epochs <= 1e6 or self.least_steps < 0:
            raise SesameError(
                "batch is at least 1, epochs lie above 0, least_steps is not below 0; found "
                f"{self.batch}, {self.epochs} and {self.least_steps}"
            )
        if not 0 <= self.alpha <= 1:
            raise SesameError(f"alpha is {self.alpha:g}; it lies from 0 (tasks evenly) to 1 (tasks by size)")

    def steps(self, items: int, classes: int = 0) -> int:
        least = max(self.least_steps, self.class_steps * classes) if self.least_steps else 0
        epochs = max(self.epochs, min(self.most_epochs, least * self.batch / items))
        return max(1, math.ceil(items * epochs / self.batch))

    def rate(self, width: int) -> float:
        """The peak rate for a model: what suits 768 columns is too little for 128."""
        return self.optimizer.rate * max(1.0, self.rate_width / width)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def strategies() -> dict[str, Path]:
    folder = resources.files("sesame") / "recipes" / "transfer"
    files = [Path(str(item)) for item in folder.iterdir() if item.name.endswith(".toml")]
    return {file.stem: file for file in sorted(files)}


def resolve_transfer(name: str, settings: Sequence[str] = ()) -> Transfer:
    """A strategy by name or by .toml file, with `--set` laid over it."""
    known = strategies()
    if not name.endswith(".toml") and name not in known:
        raise SesameError(unknown(name, known, "--strategy", "strategy"))
    table: Mapping[str, Any] = read_toml(Path(name) if name.endswith(".toml") else known[name])
    for setting in settings:
        table = merge(table, parse_setting(setting))
    return build(Transfer, table, f"strategy {name}")


def task_config(kind: str, train: Sequence[Example], transfer: Transfer) -> TaskConfig:
    """What follows from the data: label names, several labels at once, pairs, unanswerable questions, the scale of scores."""
    labels: tuple[str, ...] = ()
    multi = kind == "classify" and any(not isinstance(example.label, str) for example in train)
    if kind == "classify":
        names = {
            name
            for example in train
            for name in ((example.label,) if isinstance(example.label, str) else example.label)
        }
        labels = _positive_last(sorted(names, key=_natural))
    elif kind == "tag":
        labels = ("O", *sorted({tag for example in train for tag in example.label} - {"O"}, key=lambda t: (t[2:], t)))
    pair = any(example.pair is not None for example in train)
    if transfer.task.both and (kind not in ("classify", "regress") or not pair):
        raise SesameError("task.both is for pairs of texts that are classified or given a number; leave it out")
    scale = (0.0, 1.0)
    if kind == "regress":
        values = torch.tensor([float(example.label) for example in train], dtype=torch.float64)
        spread = float(values.std()) if len(values) > 1 else 0.0
        scale = (float(values.mean()), spread or 1.0)
    return TaskConfig(
        kind=kind,  # type: ignore[arg-type]
        labels=labels,
        multi=multi,
        pair=pair,
        both=transfer.task.both,
        layers=transfer.task.layers,
        pooling="pooler" if transfer.task.pooling == "auto" else transfer.task.pooling,
        length=transfer.task.length,
        overlap=transfer.task.overlap,
        null=kind == "qa" and any(not example.label for example in train),
        scale=scale,
    )


def fitted(config: TaskConfig, encoder: Any, free: bool = False) -> TaskConfig:
    """The head as the encoder's own family has it: a pooler is BERT's, an encoder like ModernBERT has a transform. Half of an
    encoder-decoder has no token for a whole text, so its states are averaged (Ni et al. 2022).

    `free`: nobody asked for a pooling, and the model brings no pooler along. Then XLNet's states are averaged too: nothing
    has taught its [CLS] to read a text, and some hundred steps do not either (docs/xlnet.md)."""
    if isinstance(encoder, EncoderHalfConfig):
        return replace(config, pooling="mean") if config.pooling == "pooler" else config
    if isinstance(encoder, XLNetConfig) and free and config.kind in ("classify", "regress", "choice"):
        return replace(config, pooling="mean")
    if not getattr(encoder, "embedding_norm", False) or config.layers != "last":
        return config
    pooling = "cls" if config.pooling == "pooler" else config.pooling
    return replace(config, transform=config.pooling in ("pooler", "cls", "mean"), pooling=pooling)


def in_family(config: TaskConfig, encoder: Any, family: ModuleType | None, frozen: bool = False) -> TaskConfig:
    """The head as the classes of the family that the model came from have it, so that one of them can hold it.

    ELECTRA's and DistilBERT's poolers end in another function than BERT's; XLM and GPT have none and read the state as it is.
    GPT's last layer has no bias. Labels lose nothing by that: the norm below has one that trains, and W (h + b) = W h + W b.
    Two heads keep theirs, and so are ours alone: that of a number, because the mean of the scores goes there, and any on a
    frozen model, where nothing else could learn it.
    """
    if family is None:
        return config
    like = replace(config, **way_of(family, config.kind))
    free = like.bias or (config.kind == "classify" and not frozen)
    if free and config.pooling in ("pooler", like.pooling) and held(like, family, encoder):
        return like
    return replace(config, squeeze=squeeze_of(family))


def _positive_last(labels: list[str]) -> tuple[str, ...]:
    """Of two labels "x" and "not_x" the first is the positive one, which F1 is about: it comes last."""
    negative = re.compile(r"(?:not|non|no)[-_ ]?(.+)", re.IGNORECASE)
    if len(labels) == 2 and (found := negative.fullmatch(labels[1])) and found[1].casefold() == labels[0].casefold():
        labels = labels[::-1]
    return tuple(labels)


def _natural(name: str) -> tuple[int, float, str]:
    """Labels that are numbers in the order of numbers."""
    try:
        value = float(name)
    except ValueError:
        return 1, 0.0, name
    return (0, value, name) if math.isfinite(value) else (1, 0.0, name)
