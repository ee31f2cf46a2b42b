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
  code takes a B from elsewhere and calls that swapped. Both are drawn in `pair_pack.py`.
- `sentences` (RoBERTa's FULL-SENTENCES): whole sentences up to the length, on across documents with a separator between.
- `documents` (DOC-SENTENCES): the same, but never across documents.
- `blocks`: the text as one stream, with a separator between documents, cut every so many places: no padding at all. The
  last block reaches back into the one before it.
  Of the last three some examples may be made short too (`short`): a model that has met full rows alone does not know what to
  do with a row of twenty tokens, docs/log.md.
- `translations` (XLM): a sentence and its translation, see `translation_pack.py`.
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
from sesame.data.parts import Part
from sesame.data.pieces import Laid, Pieces, lay
from sesame.data.plan import PLANS, Ints, split_long, stream
from sesame.errors import SesameError

Kind = Literal["pairs", "orders", "sentences", "documents", "blocks", "translations", "dialogues", "neighbors"]
_NO_ROWS = {
    "orders": "has no example, because no document has two tokens whose order could be asked for; put blank lines only "
    "between documents",
    "neighbors": "has no example, because no document has two sentences; put blank lines only between documents",
}
_SEPARATORS = {"pairs": 2, "orders": 2, "translations": 3}  # in a row; of other kinds the last one, if there is one


class NoExample(SesameError):
    """A text in which a packing finds nothing."""


@dataclass(frozen=True)
class Specials:
    cls: int | None  # None: rows begin with their text
    sep: int
    pad: int
    end: bool = True  # a separator ends each row; False: a row of blocks ends where it is cut


class Packer:
    """Draws batches of one kind and length from a part of a store.

    By itself sentences, documents and blocks; the other kinds have a packer each, `packers.py`.
    """

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
        lang: int | None = None,
    ) -> None:
        """`short`: the share of examples that are made short; `fixed`: batches are always `length` wide, also where no
        example is so long; `units`: where those start that count as words, unless the store's do; `lang`: the language of
        all tokens."""
        self.part, self.kind, self.length, self.specials = part, kind, length, specials
        self.short, self.words, self.fixed, self.lang = short, words, fixed, lang
        self.tokens, self.units = part.store.tokens, part.store.word_starts if units is None else units
        self.front = int(specials.cls is not None)
        self.body = length - self.front - _SEPARATORS.get(kind, int(specials.end))
        if self.body < 2:
            raise SesameError(f"length {length} leaves no room for text; choose at least 8")
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
        return self._assemble(self._stretches(rows, keys), len(rows), keys, {})

    def source(self, row: int) -> str:
        """Where a row's text comes from: file and line of its document."""
        store = self.part.store
        begin, _, document = self.rows[row]
        token = begin
        if self.kind not in ("sentences", "documents", "blocks"):
            token = self.offsets[begin]
        if self.kind == "blocks":
            token = self.offsets[self.documents[document, 0]]
        sentence = int(np.searchsorted(store.sentences, token, side="right")) - 1
        return store.source(int(np.searchsorted(store.documents, sentence, side="right")) - 1)

    def _stretches(self, rows: Ints, keys: chance.Words) -> Pieces:
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

    def _blocks(self, start: Ints, stop: Ints) -> Pieces:
        """Stretches of the stream. A piece without tokens stands where a separator comes first or last in a row."""
        heads, sizes, places = self.stream
        first = np.searchsorted(places, start, side="right") - 1
        count = np.searchsorted(places, stop, side="right") - first
        owner = np.repeat(np.arange(len(start)), count)
        document = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count) + first[owner]
        begin = np.clip(start[owner] - places[document], 0, sizes[document])
        finish = np.clip(stop[owner] - places[document], 0, sizes[document])
        return Pieces(owner, heads[document] + begin, finish - begin, np.zeros(len(owner), dtype=np.int64))

    def _assemble(self, pieces: Pieces, size: int, keys: chance.Words, targets: dict[str, Targets]) -> Batch:
        """[CLS] piece [SEP] piece [SEP] ... in padded rows."""
        end = self.specials.end
        laid = lay(pieces, size, self.front, self.length + (not end) if self.fixed else None)
        lengths = laid.lengths if end else laid.lengths - 1  # the last separator is left out again
        ids = np.full((size, laid.width), self.specials.pad, dtype=np.int64)
        if self.specials.cls is not None:
            ids[:, 0] = self.specials.cls
        ids.reshape(-1)[laid.sep] = self.specials.sep
        ids.reshape(-1)[laid.place] = self.tokens[laid.source]
        rows = {"ids": ids}
        if self.words:
            rows["words"] = self._words(laid, size)
        if self.lang is not None:
            rows["langs"] = np.full_like(ids, self.lang)
        if not end:
            rows = {name: value[:, :-1].copy() for name, value in rows.items()}
        found: dict[str, Any] = {name: torch.from_numpy(value) for name, value in rows.items()}
        return Batch(
            **found,
            lengths=torch.from_numpy(lengths.astype(np.int64)),
            keys=torch.from_numpy(keys.view(np.int64)),
            full=bool((lengths == rows["ids"].shape[1]).all()),
            targets=targets,
        )

    def _words(self, laid: Laid, size: int) -> Ints:
        """The number of the word at each place, from 1 on; 0 where no text stands."""
        starts, real = np.zeros((2, size, laid.width), dtype=np.int64)
        starts.reshape(-1)[laid.place] = self.units[laid.source]
        starts.reshape(-1)[laid.head] = 1  # a trimmed piece may begin inside a word
        real.reshape(-1)[laid.place] = 1
        found: Ints = np.cumsum(starts, axis=1) * real
        return found
