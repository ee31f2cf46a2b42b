"""Packing "dialogues": turns of one dialogue, in half of the examples one of them from another dialogue.

    [CLS] turn [SEP] turn [SEP] turn [SEP] ...      segments: who speaks, query 0 or response 1, with the [SEP] behind

Paper: Sun et al. 2019, "ERNIE", https://arxiv.org/abs/1904.09223, section 3.3 and figure 3, where an example has three turns
(QRQ, QRR, QQR) and a dialogue embedding takes the place of BERT's segments. Here it has as many as fit.
The label "dialogue": 0 the dialogue is real, 1 one turn is not. It is true in every case:
- the foreign turn is from another dialogue, with the same role, and other pieces than the one it replaces ("Thank you!" for
  "Thank you!" would be no lie);
- it fits without being cut, as the end of a cut turn would tell; so foreign turns are a little shorter than real ones;
- where no such turn is found in a few draws, the row stays real;
- a row of one turn has nothing to be compared with: no label (IGNORE).
"""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sesame import chance
from sesame.data.batch import IGNORE, Batch, Targets
from sesame.data.pack import Packer, Specials
from sesame.data.parts import Part
from sesame.data.pieces import Pieces
from sesame.data.plan import Ints
from sesame.data.units import sequence_keys
from sesame.errors import SesameError

DRAWS = 16
SHARE = 0.5  # of examples with a foreign turn

Flags = npt.NDArray[np.bool_]


class DialoguePacker(Packer):
    """Draws dialogues. Rows are ranges of turns; a turn too long for the sequence is cut into several of the same role."""

    def __init__(self, part: Part, length: int, specials: Specials, **rest: Any) -> None:
        store = part.store
        if store.roles is None:
            raise SesameError(f"{store.files[0]}: was not read as dialogues; see data/dialogues.py")
        if len(part.documents) < 2:
            raise SesameError(
                f"{store.files[0]}: has one dialogue only; false turns come from other dialogues, give more"
            )
        super().__init__(part, "dialogues", length, specials, **rest)
        turn = np.searchsorted(np.asarray(store.sentences), self.offsets[:-1], side="right") - 1
        self.roles = np.asarray(store.roles, dtype=np.int64)[turn]
        self.keys = sequence_keys(np.asarray(store.tokens), self.offsets)
        self.owner = np.full(len(self.roles), -1)
        sizes = self.documents[:, 1] - self.documents[:, 0]
        inside = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        turns = np.repeat(self.documents[:, 0], sizes) + inside
        self.owner[turns] = np.repeat(np.arange(len(sizes)), sizes)
        self.by_role = [turns[self.roles[turns] == role] for role in (0, 1)]

    def draw(self, rows: Ints, keys: chance.Words) -> Batch:
        first, end, _ = self.rows[rows].T
        turns, false = self._replaced(first, end, keys)
        count = end - first
        row = np.repeat(np.arange(len(rows)), count)
        roles = self.roles[np.repeat(first, count) + np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)]
        start = self.offsets[turns]
        pieces = Pieces(row, start, self.offsets[turns + 1] - start, roles)
        labels = np.where(count > 1, false.astype(np.int64), IGNORE)
        batch = self._assemble(pieces, len(rows), keys, {"dialogue": Targets(torch.from_numpy(labels))})
        return replace(batch, segments=_segments(pieces, len(rows), batch.ids.shape[1]))

    def _replaced(self, first: Ints, end: Ints, keys: chance.Words) -> tuple[Ints, Flags]:
        """The turns of all rows, end to end, and which rows hold a foreign one."""
        luck = chance.uniform(keys, "dialogues", 2 + DRAWS)
        count = end - first
        place = (luck[:, 1] * count).astype(np.int64)
        old = first + place
        tried = self._candidates(old, luck[:, 2:])
        room = self.length - 1 - (self.offsets[end] - self.offsets[first] + count) + self._sizes(old)
        fits = self._sizes(tried) <= room[:, None]
        good = fits & (self.owner[tried] != self.owner[old][:, None]) & (self.keys[tried] != self.keys[old][:, None])
        false = (luck[:, 0] < SHARE) & (count > 1) & good.any(1)
        new = tried[np.arange(len(tried)), good.argmax(1)]
        before = np.cumsum(count) - count
        turns = np.repeat(first - before, count) + np.arange(int(count.sum()))
        turns[(before + place)[false]] = new[false]
        return turns, false

    def _candidates(self, old: Ints, luck: npt.NDArray[np.float64]) -> Ints:
        """Turns of this part with the role of the old one. (B, DRAWS)"""
        found = np.empty(luck.shape, dtype=np.int64)
        for role, turns in enumerate(self.by_role):
            mine = self.roles[old] == role
            if mine.any():
                found[mine] = turns[(luck[mine] * len(turns)).astype(np.int64)]
        return found

    def _sizes(self, turns: Ints) -> Ints:
        found: Ints = self.offsets[turns + 1] - self.offsets[turns]
        return found


def _segments(pieces: Pieces, size: int, width: int) -> torch.Tensor:
    """The role at every place of a turn and at the separator behind it."""
    spans = pieces.length + 1
    before = np.cumsum(spans) - spans
    head = before[np.searchsorted(pieces.row, np.arange(size), side="left")]
    place = np.repeat(pieces.row * width + 1 + before - head[pieces.row], spans)
    inside = np.arange(int(spans.sum())) - np.repeat(before, spans)
    found = np.zeros(size * width, dtype=np.int64)
    found[place + inside] = np.repeat(pieces.segment, spans)
    return torch.from_numpy(found.reshape(size, width))
