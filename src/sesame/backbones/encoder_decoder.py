"""An encoder that reads a source, and a decoder that answers: the Transformer (Vaswani et al. 2017) and its children.

What distinguishes the Transformer, T5, BART, mBART and Marian is in `EncoderDecoderConfig`. Both halves are made of the same
bricks and share one token table; the decoder looks at itself from left to right, and at the source through a third part of
each block. The source is `batch.ids`, what the decoder reads `batch.outputs`.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from sesame.backbones.base import Backbone, Encoded, State, check_shape, outputs_of
from sesame.backbones.cache import before
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.nn.attention.buckets import RelativeBias
from sesame.nn.attention.cross import CrossAttention, source_mask
from sesame.nn.attention.multihead import Rows, SelfAttention, take
from sesame.nn.block import Block, CrossBlock
from sesame.nn.dropout import Dropout
from sesame.nn.embeddings import padded_vocab
from sesame.nn.feedforward import FeedForward
from sesame.nn.init import bert_init, glorot_init
from sesame.nn.norms import make_norm
from sesame.nn.positions import half_sinusoids


@dataclass(frozen=True)
class EncoderDecoderConfig:
    vocab: int
    width: int
    depth: int  # of the encoder
    heads: int
    decoder_depth: int = 0  # 0: depth
    decoder_heads: int = 0  # 0: heads
    inner: int = 0  # feed-forward width; 0: 4 * width
    decoder_inner: int = 0  # 0: inner
    head_size: int = 0  # 0: width / heads (T5 chooses it freely)
    max_length: int = 512  # of source and answer
    positions: Literal["learned", "sinusoidal", "relative"] = "sinusoidal"
    buckets: int = 32  # of relative positions
    farthest: int = 128  # distances beyond share a bucket
    order: Literal["post", "pre", "branch"] = "post"
    norm: Literal["layer", "rms"] = "layer"
    activation: Literal["relu", "gelu", "gelu_tanh", "silu", "geglu", "geglu_tanh", "reglu", "swiglu"] = "relu"
    bias: bool = True
    embedding_norm: bool = False  # a norm behind the embeddings (BART)
    grow: bool = True  # token vectors are multiplied by √width (Vaswani et al. 2017, section 3.4)
    scaled: bool = True  # scores are divided by √head_size (not in T5)
    dropout: float = 0.1
    attention_dropout: float = 0.1
    inner_dropout: float = 0.0  # within the feed-forward layer
    eps: float = 1e-5
    glorot: bool = True  # weights start as the Transformer's authors have it; False: with deviation `init`, as BERT's
    init: float = 0.02

    def __post_init__(self) -> None:
        for name in ("head_size", "decoder_depth", "decoder_heads", "inner", "decoder_inner"):
            if getattr(self, name) < 0:
                raise SesameError(f"backbone.{name} is {getattr(self, name)}; it must not be below 0")
        check_shape(self)
        if self.decoder_heads and not self.head_size and self.width % self.decoder_heads:
            raise SesameError(
                f"backbone.width {self.width} does not divide by the decoder's {self.decoder_heads} heads; change one of them"
            )
        if self.positions == "relative" and (
            self.buckets < 4 or self.buckets % 4 or self.farthest <= self.buckets // 2
        ):
            raise SesameError("backbone.buckets must be a multiple of 4, and backbone.farthest above half of them")
        if self.norm == "rms" and self.order != "pre":
            raise SesameError('backbone.norm = "rms" is for order = "pre"')

    def half(self, decoder: bool) -> tuple[int, int, int]:
        """Layers, heads and feed-forward width of one side."""
        inner = self.inner or 4 * self.width
        if not decoder:
            return self.depth, self.heads, inner
        return self.decoder_depth or self.depth, self.decoder_heads or self.heads, self.decoder_inner or inner


class Side(nn.Module):
    """One half: embeddings' end, blocks, last norm. `blocks` of the decoder also look at the source."""

    def __init__(self, config: EncoderDecoderConfig, decoder: bool) -> None:
        super().__init__()
        c, self.decoder = config, decoder
        self.positions = nn.Embedding(c.max_length, c.width) if c.positions == "learned" else None
        ahead = not decoder
        depth, heads, _ = c.half(decoder)
        self.bias = RelativeBias(heads, c.buckets, c.farthest, ahead) if c.positions == "relative" else None
        self.norm = make_norm(c.norm, c.width, c.eps, c.bias) if c.embedding_norm else None
        self.dropout = Dropout(c.dropout)
        self.blocks = nn.ModuleList(_block(c, decoder) for _ in range(depth))
        self.final_norm = make_norm(c.norm, c.width, c.eps, c.bias) if c.order == "pre" else nn.Identity()
        self.last_dropout = Dropout(c.dropout if c.norm == "rms" else 0.0)  # T5 drops once more at the end

    def enter(self, tokens: Tensor, at: Tensor, table: Tensor | None) -> Tensor:
        """Token vectors with their positions, as the first block reads them."""
        x = tokens
        if self.positions is not None:
            x = x + self.positions(at)
        elif table is not None:
            x = x + table[at]
        return self.dropout(x if self.norm is None else self.norm(x))  # type: ignore[no-any-return]

    def rows(self, batch: Batch) -> Rows:
        """Who of a source sees whom, and what is added to the scores by distance."""
        mask = batch.mask()
        seen = None if mask is None else mask[:, None, None, :]
        if self.bias is not None:
            bias = self.bias(0, batch.ids.shape[1], batch.ids.shape[1])
            seen = bias if seen is None else bias.masked_fill(~seen, torch.finfo(bias.dtype).min)
        return Rows(seen)

    def leave(self, x: Tensor) -> Tensor:
        return self.last_dropout(self.final_norm(x))  # type: ignore[no-any-return]


def _block(c: EncoderDecoderConfig, decoder: bool) -> Block:
    scale = None if c.scaled else 1.0
    _, heads, inner = c.half(decoder)
    attention = SelfAttention(c.width, heads, c.bias, c.dropout, c.attention_dropout, c.head_size, scale)
    feedforward = FeedForward(c.width, inner, c.activation, c.bias, c.dropout, c.inner_dropout)
    if not decoder:
        return Block(attention, feedforward, c.width, c.order, c.eps, c.norm)
    cross = CrossAttention(c.width, heads, c.bias, c.dropout, c.attention_dropout, c.head_size, scale)
    return CrossBlock(attention, cross, feedforward, c.width, c.order, c.eps, c.norm)


class EncoderDecoder(Backbone):
    config: EncoderDecoderConfig
    answers = True
    table: Tensor | None

    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__()
        self.config, self.width, self.vocab = config, config.width, config.vocab
        self.depth = config.depth + (config.decoder_depth or config.depth)
        self.tokens = nn.Embedding(padded_vocab(config.vocab), config.width)
        self.encoder, self.decoder = Side(config, False), Side(config, True)
        sinusoidal = config.positions == "sinusoidal"
        table = half_sinusoids(config.max_length, config.width) if sinusoidal else None
        self.register_buffer("table", table, persistent=False)
        self.apply(glorot_init(config.width) if config.glorot else bert_init(config.init))
        for module in self.modules() if config.glorot else ():
            if isinstance(module, SelfAttention):  # three matrices in one: each starts as if it stood alone
                for part in module.qkv.weight.data.chunk(3):
                    nn.init.xavier_uniform_(part)
            elif isinstance(module, CrossAttention):
                for part in module.kv.weight.data.chunk(2):
                    nn.init.xavier_uniform_(part)
        if config.positions == "relative":  # T5's table is not multiplied when it is read, so it starts large
            nn.init.normal_(self.tokens.weight)
        with torch.no_grad():  # rows that no id points at are never saved: they must not count in a norm of the table
            self.tokens.weight[config.vocab :] = 0.0

    @property
    def blocks(self) -> list[nn.Module]:  # type: ignore[override]
        return [*self.encoder.blocks, *self.decoder.blocks]

    @property
    def longest(self) -> int | None:
        return None if self.config.positions == "relative" else self.config.max_length

    @property
    def segment_kinds(self) -> int:
        return 0

    def groups(self) -> list[nn.Module]:
        ends = [side.final_norm for side in (self.encoder, self.decoder)]
        return [self.tokens, *self.encoder.blocks, ends[0], *self.decoder.blocks, ends[1]]

    def drop(self, rate: float | None) -> None:
        drop(self, rate)

    def token_table(self) -> Tensor:
        return self.tokens.weight

    # ---- both halves -----------------------------------------------------------------------------------------------

    def forward(self, batch: Batch, only: Tensor | None = None, maps: bool = False) -> Encoded:
        """States of the decoder at all places of `batch.outputs`; `maps` are those of its looks at the source."""
        outputs = outputs_of(batch)
        read, width = self.read(batch), outputs.shape[1]
        rows = Rows(causal=True)
        if self.decoder.bias is not None:
            rows = Rows(self._scores(0, width, None, outputs.device))
        seen: list[Tensor] | None = [] if maps else None
        mask = source_mask(batch.mask())
        layers = [self._enter(self.decoder, outputs, 0, batch.output_positions)]
        for block in self.decoder.blocks:
            assert isinstance(block, CrossBlock)
            layers.append(block.answer(layers[-1], rows, block.cross.read(read), mask, seen))
        layers[-1] = self.decoder.leave(layers[-1])
        if only is not None:
            layers[-1] = take(layers[-1], only)
        return Encoded(batch, tuple(layers), only, tuple(seen or ()))

    def read(self, batch: Batch) -> Tensor:
        """The encoder's answer to a source. Shape: (B, L) -> (B, L, D)."""
        x, rows = self._enter(self.encoder, batch.ids, 0), self.encoder.rows(batch)
        for block in self.encoder.blocks:
            x = block(x, rows)
        return self.encoder.leave(x)

    def go_on(self, batch: Batch, state: State, maps: bool = False) -> Encoded:
        """The tokens of `batch.outputs` after those of `state`; a state without a source first reads `batch.ids`."""
        assert batch.outputs is not None
        if not state.source:
            read = self.read(batch)
            crosses = [block.cross for block in self.decoder.blocks if isinstance(block, CrossBlock)]
            state = State(source=tuple(cross.read(read) for cross in crosses), source_real=batch.mask())
        past, width = state.length, batch.outputs.shape[1]
        mask: Tensor | None = before(past, width, None, batch.outputs.device)
        if self.decoder.bias is not None:
            mask = self._scores(past, width, mask, batch.outputs.device)
        looks, kept = source_mask(state.source_real), []
        seen: list[Tensor] | None = [] if maps else None
        layers = [self._enter(self.decoder, batch.outputs, past)]
        for number, block in enumerate(self.decoder.blocks):
            assert isinstance(block, CrossBlock)
            old = state.layers[number] if state.layers else None
            x, cache = block.answer_on(layers[-1], old, Rows(mask), state.source[number], looks, seen)
            layers.append(x)
            kept.append(cache)
        layers[-1] = self.decoder.leave(layers[-1])
        after = State(tuple(kept), source=state.source, source_real=state.source_real)
        return Encoded(batch, tuple(layers), maps=tuple(seen or ()), state=after)

    def _enter(self, side: Side, ids: Tensor, first: int, places: Tensor | None = None) -> Tensor:
        return enter(self, side, ids, first, places)

    def _scores(self, past: int, width: int, mask: Tensor | None, device: torch.device) -> Tensor:
        """What the decoder adds to its scores by distance, with the future closed."""
        assert self.decoder.bias is not None
        bias: Tensor = self.decoder.bias(past, width, past + width)
        seen = before(past, width, None, device) if mask is None else mask
        return bias if seen is None else bias.masked_fill(~seen, torch.finfo(bias.dtype).min)


def enter(whole: Backbone, side: Side, ids: Tensor, first: int, places: Tensor | None = None) -> Tensor:
    """Tokens as the first block of a side reads them; `first` is the place of the first, unless `places` says more."""
    width = ids.shape[1]
    if whole.longest is not None and first + width > whole.longest:
        what = "tokens of the answer" if side.decoder else "tokens"
        raise SesameError(f"{first + width} {what} do not fit: this model was built for {whole.longest}")
    at = torch.arange(first, first + width, device=ids.device) if places is None else places
    tokens: Tensor = whole.tokens(ids)  # type: ignore[operator]
    grown = tokens * math.sqrt(whole.width) if whole.config.grow else tokens
    return side.enter(grown, at, whole.table)  # type: ignore[arg-type]


def drop(whole: Backbone, rate: float | None) -> None:
    c = whole.config
    for module in whole.modules():
        if isinstance(module, SelfAttention | CrossAttention):
            module.rate = c.attention_dropout if rate is None else rate
        elif isinstance(module, FeedForward):
            module.inner_dropout = c.inner_dropout if rate is None else min(rate, c.inner_dropout)
        elif isinstance(module, Dropout):
            module.rate = c.dropout if rate is None else rate
