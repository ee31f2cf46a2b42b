"""What every backbone is: ids in, hidden states out.

A backbone keeps nothing between calls. Heads belong to objectives and tasks; a backbone only says its groups, bottom to
top, so that freezing and layer-wise rates work for all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import torch
from torch import Tensor, nn

from sesame.data.batch import Batch, Real
from sesame.errors import SesameError
from sesame.nn.attention.multihead import take
from sesame.nn.steady import row_sums
from sesame.text import Tokenizer


class Padded(Sequence[Tensor]):
    """Layers that were computed without padding (T, D), each padded to (B, L, D) when somebody reads it."""

    def __init__(self, layers: Sequence[Tensor], real: Real, shape: Sequence[int]) -> None:
        self.layers, self.real, self.shape = layers, real, shape

    def __len__(self) -> int:
        return len(self.layers)

    @overload
    def __getitem__(self, index: int) -> Tensor: ...
    @overload
    def __getitem__(self, index: slice) -> "Padded": ...
    def __getitem__(self, index: int | slice) -> "Tensor | Padded":
        if isinstance(index, slice):
            return Padded(self.layers[index], self.real, self.shape)
        flat = self.layers[index]
        size, width = self.shape
        padded = flat.new_zeros(size * width + 1, flat.shape[-1]).index_copy(0, self.real.at, flat)
        return padded[:-1].view(size, width, -1)


@dataclass(frozen=True)
class State:
    """What a backbone remembers of the tokens before: a value that is given back and handed in again, never kept inside.

    It is the memory of XLNet and Transformer-XL, and the cache of decoders. No gradient flows into it. `State()` is that of a
    text's beginning.
    """

    layers: tuple[Tensor, ...] = ()  # (B, M, X) each, of the last M tokens: a layer's input, or its keys and values
    real: Tensor | None = None  # (B, M): False at padding; None: everything may be looked at
    segments: Tensor | None = None  # (B, M); None: all belong to segment 0
    source: tuple[Tensor, ...] = ()  # (S, L, X) each: keys and values of what an encoder read; B / S rows share one
    source_real: Tensor | None = None  # (S, L)

    @property
    def length(self) -> int:
        return self.layers[0].shape[1] if self.layers else 0

    def select(self, rows: Tensor) -> "State":
        """That of other rows. Shape: rows (S', n), numbers of today's rows; those of a line have one source."""
        flat, source, source_real = rows.flatten(), self.source, self.source_real
        if source:
            sources = rows[:, 0] // (self.layers[0].shape[0] // source[0].shape[0])
            if not torch.equal(sources, torch.arange(source[0].shape[0], device=rows.device)):
                source = tuple(part.index_select(0, sources) for part in source)
                source_real = None if source_real is None else source_real.index_select(0, sources)
        return State(
            tuple(layer.index_select(0, flat) for layer in self.layers),
            None if self.real is None else self.real.index_select(0, flat),
            None if self.segments is None else self.segments.index_select(0, flat),
            source,
            source_real,
        )


@dataclass(frozen=True)
class Looked:
    """What a decoder's looks at its source cost beside the loss, at K places of an answer."""

    chosen: Tensor | None = None  # (B, K) log-probability of places that were drawn (hard attention)
    repeated: Tensor | None = None  # (B, K) how much of a look fell on places that were looked at before (coverage)


@dataclass(frozen=True)
class Encoded:
    """Hidden states: the embeddings first, then one entry for each layer."""

    batch: Batch
    layers: Sequence[Tensor]  # (B, L, D) each; the last one (B, K, D) if limited to `only`
    only: Tensor | None = None  # (B, K): the places at which the last layer was computed
    maps: tuple[Tensor, ...] = ()  # (B, H, L, L) for each layer, when asked for
    kept: Tensor | None = None  # instead of layers: what a task's head reads, computed earlier by a frozen backbone
    state: State | None = None  # what to hand in with the tokens that follow, from a backbone that remembers
    looked: Looked | None = None
    undropped: Tensor | None = None  # (B, L, D) the last layer before its dropout, where a backbone tells it
    begins: Tensor | None = None  # (B, L) True where a word begins, if all tokens of a word have its state (ELMo)

    @property
    def last(self) -> Tensor:
        return self.layers[-1]

    def mean(self, states: Tensor) -> Tensor:
        """Over the tokens of each row, or over its words where all tokens of a word have its state: a long word counts as
        much as a short one. Shape: (..., B, L, D) -> (..., B, D)."""
        lengths = self.batch.lengths
        if self.begins is None:
            return row_sums(states, lengths) / lengths[:, None]
        return row_sums(states * self.begins[..., None], lengths) / self.begins.sum(1, keepdim=True)

    def take(self, at: Tensor) -> Tensor:
        """Last hidden states at positions of each row. Shape: (B, K) -> (B, K, D)."""
        if self.only is None:
            return take(self.last, at)
        if at is self.only:
            return self.last
        found = (at[:, :, None] == self.only[:, None, :]).int().argmax(-1)
        return take(self.last, found)


class Backbone(nn.Module):
    width: int
    vocab: int
    depth: int  # layers above the embeddings
    config: Any  # its settings, a dataclass of its own kind
    blocks: nn.ModuleList  # the layers, bottom to top; shared ones several times
    answers = False  # True: an encoder reads a source (`batch.ids`), a decoder answers it (`batch.outputs`)
    reads_on = False  # True: `forward` takes a `state`, so that a row may be read in parts from left to right
    compiles = True  # False: steps in Python, which a compiler would unroll for minutes
    pooled = "mean"  # how a text's states become one vector where nobody says it: see `tasks/embed.py`
    cls_last = False  # True: [CLS], whose state stands for the whole text, is a row's last token and not its first

    @property
    def longest(self) -> int | None:
        """How many tokens it reads at once; None: no end."""
        return None

    @property
    def segment_kinds(self) -> int:
        """How many segments it tells apart."""
        return 0

    def drop(self, rate: float | None) -> None:
        """From now on this dropout everywhere; None: as configured. The configuration, which is saved, stays."""
        raise NotImplementedError

    def groups(self) -> list[nn.Module]:
        """The modules from bottom to top."""
        raise NotImplementedError

    def forward(self, batch: Batch, only: Tensor | None = None, maps: bool = False) -> Encoded:
        """`only` limits the last layer to these places (B, K); `maps` asks for the attention maps."""
        raise NotImplementedError

    def go_on(self, batch: Batch, state: State, maps: bool = False) -> Encoded:
        """Read tokens that follow those of `state`, without dropout; the state to go on from is in the answer."""
        raise NotImplementedError

    def spell(self, tokenizer: Tokenizer) -> None:
        """Be told how tokens are written; only a backbone that reads letters listens."""

    def token_table(self) -> Tensor:
        """The embedding of every token, for tied output layers. Shape: (V padded, E)."""
        raise NotImplementedError


def outputs_of(batch: Batch) -> Tensor:
    """What a decoder is to read; without it somebody wants an encoder's states."""
    if batch.outputs is None:
        raise SesameError(
            "this model answers sources (`sesame translate`) and gives no states of a text; take an encoder"
        )
    return batch.outputs


def at_end(backbone: Any) -> bool:
    """Whether the last token's state stands for a text, being [CLS] or where nobody looks ahead; else the first one's."""
    return bool(getattr(backbone, "cls_last", False) or getattr(getattr(backbone, "config", None), "causal", False))


def check_depth(depth: int) -> None:
    """More would fill the memory before anybody could say so."""
    if depth > 1000:
        raise SesameError(f"backbone.depth is {depth}; a thousand layers are the most")


def check_shape(config: Any) -> None:
    """Complain about numbers that no backbone can be built with."""
    for name in ("vocab", "width", "depth", "heads", "max_length"):
        if getattr(config, name) < 1:
            raise SesameError(f"backbone.{name} is {getattr(config, name)}; it must be at least 1")
    for name in ("inner", "segments"):
        if getattr(config, name, 0) < 0:
            raise SesameError(f"backbone.{name} is {getattr(config, name)}; it must not be below 0")
    if not (0 <= config.dropout < 1 and 0 <= config.attention_dropout < 1 and config.eps > 0 and config.init > 0):
        raise SesameError("backbone: dropouts lie from 0 to below 1, eps and init above 0")
    if not 0 <= getattr(config, "inner_dropout", 0.0) < 1:
        raise SesameError(f"backbone.inner_dropout is {config.inner_dropout}; it lies from 0 to below 1")
    for name in ("rotary_base", "local_base"):
        if not getattr(config, name, 1.0) > 0:
            raise SesameError(f"backbone.{name} is {getattr(config, name)}; it must be above 0")
    check_depth(config.depth)
    if config.width % config.heads and not getattr(config, "head_size", 0):
        raise SesameError(f"backbone.width {config.width} does not divide by {config.heads} heads; change one of them")
