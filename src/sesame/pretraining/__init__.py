"""From raw text to a pre-trained model: what `sesame pretrain` does. `run` walks, the others are what it meets on its way."""

from sesame.pretraining.run import pretrain
from sesame.pretraining.wishes import Wishes

__all__ = ["Wishes", "pretrain"]
