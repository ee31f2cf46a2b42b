"""TensorBoard events of a run; a run goes on without them where TensorBoard is not installed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sesame.progress import say


class Events:
    def __init__(self, folder: Path, first: int) -> None:
        self.writer: Any = None
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            say("tensorboard is not installed: no event files, metrics.jsonl has everything")
            return
        # Steps after the checkpoint are written again by a resumed run.
        self.writer = SummaryWriter(str(folder), purge_step=first or None)

    def add(self, step: int, figures: Mapping[str, float], prefix: str = "train/") -> None:
        if self.writer is not None:
            for name, value in figures.items():
                self.writer.add_scalar(prefix + name, value, step)

    def __enter__(self) -> "Events":
        return self

    def __exit__(self, *_: object) -> None:
        if self.writer is not None:
            self.writer.close()
