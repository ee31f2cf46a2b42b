"""Transformer-XL: reads from left to right and remembers (Dai et al. 2019, https://arxiv.org/abs/1901.02860).

A text is read part by part. What each layer was given at the last M tokens is handed in again with the next part (`State`)
and stands in front of its keys and values; no gradient flows back into it (SG):

    h~ = [SG(memory of layer n-1) ; h of layer n-1]
    q, k, v = h W_q, h~ W_k, h~ W_v;    attention with relative places (`nn/attention/relative.py`), causal
    h of layer n = LN(x + FFN(x)),      x = LN(h of layer n-1 + heads W_O)

So the context of layer n reaches n * M tokens back, at the cost of one part. As long as nothing is forgotten, parts give what
one long pass gives, but for gradients.

Unusual:
- The authors predict words, 267,735 on WikiText-103, and so need an adaptive softmax and adaptive inputs. Here tokens are
  pieces, a table of some thousand rows is tied to the output, and neither is needed. Compare perplexities by word or by byte
  (`evaluate/perplexity.py`), never by piece.
- u and v belong to each layer (theirs are one pair for all), and dropout on the distance encodings is drawn once for a batch.
- Distances ahead do not exist, so r has M + L + 1 rows; rows of padding in the memory are not looked at.
- Embeddings are multiplied by sqrt(D), as theirs are, and no norm stands before the first layer.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from sesame.backbones.base import Backbone, Encoded, State, check_shape
from sesame.backbones.memory import Remembering, behind, keep, real_places, remembered
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.nn.attention.multihead import take
from sesame.nn.attention.relative import RelativeAttention, Sight
from sesame.nn.dropout import Dropout
from sesame.nn.embeddings import padded_vocab
from sesame.nn.feedforward import FeedForward
from sesame.nn.init import bert_init
from sesame.nn.positions import relative_sinusoids
from sesame.nn.relative_block import RelativeBlock


@dataclass(frozen=True)
class TransformerXLConfig:
    vocab: int
    width: int
    depth: int
    heads: int
    inner: int = 0  # feed-forward width; 0: 4 * width
    max_length: int = 512  # of the texts that it learns from; the model itself has no limit
    memory: int = 0  # how many tokens it remembers; 0: all
    clamp: int = 0  # farther tokens count as being so far away; 0: no end
    activation: Literal["relu", "gelu", "gelu_tanh"] = "relu"
    dropout: float = 0.1
    attention_dropout: float = 0.0
    eps: float = 1e-5
    init: float = 0.02  # standard deviation of the weights at the start
    causal: ClassVar[bool] = True  # every token sees only those before it and itself

    def __post_init__(self) -> None:
        check_shape(self)
        if min(self.memory, self.clamp, self.inner) < 0:
            raise SesameError("backbone: memory, clamp and inner are not below 0")
        if self.width % 2:
            raise SesameError(f"backbone.width is {self.width}; sinusoids come in pairs, so it must be even")


class TransformerXL(Remembering):
    config: TransformerXLConfig
    reads_on = True

    def __init__(self, config: TransformerXLConfig) -> None:
        super().__init__()
        self.config, self.width, self.vocab, self.depth = config, config.width, config.vocab, config.depth
        self.tokens = nn.Embedding(padded_vocab(config.vocab), config.width)
        self.blocks = nn.ModuleList(_block(config) for _ in range(config.depth))
        self.dropout = Dropout(config.dropout)
        self.apply(bert_init(config.init))
        with torch.no_grad():  # rows that no id points at are never saved: they must not count in a norm of the table
            self.tokens.weight[config.vocab :] = 0.0

    def forward(
        self,
        batch: Batch,
        only: Tensor | None = None,
        maps: bool = False,
        state: State | None = None,
        memory: int | None = None,
    ) -> Encoded:
        """`memory`: how many tokens the state that is given back holds; None: as configured, 0: all."""
        far, sight = self._distances(batch.ids.shape[1], state), self._sight(batch, state)
        seen: list[Tensor] | None = [] if maps else None
        layers: list[Tensor] = [self.dropout(self.tokens(batch.ids) * math.sqrt(self.width))]
        for number, block in enumerate(self.blocks):
            h = layers[-1]
            assert isinstance(block, RelativeBlock)
            layers.append(block(h, block.attention.keys(behind(state, number, h), far.to(h.dtype)), sight, seen))
        after = self._remember(layers[:-1], batch, state, self.config.memory if memory is None else memory)
        last = layers[-1] if only is None else take(layers[-1], only)
        return Encoded(batch, [*layers[:-1], self.dropout(last)], only, tuple(seen or ()), state=after)

    def go_on(self, batch: Batch, state: State, maps: bool = False) -> Encoded:
        """The tokens of `batch.ids`, which may be padded at their end, after those of `state`.

        Places count from the token that looks, so padding must not stand between a token and its past: in the state that
        is given back it stands in front.
        """
        past, memory = state if state.layers else None, self.config.memory
        if batch.full:
            return self(batch, maps=maps, state=past)  # type: ignore[no-any-return]
        encoded: Encoded = self(batch, maps=maps, state=past, memory=0)
        gap = (batch.ids.shape[1] - batch.lengths)[:, None]
        after = encoded.state or State()
        at = (torch.arange(after.length, device=gap.device)[None, :] - gap) % after.length

        def turned(x: Tensor) -> Tensor:
            return keep(None, take(x, at), memory)

        real = None if after.real is None else keep(None, after.real.gather(1, at), memory)
        return replace(encoded, state=State(tuple(map(turned, after.layers)), real))

    def _distances(self, length: int, state: State | None) -> Tensor:
        """Encodings of the distances M + L, ..., 0. Shape: (1, M + L + 1, D)."""
        known, table = length + remembered(state), self.token_table()
        far = relative_sinusoids(known, known + 1, self.width, self.config.clamp, table.device).to(table.dtype)
        return self.dropout(far[None])  # type: ignore[no-any-return]

    def _sight(self, batch: Batch, state: State | None) -> Sight:
        """Each token sees all of the memory, those before it and itself. Padding stands behind all who could see it."""
        known, length = remembered(state), batch.ids.shape[1]
        visible = torch.ones(length, known + length, dtype=torch.bool, device=batch.ids.device).tril(known)[None]
        if state is not None and state.real is not None:
            visible = visible & nn.functional.pad(state.real, (0, length), value=True)[:, None]
        return Sight(visible)

    def _remember(self, inputs: list[Tensor], batch: Batch, state: State | None, memory: int) -> State:
        before = state.layers if state is not None else (None,) * len(inputs)
        layers = tuple(keep(old, new, memory) for old, new in zip(before, inputs, strict=True))
        real = real_places(batch, state)
        return State(layers, None if real is None else keep(None, real, memory))


def _block(c: TransformerXLConfig) -> RelativeBlock:
    attention = RelativeAttention(c.width, c.heads, c.dropout, c.attention_dropout, c.init)
    return RelativeBlock(
        attention, FeedForward(c.width, c.inner or 4 * c.width, c.activation, True, c.dropout), c.width, c.eps
    )


def in_parts(backbone: Backbone, ids: Tensor, part: int, memory: int | None = None) -> Iterator[Tensor]:
    """The last states of `read_parts`. Shape: (B, L) -> (B, part, D) each."""
    return (encoded.last for encoded in read_parts(backbone, ids, part, memory))


def read_parts(backbone: Backbone, ids: Tensor, part: int, memory: int | None = None) -> Iterator[Encoded]:
    """Rows that a backbone which `reads_on` reads in parts of so many tokens, each with what is remembered of those before.

    Padding behind the end of a row is read too, and nothing real ever looks at it. `memory` is for a Transformer-XL alone.
    """
    state, more = None, {} if memory is None else {"memory": memory}
    for here in torch.split(ids, part, dim=1):
        lengths = torch.full((here.shape[0],), here.shape[1], device=ids.device)
        encoded = backbone(Batch(here, lengths, full=True), state=state, **more)
        state = encoded.state
        yield encoded
