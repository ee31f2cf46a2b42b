"""What a search asks of a model: the next token's logits, and a memory that follows the hypotheses.

    begin(batch) -> Heard: logits of the first new token, memory
    next(ids, memory) -> Heard: the same after one more token of every hypothesis

Hypotheses stand in a grid: S sources, n each, flat in this order (S * n rows). A source's hypotheses share what the model
read of it, so a memory keeps that once. Search moves hypotheses by `Memory.select`; the model knows nothing of beams.
"""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from sesame.data.batch import Batch


class Memory(Protocol):
    def select(self, rows: Tensor) -> "Memory":
        """The memory of other hypotheses. Shape: rows (S', n'), numbers of today's; those of a line have one source."""
        ...


@dataclass(frozen=True)
class Heard:
    logits: Tensor  # (S n, V), in 32 bits at least; V without the table's padding; a search may write into them
    memory: Memory
    looked: Tensor | None = (
        None  # (S n, L) where in the source the last layer looked, mean of heads, if it was asked for
    )


class Speaker(Protocol):
    """A model that continues a text (a decoder) or answers one (an encoder-decoder)."""

    @property
    def vocab(self) -> int: ...

    def begin(self, batch: Batch, looks: bool = False) -> Heard:
        """Read prompts or sources, padded at their end; n = 1. `looks` asks for `looked`, if there is a source."""
        ...

    def next(self, ids: Tensor, memory: Memory, looks: bool = False) -> Heard:
        """Go on by one token. Shape: ids (S n,)."""
        ...
