"""What a user asks of a fine-tuning to answers, `sesame finetune --task seq2seq`."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sesame.errors import SesameError
from sesame.train.precision import Precision


@dataclass(frozen=True)
class Wishes:
    """What the user asks of `sesame finetune --task seq2seq`."""

    model: str
    train: str  # a table, JSON lines, or two plain files with a comma between
    out: Path
    valid: str | None = None
    test: str | None = None
    source: str | None = None  # columns; the source also as "question: {question} context: {context}"
    target: str | None = None
    prefix: str = ""  # before every source
    also: Sequence[str] = ()  # further tasks, "prefix=FILE"; a prefix with columns in braces is the whole source
    temperature: float = 1.0  # of the mixing
    cap: float = math.inf
    metric: str = "bleu"  # decides which seed is best
    beams: int = 5  # as `sesame translate` has it: a score should be that of the answers that people get
    alpha: float = 1.0
    most: int = 128  # new tokens of an answer
    seeds: int | None = None  # None: 3 for small sets, 1 for large ones
    seed: int = 0
    steps: int | None = None
    epochs: float | None = None  # None: 3, more for small sets
    rate: float | None = None  # None: the recipe's, more for narrow models
    settings: Sequence[str] = ()
    device: str = "auto"
    precision: Precision = "auto"
    save_minutes: float = 5.0
    save_steps: int = 0
    keep: int = 0  # checkpoints; 0: as few as are safe

    def identity(self) -> dict[str, Any]:
        """What decides the result."""
        kept = asdict(self)
        for key in ("out", "device", "save_minutes", "save_steps", "keep", "settings"):
            del kept[key]
        kept |= {key: _resolved(kept[key]) for key in ("train", "valid", "test") if kept[key] is not None}
        kept["also"] = list(self.also)
        return {key: value for key, value in kept.items() if value is not None and value != math.inf}

    def files(self) -> list[Path]:
        """All that is read."""
        data = [self.train, self.valid, self.test, *(file for _, file in map(task_of, self.also))]
        return [path for one in data if one is not None for path in _paths(one)]


def _resolved(data: str) -> str:
    return ",".join(str(path.resolve()) for path in _paths(data))


def _paths(data: str) -> list[Path]:
    return [Path(path) for path in ([data] if Path(data).is_file() else data.split(","))]


def task_of(asked: str) -> tuple[str, str]:
    """The prefix of a further task, and its file."""
    prefix, sign, file = asked.rpartition("=")
    if not sign or not prefix:
        raise SesameError(f"--also {asked}: write the prefix of the task and its file, such as 'summarize: =news.tsv'")
    return prefix, file
