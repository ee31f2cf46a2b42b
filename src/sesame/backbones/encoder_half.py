"""The encoder of an encoder-decoder by itself: states of a text, for vectors and for tasks that read.

Papers: Raffel et al. 2020 (https://arxiv.org/abs/1910.10683); Ni et al. 2022, "Sentence-T5"
(https://arxiv.org/abs/2108.08877), who find the mean of the encoder's states to be a better vector than what the decoder
says first. Any half of `encoder_decoder.py` serves: T5's (transformers calls it T5EncoderModel), BART's, mBART's, Marian's.

Unusual: its settings are those of the whole, of which the decoder's are not read. No token stands for the whole text; where
one is asked for, it is the last, which ends every source. T5 would read on without end, at a cost that grows by the square;
here it reads as many tokens at once as its settings name. Sources that were learnt from their end are read from there.
"""

from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn

from sesame.backbones.base import Backbone, Encoded
from sesame.backbones.cove import turned
from sesame.backbones.encoder_decoder import EncoderDecoder, EncoderDecoderConfig, Side, drop, enter
from sesame.data.batch import Batch
from sesame.nn.attention.multihead import take
from sesame.nn.embeddings import padded_vocab
from sesame.nn.init import bert_init
from sesame.nn.positions import half_sinusoids


@dataclass(frozen=True)
class EncoderHalfConfig(EncoderDecoderConfig):
    """Those of the whole."""

    reverse: bool = False  # texts are read from their end, ...
    front: int = 0  # ... but for so many tokens before ...
    back: int = 1  # ... and behind them


class EncoderHalf(Backbone):
    config: EncoderHalfConfig
    cls_last = True
    table: Tensor | None

    def __init__(self, config: EncoderHalfConfig) -> None:
        super().__init__()
        c, self.config, self.width, self.vocab, self.depth = config, config, config.width, config.vocab, config.depth
        self.tokens = nn.Embedding(padded_vocab(c.vocab), c.width)
        self.encoder = Side(c, False)
        table = half_sinusoids(c.max_length, c.width) if c.positions == "sinusoidal" else None
        self.register_buffer("table", table, persistent=False)
        self.apply(bert_init(c.init))
        with torch.no_grad():  # rows that no id points at are never saved: they must not count in a norm of the table
            self.tokens.weight[c.vocab :] = 0.0

    @property
    def blocks(self) -> nn.ModuleList:  # type: ignore[override]
        return self.encoder.blocks

    @property
    def longest(self) -> int | None:
        return self.config.max_length

    def groups(self) -> list[nn.Module]:
        side = self.encoder
        below = [part for part in (self.tokens, side.positions, side.norm, side.bias) if part is not None]
        return [nn.ModuleList(below), *side.blocks, side.final_norm]

    def drop(self, rate: float | None) -> None:
        drop(self, rate)

    def token_table(self) -> Tensor:
        return self.tokens.weight

    def forward(self, batch: Batch, only: Tensor | None = None, maps: bool = False) -> Encoded:
        c, side = self.config, self.encoder
        seen: list[Tensor] | None = [] if maps else None
        turn = turned(batch, c.front, c.back) if c.reverse else None
        ids = batch.ids if turn is None else batch.ids.gather(1, turn)
        layers, rows = [enter(self, side, ids, 0)], side.rows(batch)
        for block in side.blocks:
            layers.append(block(layers[-1], rows, None, seen))
        layers[-1] = side.leave(layers[-1])
        if turn is not None:
            layers = [take(layer, turn) for layer in layers]
        if only is not None:
            layers[-1] = take(layers[-1], only)
        return Encoded(batch, tuple(layers), only, tuple(seen or ()))


def half_of(model: EncoderDecoder, reverse: bool = False, front: int = 0, back: int = 1) -> EncoderHalf:
    """The encoder of a model, which keeps its weights: both are the same modules."""
    settings = {part.name: getattr(model.config, part.name) for part in fields(EncoderDecoderConfig)}
    with torch.device("meta"):  # nothing is allocated, for nothing of it is kept
        found = EncoderHalf(EncoderHalfConfig(**settings, reverse=reverse, front=front, back=back))
    found.tokens, found.encoder, found.table = model.tokens, model.encoder, model.table
    return found
