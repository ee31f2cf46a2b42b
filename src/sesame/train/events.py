"""TensorBoard events of a run; a run goes on without them where TensorBoard is not installed, or they cannot be written."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sesame.progress import say


class Events:
    """The files in `folder`; steps from `first` on are written again by a resumed run."""

    def __init__(self, folder: Path, first: int) -> None:
        self.folder, self.first = folder, first
        self.writer: Any = None
        self.hook = threading.excepthook

    def __enter__(self) -> "Events":
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            say("tensorboard is not installed: no event files, metrics.jsonl has everything")
            return self
        threading.excepthook = self._failed
        try:
            self.writer = SummaryWriter(str(self.folder), purge_step=self.first or None)
        except OSError as error:
            self._give_up(error)
        return self

    def add(self, step: int, figures: Mapping[str, float], prefix: str = "train/") -> None:
        try:
            for name, value in figures.items() if self.writer is not None else ():
                self.writer.add_scalar(prefix + name, value, step)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        say(f"TensorBoard's events cannot be written ({error.strerror}); metrics.jsonl has everything")
        self.writer = None

    def _failed(self, told: threading.ExceptHookArgs) -> None:
        """TensorBoard's own thread raises what it gives to the next `add`, which tells it."""
        if not (isinstance(told.exc_value, OSError) and type(told.thread).__module__.startswith("tensorboard")):
            self.hook(told)

    def __exit__(self, *_: object) -> None:
        try:
            if self.writer is not None:
                self.writer.close()
        except OSError as error:
            self._give_up(error)
        finally:
            threading.excepthook = self.hook
