"""Models to search: tables of chance whose every text can be listed, and transformers' models behind our contract."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sesame.data.batch import Batch
from sesame.generate import Heard


def sources(rows: Sequence[Sequence[int]], keys: Sequence[int] | None = None) -> Batch:
    """Padded at the end, with zeros."""
    ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
    for row, some in enumerate(rows):
        ids[row, : len(some)] = torch.tensor(some, dtype=torch.long)
    return Batch(ids, torch.tensor([len(row) for row in rows]), None if keys is None else torch.tensor(keys))


@dataclass(frozen=True)
class ToyMemory:
    first: Tensor  # (S,) the source's first token
    lengths: Tensor  # (S,)
    states: Tensor  # (S, n) what was said, folded into a number

    def select(self, rows: Tensor) -> "ToyMemory":
        line = rows[:, 0] // self.states.shape[1]
        assert (rows // self.states.shape[1] == line[:, None]).all(), "a line has one source"
        return ToyMemory(self.first[line], self.lengths[line], self.states.flatten()[rows])


class Toy:
    """Random logits for each (source's first token, number of all that was said): no two beginnings need agree."""

    STATES, SOURCES = 4099, 8  # so many that two texts hardly ever share all their steps, which would be a tie

    def __init__(
        self, vocab: int, seed: int = 0, sharp: float = 2.0, end: int | None = None, lift: float = 0.0
    ) -> None:
        luck = torch.Generator().manual_seed(seed)
        self.vocab = vocab
        self.table = torch.randn(self.SOURCES, self.STATES, vocab, generator=luck, dtype=torch.float64) * sharp
        if end is not None:
            self.table[:, :, end] += lift
        self.looks = torch.rand(self.SOURCES, self.STATES, 16, generator=luck, dtype=torch.float64) ** 4
        self.rows = 0  # how many were computed

    def begin(self, batch: Batch, looks: bool = False) -> Heard:
        first = batch.ids[:, 0]
        return self._hear(ToyMemory(first, batch.lengths, (first * 577 % self.STATES)[:, None]), looks)

    def next(self, ids: Tensor, memory: Any, looks: bool = False) -> Heard:
        states = (memory.states * 131 + ids.view(memory.states.shape) * 5 + 3) % self.STATES
        return self._hear(ToyMemory(memory.first, memory.lengths, states), looks)

    def _hear(self, memory: ToyMemory, looks: bool) -> Heard:
        self.rows += memory.states.numel()
        at = memory.first.repeat_interleave(memory.states.shape[1]), memory.states.flatten()
        return Heard(self.table[at], memory, self._looked(memory, at) if looks else None)

    def _looked(self, memory: ToyMemory, at: tuple[Tensor, Tensor]) -> Tensor:
        width = int(memory.lengths.max())
        lengths = memory.lengths.repeat_interleave(memory.states.shape[1])
        looked = self.looks[at][:, :width] * (torch.arange(width) < lengths[:, None])
        return looked / looked.sum(1, keepdim=True)

    def logits(self, first: int, said: Sequence[int]) -> Tensor:
        """The definition, for one text."""
        state = first * 577 % self.STATES
        for id in said:
            state = (state * 131 + id * 5 + 3) % self.STATES
        return self.table[first, state]


@dataclass(frozen=True)
class TextMemory:
    """Nothing is remembered but the texts: everything is computed again."""

    source: Tensor  # (R,) rows of the batch
    said: Tensor  # (R, t)

    def select(self, rows: Tensor) -> "TextMemory":
        return TextMemory(self.source[rows.flatten()], self.said[rows.flatten()])


class Stranger:
    """A model of transformers behind our contract, without a cache."""

    def __init__(self, model: Any) -> None:
        self.model, self.vocab = model, int(model.config.vocab_size)
        self.batch: Batch | None = None

    def begin(self, batch: Batch, looks: bool = False) -> Heard:
        self.batch = batch
        self.encoded = None
        if self.model.config.is_encoder_decoder:
            mask = batch.mask()
            assert mask is not None
            self.encoded = self.model.get_encoder()(input_ids=batch.ids, attention_mask=mask.long()).last_hidden_state
        rows = torch.arange(batch.size)
        return self._hear(TextMemory(rows, torch.empty(batch.size, 0, dtype=torch.long)))

    def next(self, ids: Tensor, memory: Any, looks: bool = False) -> Heard:
        return self._hear(TextMemory(memory.source, torch.cat([memory.said, ids[:, None]], 1)))

    def _hear(self, memory: TextMemory) -> Heard:
        logits = self._continue(memory) if self.encoded is None else self._answer(memory)
        return Heard(logits.float(), memory)

    def _continue(self, memory: TextMemory) -> Tensor:
        assert self.batch is not None
        lengths, more = self.batch.lengths[memory.source], memory.said.shape[1]
        ids = torch.cat([self.batch.ids[memory.source], torch.zeros_like(memory.said)], 1)
        ids = ids.scatter(1, lengths[:, None] + torch.arange(more), memory.said)
        mask = torch.arange(ids.shape[1]) < (lengths + more)[:, None]
        logits: Tensor = self.model(input_ids=ids, attention_mask=mask.long()).logits
        return logits[torch.arange(len(ids)), lengths + more - 1]

    def _answer(self, memory: TextMemory) -> Tensor:
        assert self.batch is not None
        assert self.encoded is not None
        mask = self.batch.mask()
        assert mask is not None
        start = memory.said.new_full((len(memory.said), 1), self.model.config.decoder_start_token_id)
        logits: Tensor = self.model(
            encoder_outputs=(self.encoded[memory.source],),
            attention_mask=mask[memory.source].long(),
            decoder_input_ids=torch.cat([start, memory.said], 1),
            use_cache=False,
        ).logits
        return logits[:, -1]
