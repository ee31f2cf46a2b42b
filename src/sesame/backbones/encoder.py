"""The Transformer encoder: BERT and all who look like it.

One constructor composes named bricks; what distinguishes BERT, ALBERT or a modern encoder is in `EncoderConfig`. With
`causal` it reads from left to right: BERT's ablation, and the body of a GPT.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sesame.backbones.base import Backbone, Encoded, Padded, State, check_shape
from sesame.backbones.cache import before, past_and_present
from sesame.data.batch import Batch, Real
from sesame.errors import SesameError
from sesame.nn.attention.core import EndToEnd
from sesame.nn.attention.multihead import Rows, SelfAttention, take
from sesame.nn.block import Block
from sesame.nn.dropout import Dropout
from sesame.nn.embeddings import Embeddings
from sesame.nn.feedforward import FeedForward
from sesame.nn.init import bert_init
from sesame.nn.positions import rotations


@dataclass(frozen=True)
class EncoderConfig:
    vocab: int
    width: int
    depth: int
    heads: int
    inner: int = 0  # feed-forward width; 0: 4 * width
    max_length: int = 512
    segments: int = 2  # 0: no segment embeddings
    languages: tuple[str, ...] = ()  # names of those that have an embedding, added at every place (XLM)
    positions: Literal["learned", "sinusoidal", "rotary"] = "learned"
    order: Literal["post", "pre", "branch"] = "post"
    activation: Literal["relu", "gelu", "gelu_tanh", "geglu"] = "gelu"
    bias: bool = True  # False: none anywhere but for the output of a masked language model
    embedding_norm: bool = False  # pre: the first norm stands behind the embeddings, as in ModernBERT
    bare_embeddings: bool = False  # post: no norm behind the embeddings, as in the first GPT
    embedding_width: int = 0  # 0: width (ALBERT: 128)
    square: bool = False  # a matrix behind the embeddings also where they are as wide as the layers (ALBERT)
    share: Literal["none", "all", "attention", "feedforward"] = "none"
    causal: bool = False  # every token sees only those before it and itself
    dropout: float = 0.1
    attention_dropout: float = 0.1
    eps: float = 1e-12
    rotary_base: float = 10000.0
    local_layers: tuple[int, ...] = ()  # numbers of those, from 0, that look at near tokens only (ModernBERT)
    window: int = 64  # how far they look to each side
    local_base: float = 10000.0  # their rotary_base
    init: float = 0.02  # standard deviation of the weights at the start

    def __post_init__(self) -> None:
        check_shape(self)
        if self.embedding_norm and (self.order != "pre" or self.share == "all"):
            raise SesameError(
                'backbone.embedding_norm takes the first block\'s norm: it needs order = "pre" and blocks of their own'
            )
        if self.bare_embeddings and self.order != "post":
            raise SesameError('backbone.bare_embeddings is for order = "post"; another order has no such norm')
        if self.positions == "rotary" and (self.width // self.heads) % 2:
            raise SesameError("rotary positions turn pairs: width / heads must be even")
        if self.local_layers and (
            self.causal or self.window < 0 or not set(self.local_layers) <= set(range(self.depth))
        ):
            raise SesameError(
                f"backbone.local_layers are numbers from 0 to {self.depth - 1}, of a model that is not causal, and "
                f"backbone.window is not below 0; here are {list(self.local_layers)} and {self.window}"
            )

    @property
    def asks_everywhere(self) -> bool:
        """Whether the last layer is computed at all places even if few are wanted: who asks must know where it stands."""
        return self.causal or self.depth - 1 in self.local_layers


def _norms_embeddings(config: EncoderConfig) -> bool:
    """Pre-LN norms at the end of the stack instead."""
    return config.embedding_norm if config.order == "pre" else not config.bare_embeddings


class Encoder(Backbone):
    config: EncoderConfig

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config, self.width, self.vocab, self.depth = config, config.width, config.vocab, config.depth
        self.embeddings = Embeddings(
            config.vocab,
            config.width,
            config.embedding_width or config.width,
            config.positions,
            config.max_length,
            config.segments,
            norm=_norms_embeddings(config),
            norm_bias=config.bias,
            eps=config.eps,
            dropout=config.dropout,
            languages=len(config.languages),
            square=config.square,
        )
        self.blocks = nn.ModuleList(self._blocks(config))
        self.final_norm = (
            nn.LayerNorm(config.width, eps=config.eps, bias=config.bias) if config.order == "pre" else nn.Identity()
        )
        self.apply(bert_init(config.init))
        with torch.no_grad():  # rows that no id points at are never saved: they must not count in a norm of the table
            self.embeddings.tokens.weight[config.vocab :] = 0.0

    @staticmethod
    def _blocks(c: EncoderConfig) -> list[Block]:
        """Shared layers are the same module in several places: `share` says which halves."""

        def attention() -> SelfAttention:
            return SelfAttention(c.width, c.heads, c.bias, c.dropout, c.attention_dropout)

        def feedforward() -> FeedForward:
            return FeedForward(c.width, c.inner or 4 * c.width, c.activation, c.bias, c.dropout)

        if c.share == "all":
            return [Block(attention(), feedforward(), c.width, c.order, c.eps)] * c.depth
        one_attention = attention() if c.share == "attention" else None
        one_feedforward = feedforward() if c.share == "feedforward" else None
        found = [
            Block(one_attention or attention(), one_feedforward or feedforward(), c.width, c.order, c.eps)
            for _ in range(c.depth)
        ]
        if c.embedding_norm:
            found[0].attention_norm = nn.Identity()
        return found

    def groups(self) -> list[nn.Module]:
        return [self.embeddings, *dict.fromkeys(self.blocks), self.final_norm]

    @property
    def longest(self) -> int | None:
        return None if self.config.positions == "rotary" else self.config.max_length

    @property
    def segment_kinds(self) -> int:
        return self.config.segments

    def drop(self, rate: float | None) -> None:
        for module in self.modules():
            if isinstance(module, Dropout):
                module.rate = self.config.dropout if rate is None else rate
            elif isinstance(module, SelfAttention):
                module.rate = self.config.attention_dropout if rate is None else rate

    def token_table(self) -> Tensor:
        return self.embeddings.tokens.weight

    def forward(self, batch: Batch, only: Tensor | None = None, maps: bool = False) -> Encoded:
        if batch.real is not None and not maps:
            return self._unpadded(batch, batch.real, only)
        width = batch.ids.shape[1]
        if width > self.config.max_length and self.config.positions != "rotary":
            raise SesameError(f"{width} tokens do not fit: this model was built for {self.config.max_length}")
        at = torch.arange(width, device=batch.ids.device)[None, :] if batch.positions is None else batch.positions
        causal = self.config.causal
        mask = None if causal else batch.mask()
        rows = Rows(None if mask is None else mask[:, None, None, :], causal=causal, rotary=self._rotary(at))
        everywhere = self.config.asks_everywhere
        seen: list[Tensor] | None = [] if maps else None
        x = self.embeddings(batch.ids, at, batch.segments, batch.langs)
        layers = self._climb(x, rows, self._near(rows, at, width), rows, None if everywhere else only, seen)
        if everywhere and only is not None:
            layers = (*layers[:-1], take(layers[-1], only))
        return Encoded(batch, layers, only, tuple(seen or ()))

    def go_on(self, batch: Batch, state: State, maps: bool = False) -> Encoded:
        """The tokens of `batch.ids`, which may be padded at their end, after those of `state`: a decoder at work."""
        assert self.config.causal, "who looks ahead cannot go on"
        size, width = batch.ids.shape
        real = batch.mask()
        past = state.length if state.real is None else state.real.sum(1, keepdim=True)
        at = past + torch.arange(width, device=batch.ids.device)[None, :]
        if self.longest is not None and state.length + width > self.longest:
            if int((past + batch.lengths[:, None]).max()) > self.longest:
                raise SesameError(f"more than {self.longest} tokens do not fit: this model was built for so many")
            at = at.clamp(max=self.longest - 1)  # padding alone stands beyond
        seen = past_and_present(state, real, size, width, batch.ids.device)
        rows = Rows(before(state.length, width, seen, at.device), rotary=self._rotary(at))
        layers = [self.embeddings(batch.ids, at, batch.segments, batch.langs)]
        kept = []
        for number, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            x, cache = block.go_on(layers[-1], state.layers[number] if state.layers else None, rows)
            layers.append(x)
            kept.append(cache)
        layers[-1] = self.final_norm(layers[-1])
        return Encoded(batch, tuple(layers), state=State(tuple(kept), seen))

    def _unpadded(self, batch: Batch, real: Real, only: Tensor | None) -> Encoded:
        """Leave the padding at the door: rows end to end (T, D) inside, padded again at the exit."""

        def enter(x: Tensor) -> Tensor:
            return F.pad(x.flatten(), (0, 1))[real.at]

        at = real.at % batch.ids.shape[1] if batch.positions is None else enter(batch.positions)
        segments = None if batch.segments is None else enter(batch.segments)
        langs = None if batch.langs is None else enter(batch.langs)
        x = self.embeddings(enter(batch.ids), at, segments, langs)
        ends = EndToEnd(real.offsets, real.longest, real.offsets, real.longest, self.config.causal)
        rows = Rows(ends=ends, rotary=self._rotary(at))
        near = self._near(rows, at, real.longest)
        if only is None:
            return Encoded(batch, Padded(self._climb(x, rows, near, rows, None, None), real, batch.ids.shape))
        size, most = only.shape
        places = (real.offsets[:size, None] + only).flatten()
        if self.config.asks_everywhere:
            layers = self._climb(x, rows, near, rows, None, None)
            return Encoded(batch, (layers[-1][places].view(size, most, -1),), only)
        numbers = torch.arange(len(real.offsets), dtype=torch.int32, device=x.device)
        asking = numbers.clamp(max=size) * most  # the fill asks nothing
        last = replace(rows, ends=EndToEnd(real.offsets, real.longest, asking, most))
        layers = self._climb(x, rows, near, last, places, None)
        return Encoded(batch, (layers[-1].view(size, most, -1),), only)

    def _climb(
        self, x: Tensor, rows: Rows, near: Rows, last: Rows, only: Tensor | None, seen: list[Tensor] | None
    ) -> tuple[Tensor, ...]:
        """All layers, from the embeddings up, local ones by `near`; the last one only at the places asked for."""
        layers, local = [x], self.config.local_layers
        for number, block in enumerate(self.blocks[:-1]):
            layers.append(block(layers[-1], near if number in local else rows, None, seen))
        last = near if self.depth - 1 in local else last
        layers.append(self.final_norm(self.blocks[-1](layers[-1], last, only, seen)))
        return tuple(layers)

    def _near(self, rows: Rows, at: Tensor, longest: int) -> Rows:
        """The same rows for layers that look at near tokens only."""
        if not self.config.local_layers:
            return rows
        same = self.config.local_base == self.config.rotary_base
        near = replace(rows, rotary=rows.rotary if same else self._rotary(at, self.config.local_base))
        if longest <= self.config.window + 1:  # everybody is near
            return near
        if rows.ends is not None:
            return replace(near, ends=replace(rows.ends, window=self.config.window))
        return replace(near, window=self.config.window)

    def _rotary(self, at: Tensor, base: float = 0.0) -> tuple[Tensor, Tensor] | None:
        if self.config.positions != "rotary":
            return None
        dtype = torch.float64 if self.token_table().dtype == torch.float64 else torch.float32
        cos, sin = rotations(at, self.width // self.config.heads, base or self.config.rotary_base, dtype)
        return cos.unsqueeze(-2), sin.unsqueeze(-2)
