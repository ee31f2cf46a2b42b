"""Packing "pairs" and "orders": two stretches of text, A and B, of which the model is asked whether and how they follow.

    [CLS] A [SEP] B [SEP]      segments: 0 up to the first [SEP], 1 behind it

- `pairs` (BERT): the label "nsp", 1 where B comes from another document.
- `orders` (ALBERT): the label "sop", 1 where the two are swapped.
How they are gathered and cut: `pack.py`.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sesame import chance
from sesame.data.batch import Batch, Targets
from sesame.data.pack import Packer, Specials
from sesame.data.parts import Part
from sesame.data.pieces import Span, side_by_side, trim
from sesame.data.plan import Ints
from sesame.errors import SesameError

Luck = npt.NDArray[np.float64]


class _TwoPacker(Packer):
    """Rows of sentences of one document, of which A and B are made."""

    def _gather(self, rows: Ints, luck: Luck) -> tuple[Ints, Ints, Ints, Ints]:
        """The sentences of each row (fewer, if it is to be short): first, where B begins (the end, if there is only one),
        end, and the tokens wanted."""
        first, end, _ = self.rows[rows].T
        target = self._target(luck)
        end = np.minimum(end, np.searchsorted(self.offsets, self.offsets[first] + target, side="left"))
        end = np.maximum(end, first + 1)
        count = end - first
        middle = first + 1 + (luck[2] * np.maximum(count - 1, 1)).astype(np.int64)
        return first, np.where(count == 1, end, middle), end, target

    def _batch(self, a: Span, b: Span, keys: chance.Words, name: str, label: npt.NDArray[np.bool_]) -> Batch:
        """Both, trimmed, in rows; the segments say which is which."""
        targets = {name: Targets(torch.from_numpy(label.astype(np.int64)))}
        batch = self._assemble(side_by_side(a, b), len(label), keys, targets)
        start = torch.from_numpy(a[1] - a[0])[:, None] + self.front + 1
        column = torch.arange(batch.ids.shape[1])[None, :]
        return replace(batch, segments=((column >= start) & (column < batch.lengths[:, None])).long())


class PairPacker(_TwoPacker):
    def __init__(self, part: Part, length: int, specials: Specials, **rest: Any) -> None:
        if len(part.documents) < 2:
            raise SesameError(
                f"{part.store.files[0]}: pairs of texts need at least two documents: put a blank line between them, or "
                "train without them (--set stages.NAME.packing=documents for each stage, and with next sentences also "
                "--set objectives.nsp=false)"
            )
        super().__init__(part, "pairs", length, specials, **rest)

    def draw(self, rows: Ints, keys: chance.Words) -> Batch:
        luck = chance.uniform(keys, "pairs", 12).T
        first, middle, end, target = self._gather(rows, luck)
        document, count = self.rows[rows, 2], end - first
        unrelated = (luck[3] < 0.5) | (count == 1)
        a = self.offsets[first], self.offsets[middle]
        other = self._other(document, luck[4:8])
        wanted = np.maximum(target - (a[1] - a[0]), 1)
        b_first = np.where(unrelated, self.rows[other, 0], middle)
        b_limit = np.where(unrelated, self.documents[self.rows[other, 2], 1], end)
        b_end = np.searchsorted(self.offsets, self.offsets[b_first] + wanted, side="left")
        b_end = np.where(unrelated, np.clip(b_end, b_first + 1, b_limit), end)
        b = self.offsets[b_first], self.offsets[b_end]
        return self._batch(*trim(a, b, self.body, luck[8], luck[9]), keys, "nsp", unrelated)

    def _other(self, document: Ints, luck: Luck) -> Ints:
        """A random row of another document: a few draws, then the first row after this document."""
        chosen: Ints = (luck[0] * len(self.rows)).astype(np.int64)
        for draw in luck[1:]:
            same = self.rows[chosen, 2] == document
            chosen = np.where(same, (draw * len(self.rows)).astype(np.int64), chosen)
        same = self.rows[chosen, 2] == document
        if same.any():
            after = np.searchsorted(self.rows[:, 2], document, side="right")
            chosen = np.where(same, np.where(after < len(self.rows), after, 0), chosen)
        return chosen


class OrderPacker(_TwoPacker):
    def __init__(self, part: Part, length: int, specials: Specials, **rest: Any) -> None:
        super().__init__(part, "orders", length, specials, **rest)

    def draw(self, rows: Ints, keys: chance.Words) -> Batch:
        luck = chance.uniform(keys, "orders", 6).T
        first, middle, end, _ = self._gather(rows, luck)
        start, stop = self.offsets[first], self.offsets[end]
        inside = start + 1 + (luck[2] * (stop - start - 1)).astype(np.int64)
        cut = np.where(end - first == 1, inside, self.offsets[middle])
        a, b = trim((start, cut), (cut, stop), self.body, luck[4], luck[5])
        swapped = luck[3] < 0.5
        left = np.where(swapped, b[0], a[0]), np.where(swapped, b[1], a[1])
        right = np.where(swapped, a[0], b[0]), np.where(swapped, a[1], b[1])
        return self._batch(left, right, keys, "sop", swapped)
