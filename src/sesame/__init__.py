"""Sesame: pre-train, transfer, explain and serve language models on your own text."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from sesame.api import finetune, pretrain
    from sesame.loaded import Loaded
    from sesame.opening import load

__all__ = ["Loaded", "finetune", "load", "pretrain"]
_WHERE = {"Loaded": "loaded", "finetune": "api", "load": "opening", "pretrain": "api"}


def __getattr__(name: str) -> Any:
    """PyTorch is imported with the first use, so that `import sesame` and `sesame --help` answer at once."""
    if name in _WHERE:
        return getattr(import_module(f"sesame.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'sesame' has no attribute {name!r}")
