"""Context vectors of a translation model: what its encoder knows of a token, joined with the token's own vector.

Paper: McCann, Bradbury, Xiong & Socher 2017, "Learned in Translation: Contextualized Word Vectors"
(https://arxiv.org/abs/1708.00107). Idea: to translate, an encoder must tell the senses of words apart; so its states serve
other tasks. With x_k the vector of token k and h_k the encoder's state:

    [x_k ; MT-LSTM(x)_k]            the paper's [GloVe(w) ; CoVe(w)]
    layer 0 = [x ; 0],  layer j = [x ; h_j]

Any encoder of `recurrent_seq2seq.py` serves (`encoder_of`): that of recipe cove, which is the paper's, or another one.

Unusual: x is the table that was trained by translating, not GloVe; the published vectors may start it. Sources that are
read from their end (Sutskever et al. 2014) are turned around on the way in, and their states on the way out.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from sesame.backbones.base import Backbone, Encoded
from sesame.backbones.recurrent_seq2seq import RecurrentSeq2Seq
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.nn.attention.multihead import take
from sesame.nn.embeddings import padded_vocab
from sesame.nn.recurrent import RecurrentStack


@dataclass(frozen=True)
class CoVeConfig:
    vocab: int
    table_width: int = 300
    inner: int = 300  # numbers of a state, in each direction
    depth: int = 2
    cell: Literal["lstm", "gru"] = "lstm"
    bidirectional: bool = True
    residual: bool = False
    reverse: bool = False  # texts are read from their end, ...
    front: int = 0  # ... but for so many tokens before ...
    back: int = 1  # ... and behind them
    dropout: float = 0.2
    init: float = 0.1

    def __post_init__(self) -> None:
        if min(self.vocab, self.table_width, self.inner, self.depth) < 1 or min(self.front, self.back) < 0:
            raise SesameError("cove: vocab, depth and widths must be at least 1, front and back not below 0")
        if not 0 <= self.dropout < 1 or self.init <= 0:
            raise SesameError("cove: dropout lies from 0 to below 1, init above 0")

    @property
    def state(self) -> int:
        return self.inner * (2 if self.bidirectional else 1)

    @property
    def products(self) -> float:
        """Multiply-adds of a token."""
        gates, inputs = 4 if self.cell == "lstm" else 3, [self.table_width, *[self.state] * (self.depth - 1)]
        return sum(gates * self.state * (read + self.inner) for read in inputs)

    @property
    def kept(self) -> float:
        """Numbers that a token keeps for the backward pass."""
        gates, inputs = 4 if self.cell == "lstm" else 3, [self.table_width, *[self.state] * (self.depth - 1)]
        return sum(read * (1 + (self.dropout > 0)) + (gates + 2) * self.state for read in inputs)


class CoVe(Backbone):
    config: CoVeConfig
    compiles = False
    cls_last = True  # no token stands for the whole text: the last one has been read behind all others

    def __init__(self, config: CoVeConfig) -> None:
        super().__init__()
        c, self.config, self.vocab, self.depth = config, config, config.vocab, config.depth
        self.width = c.table_width + c.state
        self.tokens = nn.Embedding(padded_vocab(c.vocab), c.table_width)
        nn.init.uniform_(self.tokens.weight, -c.init, c.init)
        self.encoder = RecurrentStack(
            c.cell, c.table_width, [c.inner] * c.depth, bidirectional=c.bidirectional, residual=c.residual,
            dropouts=(c.dropout, c.dropout, c.dropout), variational=False,
        )  # fmt: skip

    @property
    def blocks(self) -> nn.ModuleList:  # type: ignore[override]
        return self.encoder.layers

    def groups(self) -> list[nn.Module]:
        return [self.tokens, *self.encoder.layers]

    def drop(self, rate: float | None) -> None:
        rate = self.config.dropout if rate is None else rate
        self.encoder.dropouts = (rate, rate, rate)

    def token_table(self) -> Tensor:
        return self.tokens.weight

    def forward(self, batch: Batch, only: Tensor | None = None, maps: bool = False) -> Encoded:
        x, lengths = self.tokens(batch.ids), None if batch.full else batch.lengths
        turn = turned(batch, self.config.front, self.config.back) if self.config.reverse else None
        walked = self.encoder(x if turn is None else take(x, turn), lengths)
        states = [*walked.layers[:-1], walked.top]
        if turn is not None:
            states = [take(state, turn) for state in states]
        nothing = torch.zeros_like(states[0])
        layers = [torch.cat([x, state.to(x.dtype)], -1) for state in (nothing, *states)]
        return Encoded(batch, layers if only is None else [*layers[:-1], take(layers[-1], only)], only)


def encoder_of(model: RecurrentSeq2Seq, reverse: bool = False, front: int = 0, back: int = 1) -> CoVe:
    """The encoder of a translation model, which keeps its weights: both are the same modules."""
    c = model.config
    config = CoVeConfig(
        c.vocab, c.width, c.state, c.depth, c.cell, c.bidirectional, c.residual, reverse, front, back, c.dropout,
        c.init or c.state**-0.5,
    )  # fmt: skip
    with torch.device("meta"):  # nothing is allocated, for nothing of it is kept
        found = CoVe(config)
    found.tokens, found.encoder = model.tokens, model.encoder
    return found


def turned(batch: Batch, front: int, back: int) -> Tensor:
    """At which place each token is read if all but those at the ends come from behind; twice is not at all. (B, L)"""
    places = torch.arange(batch.ids.shape[1], device=batch.ids.device)[None, :]
    last = batch.lengths[:, None] - back - 1
    return torch.where((places >= front) & (places <= last), front + last - places, places)
