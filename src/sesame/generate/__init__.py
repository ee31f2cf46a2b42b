"""Text from models: search and sampling on top of a `Speaker`."""

from sesame.generate.base import Heard, Memory, Speaker
from sesame.generate.door import generate
from sesame.generate.ensemble import Ensemble
from sesame.generate.hypothesis import Hypothesis
from sesame.generate.scoring import Judged, judge, perplexity
from sesame.generate.settings import Settings

__all__ = [
    "Ensemble",
    "Heard",
    "Hypothesis",
    "Judged",
    "Memory",
    "Settings",
    "Speaker",
    "generate",
    "judge",
    "perplexity",
]
