"""The Transformer encoder: BERT and all who look like it.

One constructor composes named bricks; what distinguishes BERT, ALBERT or a modern encoder is in `EncoderConfig`.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from sesame.backbones.base import Backbone, Encoded
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.nn.attention.multihead import Rows, SelfAttention
from sesame.nn.block import Block
from sesame.nn.embeddings import Embeddings, positions_of
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
    positions: Literal["learned", "sinusoidal", "rotary"] = "learned"
    order: Literal["post", "pre", "branch"] = "post"
    activation: Literal["relu", "gelu", "gelu_tanh", "geglu"] = "gelu"
    bias: bool = True
    embedding_width: int = 0  # 0: width (ALBERT: 128)
    share: Literal["none", "all", "attention", "feedforward"] = "none"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    eps: float = 1e-12
    rotary_base: float = 10000.0
    init: float = 0.02  # standard deviation of the weights at the start

    def __post_init__(self) -> None:
        for name in ("vocab", "width", "depth", "heads", "max_length"):
            if getattr(self, name) < 1:
                raise SesameError(f"backbone.{name} is {getattr(self, name)}; it must be at least 1")
        if not (0 <= self.dropout < 1 and 0 <= self.attention_dropout < 1 and self.eps > 0 and self.init > 0):
            raise SesameError("backbone: dropouts lie from 0 to below 1, eps and init above 0")
        if self.depth > 1000:
            raise SesameError(f"backbone.depth is {self.depth}; a thousand layers are the most")
        if self.width % self.heads:
            raise SesameError(f"backbone.width {self.width} does not divide by {self.heads} heads; change one of them")
        if self.positions == "rotary" and (self.width // self.heads) % 2:
            raise SesameError("rotary positions turn pairs: width / heads must be even")


class Encoder(Backbone):
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
            norm=config.order != "pre",  # pre-LN norms at the end of the stack instead
            eps=config.eps,
            dropout=config.dropout,
        )
        self.blocks = nn.ModuleList(self._blocks(config))
        self.final_norm = (
            nn.LayerNorm(config.width, eps=config.eps, bias=config.bias) if config.order == "pre" else nn.Identity()
        )
        self.apply(bert_init(config.init))

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
        return [
            Block(one_attention or attention(), one_feedforward or feedforward(), c.width, c.order, c.eps)
            for _ in range(c.depth)
        ]

    def groups(self) -> list[nn.Module]:
        return [self.embeddings, *dict.fromkeys(self.blocks), self.final_norm]

    def token_table(self) -> Tensor:
        return self.embeddings.tokens.weight

    def forward(self, batch: Batch, only: Tensor | None = None, maps: bool = False) -> Encoded:
        width = batch.ids.shape[-1]
        longest = batch.longest if batch.packed else width
        if longest > self.config.max_length and self.config.positions != "rotary":
            raise SesameError(f"{longest} tokens do not fit: this model was built for {self.config.max_length}")
        at = positions_of(batch.lengths, batch.offsets, width)
        x = self.embeddings(batch.ids, at, batch.segments)
        rows = self._rows(batch, at, x)
        if batch.packed:
            only = None  # rows of several lengths stand in one: everything is computed
        layers = [x]
        seen: list[Tensor] | None = [] if maps else None
        for number, block in enumerate(self.blocks):
            last = number == len(self.blocks) - 1
            layers.append(block(layers[-1], rows, only if last else None, seen))
        layers[-1] = self.final_norm(layers[-1])
        return Encoded(batch, tuple(layers), only, tuple(seen or ()))

    def _rows(self, batch: Batch, at: Tensor, x: Tensor) -> Rows:
        mask = batch.mask()
        rotary = None
        if self.config.positions == "rotary":
            dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
            cos, sin = rotations(at, self.width // self.config.heads, self.config.rotary_base, dtype)
            rotary = (cos.unsqueeze(-2), sin.unsqueeze(-2))
        return Rows(None if mask is None else mask[:, None, None, :], batch.offsets, batch.longest, rotary)
