"""A run that dies while it writes a checkpoint."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sesame.checkpoint.run import Run


@contextmanager
def crash_while_saving(after: int) -> Iterator[None]:
    """What runs inside must die at the save behind the first `after` ones."""
    save, saved = Run.save, []

    def crash(run: Run, *rest: Any) -> Path:
        if len(saved) == after:
            raise RuntimeError("crash")
        saved.append(1)
        return save(run, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "save", crash)
        with pytest.raises(RuntimeError, match="crash"):
            yield
