"""Packing: how examples are drawn from the store.

A *plan* lists, once for a store and a length, the sentence ranges that become examples. Drawing is vectorised and depends
on nothing but the row number and its key, so any batch of any epoch can be made at once.

- `pairs` (BERT): sentences of one document are gathered until they fill the sequence, then cut at a random sentence into
  A and B; in half of the examples B comes from another document instead (the label of next-sentence prediction). One in
  ten examples is made short. As in the authors' code the sequence overflows and is then trimmed at random ends, so nearly
  all examples are full. Unlike it, a sentence range replaced by a random B is not put back into the same epoch: the next
  epoch's cuts fall elsewhere.
- `orders` (ALBERT): gathered and cut in the same way, but B is always what follows A in the document; in half of the
  examples the two are swapped (the label of sentence order). What is one sentence only is cut inside, where the authors'
  code takes a B from elsewhere and calls that swapped.
- `sentences` (RoBERTa's FULL-SENTENCES): whole sentences up to the length, on across documents with a separator between.
- `documents` (DOC-SENTENCES): the same, but never across documents.
- `blocks`: the text as one stream, with a separator between documents, cut every so many places: no padding at all. The
  last block reaches back into the one before it.
  Of the last three some examples may be made short too (`short`): a model that has met full rows alone does not know what to
  do with a row of twenty tokens, docs/log.md.
- `translations` (XLM): a document is a sentence and its translation; which of the two comes first is drawn. Both are framed
  like sentences that stand alone, `[CLS] one [SEP] [SEP] other [SEP]`. What is too long loses its end, the longer one first.
- `dialogues` (ERNIE): turns of a dialogue, see `dialogue_pack.py`.
- `neighbors` (skip-thought): a sentence and the two around it, see `neighbor_pack.py`.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from sesame import chance
from sesame.data.batch import Batch, Targets
from sesame.data.plan import PLANS, Ints, split_long, stream
from sesame.data.store import Store
from sesame.errors import SesameError

Kind = Literal["pairs", "orders", "sentences", "documents", "blocks", "translations", "dialogues", "neighbors"]
_NO_ROWS = {
    "orders": "has no example, because no document has two tokens whose order could be asked for; put blank lines only "
    "between documents",
    "neighbors": "has no example, because no document has two sentences; put blank lines only between documents",
}


class NoExample(SesameError):
    """A text in which a packing finds nothing."""


@dataclass(frozen=True)
class Part:
    """Some documents of a store: sentence ranges [first, end), (D, 2). Training text and held-out text are two parts."""

    store: Store
    documents: Ints

    def tokens(self) -> int:
        bounds = np.asarray(self.store.sentences)[self.documents]
        return int((bounds[:, 1] - bounds[:, 0]).sum())


def hold_out(store: Store, seed: int, share: float | None = None) -> tuple[Part, Part]:
    """Split a store into training and held-out text: whole documents, drawn by `seed`.

    The share is 1 % of the tokens, but at least 50,000 (if that is not over 5 %) and at most 2 million. A text of fewer
    than 20 documents gives the last twentieth of the sentences of each.
    """
    bounds = np.stack([np.asarray(store.documents[:-1]), np.asarray(store.documents[1:])], axis=1).astype(np.int64)
    offsets = np.asarray(store.sentences)
    sizes = offsets[bounds[:, 1]] - offsets[bounds[:, 0]]
    total = int(sizes.sum())
    wanted = total * share if share is not None else min(max(total * 0.01, 50_000), total * 0.05, 2_000_000)
    if wanted <= 0:
        return Part(store, bounds), Part(store, bounds[:0])
    if len(bounds) < 20:
        cut = bounds[:, 0] + np.maximum(1, ((bounds[:, 1] - bounds[:, 0]) * (1 - (share or 0.05))).astype(np.int64))
        held = np.stack([cut, bounds[:, 1]], axis=1)
        return Part(store, np.stack([bounds[:, 0], cut], axis=1)), Part(store, held[held[:, 0] < held[:, 1]])
    order = np.argsort(chance.keys(chance.key(seed, 0x48454C44), np.arange(len(bounds))), kind="stable")
    count = int(np.searchsorted(np.cumsum(sizes[order]), wanted)) + 1
    chosen = np.zeros(len(bounds), dtype=bool)
    chosen[order[: min(count, len(bounds) - 1)]] = True
    return Part(store, bounds[~chosen]), Part(store, bounds[chosen])


@dataclass(frozen=True)
class Specials:
    cls: int | None  # None: rows begin with their text
    sep: int
    pad: int
    end: bool = True  # a separator ends each row; False: a row of blocks ends where it is cut


class Packer:
    """Draws batches of one kind and length from a part of a store."""

    def __init__(
        self,
        part: Part,
        kind: Kind,
        length: int,
        specials: Specials,
        *,
        short: float = 0.0,
        words: bool = False,
        fixed: bool = False,
        units: npt.NDArray[np.uint8] | None = None,
    ) -> None:
        """`short`: the share of examples that are made short; `fixed`: batches are always `length` wide, also where no
        example is so long; `units`: where those start that count as words, unless the store's do."""
        self.part, self.kind, self.length, self.specials = part, kind, length, specials
        self.short, self.words, self.fixed = short, words, fixed
        self.tokens, self.units = part.store.tokens, part.store.word_starts if units is None else units
        self.two = kind in ("pairs", "orders")  # A and B
        self.front = int(specials.cls is not None)
        self.body = length - self.front - (2 if self.two else 3 if kind == "translations" else int(specials.end))
        if self.body < 2:
            raise SesameError(f"length {length} leaves no room for text; choose at least 8")
        if kind == "pairs" and len(part.documents) < 2:
            raise SesameError(
                f"{part.store.files[0]}: pairs of texts need at least two documents: put a blank line between them, or "
                "train without them (--set stages.NAME.packing=documents for each stage, and with next sentences also "
                "--set objectives.nsp=false)"
            )
        most = self.body if kind != "translations" else 1 << 62  # a translation is cut when it is drawn, never parted
        self.documents, self.offsets = split_long(part.documents, np.asarray(part.store.sentences), most)
        # (N, 3): begin, end, document; where there are A and B in sentences, because they are cut between two, blocks count
        # in places of the stream, the others in tokens
        self.rows = PLANS[kind](self.documents, self.offsets, self.body)
        self.stream = stream(self.documents, self.offsets)
        if len(self.rows) == 0:
            why = _NO_ROWS.get(kind, f"has no example of length {length}; give more text")
            raise NoExample(f"{part.store.files[0]}: {why}")

    def __len__(self) -> int:
        return len(self.rows)

    def draw(self, rows: Ints, keys: chance.Words) -> Batch:
        """The examples of these rows: ids, lengths, segments, the labels that packing knows."""
        if self.kind == "pairs":
            pieces, unrelated = self._pairs(rows, keys)
            targets = {"nsp": Targets(torch.from_numpy(unrelated.astype(np.int64)))}
        elif self.kind == "orders":
            pieces, swapped = self._orders(rows, keys)
            targets = {"sop": Targets(torch.from_numpy(swapped.astype(np.int64)))}
        elif self.kind == "translations":
            pieces, targets = self._translations(rows, self.swapped(keys)), {}
        else:
            pieces, targets = self._singles(rows, keys), {}
        return self._assemble(pieces, len(rows), keys, targets)

    def source(self, row: int) -> str:
        """Where a row's text comes from: file and line of its document."""
        store = self.part.store
        begin, _, document = self.rows[row]
        token = begin
        if self.two or self.kind in ("translations", "dialogues", "neighbors"):
            token = self.offsets[begin]
        if self.kind == "blocks":
            token = self.offsets[self.documents[document, 0]]
        sentence = int(np.searchsorted(store.sentences, token, side="right")) - 1
        return store.source(int(np.searchsorted(store.documents, sentence, side="right")) - 1)

    def _singles(self, rows: Ints, keys: chance.Words) -> "Pieces":
        """Each example is a stretch of tokens, cut where a new document begins."""
        start, stop, _ = self.rows[rows].T
        if self.short:
            stop = self._shortened(start, stop, chance.uniform(keys, "short", 2).T)
        if self.kind == "documents":
            return Pieces(np.arange(len(rows)), start, stop - start, np.zeros(len(rows), dtype=np.int64))
        if self.kind == "blocks":
            return self._blocks(start, stop)
        heads = self.offsets[self.documents[:, 0]]
        low, high = np.searchsorted(heads, start, side="right"), np.searchsorted(heads, stop, side="left")
        owner = np.repeat(np.arange(len(rows)), high - low + 1)
        within = np.arange(len(owner)) - np.repeat(np.cumsum(high - low + 1) - (high - low + 1), high - low + 1)
        begin = np.where(within == 0, start[owner], heads[np.minimum(low[owner] + within - 1, len(heads) - 1)])
        last = within == (high - low)[owner]
        tails = self.offsets[self.documents[:, 1]]
        finish = np.where(last, stop[owner], tails[np.minimum(low[owner] + within - 1, len(tails) - 1)])
        return Pieces(owner, begin, finish - begin, np.zeros(len(owner), dtype=np.int64))

    def _shortened(self, start: Ints, stop: Ints, luck: npt.NDArray[np.float64]) -> Ints:
        """Where the rows end, if some are made short: behind a sentence, or, in blocks or if there is none, anywhere."""
        end: Ints = np.minimum(stop, start + self._target(luck))
        if self.kind != "blocks":
            whole = self.offsets[np.searchsorted(self.offsets, end, side="right") - 1]
            end = np.where(whole > start, whole, end)
        return end

    def _target(self, luck: npt.NDArray[np.float64]) -> Ints:
        """The tokens that each row is to have: all that fit, or, of a share of the rows, any number from 2 on."""
        found: Ints = np.where(luck[0] < self.short, 2 + (luck[1] * (self.body - 1)).astype(np.int64), self.body)
        return found

    def _blocks(self, start: Ints, stop: Ints) -> "Pieces":
        """Stretches of the stream. A piece without tokens stands where a separator comes first or last in a row."""
        heads, sizes, places = self.stream
        first = np.searchsorted(places, start, side="right") - 1
        count = np.searchsorted(places, stop, side="right") - first
        owner = np.repeat(np.arange(len(start)), count)
        document = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count) + first[owner]
        begin = np.clip(start[owner] - places[document], 0, sizes[document])
        finish = np.clip(stop[owner] - places[document], 0, sizes[document])
        return Pieces(owner, heads[document] + begin, finish - begin, np.zeros(len(owner), dtype=np.int64))

    def _pairs(self, rows: Ints, keys: chance.Words) -> "tuple[Pieces, npt.NDArray[np.bool_]]":
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
        return _side_by_side(*_trim(a, b, self.body, luck[8], luck[9])), unrelated

    def _orders(self, rows: Ints, keys: chance.Words) -> "tuple[Pieces, npt.NDArray[np.bool_]]":
        luck = chance.uniform(keys, "orders", 6).T
        first, middle, end, _ = self._gather(rows, luck)
        start, stop = self.offsets[first], self.offsets[end]
        inside = start + 1 + (luck[2] * (stop - start - 1)).astype(np.int64)
        cut = np.where(end - first == 1, inside, self.offsets[middle])
        a, b = _trim((start, cut), (cut, stop), self.body, luck[4], luck[5])
        swapped = luck[3] < 0.5
        left = np.where(swapped, b[0], a[0]), np.where(swapped, b[1], a[1])
        right = np.where(swapped, a[0], b[0]), np.where(swapped, a[1], b[1])
        return _side_by_side(left, right), swapped

    def swapped(self, keys: chance.Words) -> npt.NDArray[np.bool_]:
        """Which translations come before their sentences: (B,)."""
        return chance.uniform(keys, "translations", 1)[:, 0] < 0.5

    def _translations(self, rows: Ints, swapped: npt.NDArray[np.bool_]) -> "Pieces":
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

    def _gather(self, rows: Ints, luck: npt.NDArray[np.float64]) -> tuple[Ints, Ints, Ints, Ints]:
        """The sentences of each row (fewer, if it is to be short): first, where B begins (the end, if there is only one),
        end, and the tokens wanted."""
        first, end, _ = self.rows[rows].T
        target = self._target(luck)
        end = np.minimum(end, np.searchsorted(self.offsets, self.offsets[first] + target, side="left"))
        end = np.maximum(end, first + 1)
        count = end - first
        middle = first + 1 + (luck[2] * np.maximum(count - 1, 1)).astype(np.int64)
        return first, np.where(count == 1, end, middle), end, target

    def _other(self, document: Ints, luck: npt.NDArray[np.float64]) -> Ints:
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

    def _assemble(self, pieces: "Pieces", size: int, keys: chance.Words, targets: dict[str, Targets]) -> Batch:
        """[CLS] piece [SEP] piece [SEP] ... in padded rows."""
        spans = pieces.length + 1  # every piece is followed by a separator
        ends = np.cumsum(spans)
        row_first = np.searchsorted(pieces.row, np.arange(size), side="left")
        before = ends - spans
        within = before - before[row_first][pieces.row] + self.front  # room for [CLS]
        lengths = np.add.reduceat(spans, row_first) + self.front
        width = self.length + (not self.specials.end) if self.fixed else int(lengths.max())
        ids = np.full((size, width), self.specials.pad, dtype=np.int64)
        if self.specials.cls is not None:
            ids[:, 0] = self.specials.cls
        place = pieces.row * width + within
        ids.reshape(-1)[place + pieces.length] = self.specials.sep
        inside = np.arange(int(pieces.length.sum())) - np.repeat(
            np.cumsum(pieces.length) - pieces.length, pieces.length
        )
        source, goal = np.repeat(pieces.start, pieces.length) + inside, np.repeat(place, pieces.length) + inside
        ids.reshape(-1)[goal] = self.tokens[source]
        extra: dict[str, Any] = {}
        if self.two:
            segments = np.zeros((size, width), dtype=np.int64)
            column = np.arange(width)[None, :]
            segments[(column >= within[1::2, None]) & (column < lengths[:, None])] = 1
            extra["segments"] = torch.from_numpy(segments)
        if self.words:
            starts = np.zeros((size, width), dtype=np.int64)
            starts.reshape(-1)[goal] = self.units[source]
            starts.reshape(-1)[place] = 1  # a trimmed piece may begin inside a word
            words = np.cumsum(starts, axis=1)
            real = np.zeros((size, width), dtype=bool)
            real.reshape(-1)[goal] = True
            extra["words"] = torch.from_numpy(np.where(real, words, 0))
        if not self.specials.end:  # the last separator is left out again
            ids, lengths, width = ids[:, :-1].copy(), lengths - 1, width - 1
            extra = {name: value[:, :-1].contiguous() for name, value in extra.items()}
        return Batch(
            ids=torch.from_numpy(ids),
            lengths=torch.from_numpy(lengths.astype(np.int64)),
            keys=torch.from_numpy(keys.view(np.int64)),
            full=bool((lengths == width).all()),
            targets=targets,
            **extra,
        )


@dataclass(frozen=True)
class Pieces:
    """Stretches of the token stream, in the order in which they stand in the batch."""

    row: Ints  # which example
    start: Ints  # first token in the store
    length: Ints
    segment: Ints


Span = tuple[Ints, Ints]


def _trim(a: Span, b: Span, body: int, luck_a: Any, luck_b: Any) -> tuple[Span, Span]:
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


def _side_by_side(a: Span, b: Span) -> Pieces:
    """A and B of each row."""
    rows = np.arange(len(a[0]))
    return Pieces(
        np.stack([rows, rows], axis=1).reshape(-1),
        np.stack([a[0], b[0]], axis=1).reshape(-1),
        np.stack([a[1] - a[0], b[1] - b[0]], axis=1).reshape(-1),
        np.tile(np.array([0, 1]), len(rows)),
    )
