"""Pieces: the stretches of a store that make up examples, and where they stand in padded rows.

[CLS] piece [SEP] piece [SEP] ...
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from sesame.data.plan import Ints

Span = tuple[Ints, Ints]


@dataclass(frozen=True)
class Pieces:
    """Stretches of the token stream, in the order in which they stand in the batch."""

    row: Ints  # which example
    start: Ints  # first token in the store
    length: Ints
    segment: Ints


@dataclass(frozen=True)
class Laid:
    """Pieces in rows of `width` places; places are counted through all rows of the batch."""

    width: int
    lengths: Ints  # of the rows
    head: Ints  # where each piece begins
    sep: Ints  # where the separator behind each piece stands
    source: Ints  # each token in the store
    place: Ints  # and in the batch


def lay(pieces: Pieces, size: int, front: int, width: int | None) -> Laid:
    """Pieces into `size` rows, one behind another from place `front` on; `width` None: as wide as the longest row."""
    spans = pieces.length + 1  # every piece is followed by a separator
    before = np.cumsum(spans) - spans
    first = np.searchsorted(pieces.row, np.arange(size), side="left")
    lengths = np.add.reduceat(spans, first) + front
    width = int(lengths.max()) if width is None else width
    head = pieces.row * width + before - before[first][pieces.row] + front
    inside = np.arange(int(pieces.length.sum())) - np.repeat(np.cumsum(pieces.length) - pieces.length, pieces.length)
    source, place = (np.repeat(start, pieces.length) + inside for start in (pieces.start, head))
    return Laid(width, lengths, head, head + pieces.length, source, place)


def trim(a: Span, b: Span, body: int, luck_a: Any, luck_b: Any) -> tuple[Span, Span]:
    """Shorten the longer side until both fit together, taking from both ends at random."""
    size_a, size_b = a[1] - a[0], b[1] - b[0]
    excess = np.maximum(size_a + size_b - body, 0)
    lead = np.minimum(np.abs(size_a - size_b), excess)  # all of this comes from the longer side
    rest = excess - lead
    from_a = np.where(size_a > size_b, lead, 0) + rest // 2
    from_b = np.where(size_a > size_b, 0, lead) + rest - rest // 2

    def cut(span: Span, amount: Ints, luck: Any) -> Span:
        front = (luck * (amount + 1)).astype(np.int64)
        return span[0] + front, span[1] - (amount - front)

    return cut(a, from_a, luck_a), cut(b, from_b, luck_b)


def side_by_side(a: Span, b: Span) -> Pieces:
    """A and B of each row."""
    rows = np.arange(len(a[0]))
    return Pieces(
        np.stack([rows, rows], axis=1).reshape(-1),
        np.stack([a[0], b[0]], axis=1).reshape(-1),
        np.stack([a[1] - a[0], b[1] - b[0]], axis=1).reshape(-1),
        np.tile(np.array([0, 1]), len(rows)),
    )
