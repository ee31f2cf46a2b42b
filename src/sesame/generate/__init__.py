"""Text from models: search and sampling on top of a `Speaker`."""

from sesame.generate.base import Heard, Memory, Speaker

__all__ = ["Heard", "Memory", "Speaker"]
