"""Packing "neighbors": a sentence, and as what is to be told of it the sentence before it and the one behind it.

    ids  sentence [SEP]      targets "previous" and "next": that sentence and [SEP], IGNORE behind it

Paper: Kiros et al. 2015, "Skip-Thought Vectors" (https://arxiv.org/abs/1506.06726). The first and the last sentence of a
document lack one neighbor, and are asked for the other only; a lone one is no example. One that is longer than a row is cut
into several, which are neighbors then.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from sesame import chance
from sesame.data.batch import IGNORE, Batch, Targets
from sesame.data.pack import Packer, Specials
from sesame.data.parts import Part
from sesame.data.pieces import Pieces
from sesame.data.plan import Ints

NAME = "skip-thought"


class NeighborPacker(Packer):
    """Rows are sentences; which documents they begin and end, the plan knows."""

    def __init__(self, part: Part, length: int, specials: Specials, **rest: Any) -> None:
        super().__init__(part, "neighbors", length, specials, **rest)

    def draw(self, rows: Ints, keys: chance.Words) -> Batch:
        sentence, _, document = self.rows[rows].T
        first, end = self.documents[document].T
        batch = self._sentences(sentence, keys)
        previous = self._told(sentence - 1, sentence > first, keys)
        following = self._told(sentence + 1, sentence + 1 < end, keys)
        return replace(batch, targets={NAME: following, "previous": previous, "next": following})

    def _sentences(self, sentence: Ints, keys: chance.Words) -> Batch:
        start, stop = self.offsets[sentence], self.offsets[sentence + 1]
        none = np.zeros(len(sentence), dtype=np.int64)
        return self._assemble(Pieces(np.arange(len(sentence)), start, stop - start, none), len(sentence), keys, {})

    def _told(self, sentence: Ints, there: Any, keys: chance.Words) -> Targets:
        """Sentences as labels (B, K); those that are not there are none."""
        batch = self._sentences(np.where(there, sentence, 0), keys)
        real = torch.arange(batch.ids.shape[1])[None, :] < batch.lengths[:, None]
        labels = torch.where(real & torch.from_numpy(there)[:, None], batch.ids, IGNORE)
        return Targets(labels[:, self.front :].contiguous())
