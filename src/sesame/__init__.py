"""Sesame: pre-train, transfer, explain and serve language models on your own text."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from sesame.api import Loaded, finetune, load, pretrain

__all__ = ["Loaded", "finetune", "load", "pretrain"]


def __getattr__(name: str) -> Any:
    """PyTorch is imported with the first use, so that `import sesame` and `sesame --help` answer at once."""
    if name in __all__:
        from sesame import api

        return getattr(api, name)
    raise AttributeError(f"module 'sesame' has no attribute {name!r}")
