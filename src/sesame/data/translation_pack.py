"""Packing "translations": a sentence and its translation, with the language of every token.

    [CLS] one [SEP] [SEP] other [SEP]      positions: those of the second side from 0 again, if asked for

Paper: Conneau & Lample 2019, "Cross-lingual Language Model Pretraining" (https://arxiv.org/abs/1901.07291), section 3.3.
Which of the two comes first is drawn. What is too long loses its end, the longer one first.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sesame import chance
from sesame.data.batch import Batch
from sesame.data.pack import Packer, Specials
from sesame.data.parts import Part
from sesame.data.pieces import Pieces
from sesame.data.plan import Ints


class TranslationPacker(Packer):
    """`langs`: the languages of a sentence and of its translation; `reset`: the second side counts its positions from 0."""

    def __init__(
        self, part: Part, length: int, specials: Specials, *, langs: tuple[int, ...], reset: bool, **rest: Any
    ) -> None:
        super().__init__(part, "translations", length, specials, **rest)
        self.langs, self.reset = langs, reset

    def draw(self, rows: Ints, keys: chance.Words) -> Batch:
        turned = self._swapped(keys)
        batch = self._assemble(self._sides(rows, turned), len(rows), keys, {})
        swapped = torch.from_numpy(turned)[:, None]
        one, other = self.langs
        first, second = torch.where(swapped, other, one), torch.where(swapped, one, other)
        places = torch.arange(batch.ids.shape[1])[None, :]
        text = batch.ids[:, self.front :]  # a class token may be the separator too, as XLM's is; text holds none
        start = (text == self.specials.sep).long().argmax(1, keepdim=True) + 1 + self.front
        langs = torch.where(places < start, first, second)
        positions = torch.where(places < start, places, places - start) if self.reset else None
        return replace(batch, langs=langs, positions=positions)

    def _swapped(self, keys: chance.Words) -> npt.NDArray[np.bool_]:
        """Which translations come before their sentences: (B,)."""
        return chance.uniform(keys, "translations", 1)[:, 0] < 0.5

    def _sides(self, rows: Ints, swapped: npt.NDArray[np.bool_]) -> Pieces:
        """Three pieces a row: one side, nothing (its separator opens the other side), the other side."""
        first = self.rows[rows, 0]
        starts = np.stack([self.offsets[first], self.offsets[first + 1]], axis=1)
        one, other = np.diff(self.offsets[first[:, None] + np.arange(3)], axis=1).T
        one = np.minimum(one, np.maximum(self.body // 2, self.body - other))  # what the other leaves, at least half
        sizes = np.stack([one, np.minimum(other, self.body - one)], axis=1)
        order = np.where(swapped[:, None], [[1, 0]], [[0, 1]])
        starts, sizes = np.take_along_axis(starts, order, 1), np.take_along_axis(sizes, order, 1)
        none = np.zeros(len(rows), dtype=np.int64)
        return Pieces(
            np.repeat(np.arange(len(rows)), 3),
            np.stack([starts[:, 0], none, starts[:, 1]], axis=1).reshape(-1),
            np.stack([sizes[:, 0], none, sizes[:, 1]], axis=1).reshape(-1),
            np.tile(np.array([0, 0, 1]), len(rows)),
        )
