"""XLNet: Transformer-XL with two streams (Yang et al. 2019, https://arxiv.org/abs/1906.08237).

Post-norm layers with relative attention (`nn/attention/two_stream.py`). The content stream h is an encoder as usual. Given
an `Order`, it sees only what does not come later in that order, and a query stream g, which starts from one learnt vector
and never sees the token at its own place, asks for the tokens at some places:

    h_i <- what i itself and all j with rank_j <= rank_i know;     g_i <- what all j with rank_j < rank_i know

States of earlier tokens are remembered if handed in (`State`); they stand in front of the keys.

Unusual: dropout on the distance encodings is drawn once for a batch and not for each row: theirs makes a copy of the
encodings for every row and multiplies each with W_R, a sixth more work in a layer. Padding in the memory is not looked at,
and remembered tokens keep their segments; the authors, who have no padding and remember segment 0 only, look at all of it
(`State(layers)` alone gives that).
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from sesame.backbones.base import Encoded, State, check_shape
from sesame.backbones.memory import Remembering, behind, keep, real_places, remembered
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.nn.attention.multihead import take
from sesame.nn.attention.relative import Sight
from sesame.nn.attention.two_stream import TwoStreamAttention
from sesame.nn.dropout import Dropout
from sesame.nn.embeddings import padded_vocab
from sesame.nn.feedforward import FeedForward
from sesame.nn.init import bert_init
from sesame.nn.positions import relative_sinusoids
from sesame.nn.relative_block import RelativeBlock


@dataclass(frozen=True)
class XLNetConfig:
    vocab: int
    width: int
    depth: int
    heads: int
    inner: int = 0  # feed-forward width; 0: 4 * width
    max_length: int = 512  # of the texts that it learns from; the model itself has no limit
    memory: int = 0  # how many tokens it remembers; 0: all
    reuse: int = 0  # how many of a segment's first tokens are remembered; 0: all
    clamp: int = 0  # farther tokens count as being so far away; 0: no end
    activation: Literal["relu", "gelu", "gelu_tanh"] = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    eps: float = 1e-12
    init: float = 0.02  # standard deviation of the weights at the start

    def __post_init__(self) -> None:
        check_shape(self)
        if min(self.memory, self.reuse, self.clamp, self.inner) < 0:
            raise SesameError("backbone: memory, reuse, clamp and inner are not below 0")
        if self.width % 2:
            raise SesameError(f"backbone.width is {self.width}; sinusoids come in pairs, so it must be even")


@dataclass(frozen=True)
class Order:
    """In which order the tokens of a row are predicted, and where the query stream asks."""

    rank: (
        Tensor  # (B, L): a token is known to those of higher rank; equal ranks know each other (-1: the given context)
    )
    at: Tensor  # (B, K)


def _block(c: XLNetConfig) -> RelativeBlock:
    attention = TwoStreamAttention(c.width, c.heads, c.dropout, c.attention_dropout, c.init)
    return RelativeBlock(
        attention, FeedForward(c.width, c.inner or 4 * c.width, c.activation, True, c.dropout), c.width, c.eps
    )


class XLNet(Remembering):
    cls_last = True
    config: XLNetConfig

    def __init__(self, config: XLNetConfig) -> None:
        super().__init__()
        self.config, self.width, self.vocab, self.depth = config, config.width, config.vocab, config.depth
        self.tokens = nn.Embedding(padded_vocab(config.vocab), config.width)
        self.asking = nn.Parameter(torch.empty(config.width).normal_(std=config.init))  # the query stream at its start
        self.blocks = nn.ModuleList(_block(config) for _ in range(config.depth))
        self.dropout = Dropout(config.dropout)
        self.apply(bert_init(config.init))
        with torch.no_grad():  # rows that no id points at are never saved: they must not count in a norm of the table
            self.tokens.weight[config.vocab :] = 0.0

    @property
    def segment_kinds(self) -> int:
        return 3  # A, B and [CLS]; it asks only whether two are the same

    def forward(
        self,
        batch: Batch,
        only: Tensor | None = None,
        maps: bool = False,
        state: State | None = None,
        order: Order | None = None,
        backward: Tensor | None = None,
    ) -> Encoded:
        """With an `order` the last layer is that of the query stream, at `order.at`; `only` is then not asked for.

        `backward` (B,): rows that hold their text from its end to its beginning; their distances change sign.
        """
        far = self._distances(batch.ids.shape[1], state, both=backward is not None)
        which = None if backward is None else backward.long()
        content = self._content_sight(batch, state, order)
        last = content if only is None else _at(content, only)
        query = None if order is None else self._query_sight(batch, state, order, content)
        seen: list[Tensor] | None = [] if maps else None
        layers: list[Tensor] = [self.dropout(self.tokens(batch.ids))]
        g = None if order is None else self.dropout(self.asking.expand(*order.at.shape, -1))
        for number, block in enumerate(self.blocks):
            h = layers[-1]
            assert isinstance(block, RelativeBlock)
            keys = block.attention.keys(behind(state, number, h), far.to(h.dtype), which)
            if g is not None:
                assert query is not None
                g = block(g, keys, query)
            if number + 1 < self.depth:
                layers.append(block(h, keys, content, seen))
            elif g is None:
                layers.append(block(h if only is None else take(h, only), keys, last, seen))
        remembered = self._remember(layers[: self.depth], batch, state)
        layers = [*layers[: self.depth], self.dropout(layers[-1] if g is None else g)]
        return Encoded(batch, layers, only if order is None else order.at, tuple(seen or ()), state=remembered)

    def _distances(self, length: int, state: State | None, both: bool) -> Tensor:
        """Encodings of all distances that occur, and if `both`, also of the same with the other sign.

        Shape: (1 or 2, M + 2L, D).
        """
        known = length + remembered(state)
        table = self.token_table()
        far = relative_sinusoids(known, known + length, self.width, self.config.clamp, table.device).to(table.dtype)
        sine, cosine = far.chunk(2, dim=-1)
        found = torch.stack([far, torch.cat([-sine, cosine], dim=-1)] if both else [far])
        return self.dropout(found)  # type: ignore[no-any-return]

    def _content_sight(self, batch: Batch, state: State | None, order: Order | None) -> Sight:
        """Each token sees itself; of the others those that are real and, given an order, not later."""
        memory = remembered(state)
        length = batch.ids.shape[1]
        visible, real = None, real_places(batch, state)
        if real is not None or order is not None:
            itself = torch.eye(length, dtype=torch.bool, device=batch.ids.device)
            itself = nn.functional.pad(itself, (memory, 0))
            visible = torch.ones_like(itself)[None] if real is None else real[:, None, :]
            if order is not None:
                visible = visible & _known(order.rank, order.rank + 1, memory)
            visible = visible | itself
        if batch.segments is None:
            return Sight(visible, None)
        return Sight(visible, batch.segments[:, :, None] != _segments(batch, state)[:, None, :])

    def _query_sight(self, batch: Batch, state: State | None, order: Order, content: Sight) -> Sight:
        """Only what comes earlier; never the token itself."""
        memory = remembered(state)
        visible = _known(order.rank, torch.gather(order.rank, 1, order.at), memory)
        real = real_places(batch, state)
        if real is not None:
            visible = visible & real[:, None, :]
        return Sight(visible, _at(content, order.at).differ, order.at)

    def _remember(self, inputs: list[Tensor], batch: Batch, state: State | None) -> State:
        memory, reuse, known = self.config.memory, self.config.reuse, remembered(state)
        before = state.layers if state is not None else (None,) * len(inputs)
        layers = tuple(keep(old, new, memory, reuse) for old, new in zip(before, inputs, strict=True))
        real = real_places(batch, state)
        return State(
            layers,
            None if real is None else keep(real[:, :known], real[:, known:], memory, reuse),
            None if batch.segments is None else keep(_segments(batch, state)[:, :known], batch.segments, memory, reuse),
        )


def _segments(batch: Batch, state: State | None) -> Tensor:
    """Of memory and batch, (B, M + L)."""
    assert batch.segments is not None
    if state is None:
        return batch.segments
    before = batch.segments.new_zeros(batch.size, remembered(state))
    return torch.cat([before if state.segments is None else state.segments, batch.segments], dim=1)


def _known(rank: Tensor, below: Tensor, memory: int) -> Tensor:
    """Who knows whom: all of the memory, and tokens whose rank is below. Shape: (B, L), (B, Lq) -> (B, Lq, M + L)."""
    return nn.functional.pad(rank[:, None, :] < below[:, :, None], (memory, 0), value=True)


def _at(sight: Sight, places: Tensor) -> Sight:
    """The same sight at some places only."""

    def pick(x: Tensor | None) -> Tensor | None:
        if x is None:
            return None
        rows = torch.arange(len(places), device=places.device)[:, None] if x.shape[0] > 1 else places.new_zeros(1, 1)
        return x[rows, places]

    return Sight(pick(sight.visible), pick(sight.differ), places)
