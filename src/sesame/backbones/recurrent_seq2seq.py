"""Recurrent encoder-decoders: an RNN reads a source, another one answers, with or without attention.

Papers: Sutskever, Vinyals & Le 2014 (https://arxiv.org/abs/1409.3215); Cho et al. 2014 (https://arxiv.org/abs/1406.1078);
Bahdanau, Cho & Bengio 2015 (https://arxiv.org/abs/1409.0473); Luong, Pham & Manning 2015 (https://arxiv.org/abs/1508.04025).
What distinguishes them is in `RecurrentSeq2SeqConfig`; how a step goes is in `recurrent_decoder.py`. It stands where the
Transformer stands: the same objective, search, commands and checkpoint.

Unusual: source and answer share one token table, since tokenizers are joint here; the papers have one for each language.
A state between calls is a `State` like a Transformer's: its first layer has no width, and counts the steps by its length.
"""

from dataclasses import dataclass
from itertools import chain
from typing import Literal

import torch
from torch import Tensor, nn

from sesame.backbones.base import Backbone, Encoded, Looked, State, check_depth, outputs_of
from sesame.backbones.recurrent_decoder import Carried, RecurrentDecoder, Told
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.nn.attention.looking import Source
from sesame.nn.attention.multihead import take
from sesame.nn.dropout import Dropout
from sesame.nn.embeddings import padded_vocab
from sesame.nn.recurrent import Memory, RecurrentStack


@dataclass(frozen=True)
class RecurrentSeq2SeqConfig:
    vocab: int
    width: int  # of token vectors, and of what the output layer reads
    depth: int  # of the encoder, and of the decoder
    inner: int = 0  # numbers of a state, in each direction; 0: width
    cell: Literal["lstm", "gru"] = "lstm"
    bidirectional: bool = False  # the encoder reads from both ends
    start: Literal["copy", "tanh"] = "copy"  # the decoder's first state: the encoder's last, or tanh(W of it)
    context: Literal["first", "all"] = "first"  # without attention: the source enters the first state, or all steps too
    attention: Literal["none", "global", "local-m", "local-p", "hard"] = "none"
    score: Literal["dot", "general", "additive", "scaled", "cosine"] = "general"
    looks: Literal["before", "after"] = "after"  # each step of the decoder
    window: int = 10  # places to each side that local attention sees
    feed: bool = False  # a step also reads what the last one said to the output layer (Luong: input feeding)
    coverage: bool = False  # attention knows where it has looked, and pays for looking there again (See et al. 2017)
    readout: Literal["state", "tanh", "maxout"] = "tanh"  # what the output layer reads
    readout_before: bool = False  # with looks = "before": it reads the state that looked, not the one after
    residual: bool = False
    tied: bool = False  # the output layer is the token table
    dropout: float = 0.0  # on what goes up, not on what goes on in time (Zaremba et al. 2014)
    init: float = 0.0  # weights start uniform within ± this; 0: ± inner^-0.5
    orthogonal: bool = False  # instead: orthogonal from state to state, else normal with deviation `init`; biases 0

    @property
    def state(self) -> int:
        return self.inner or self.width

    @property
    def values(self) -> int:
        """Numbers of an encoder's state."""
        return self.state * (2 if self.bidirectional else 1)

    def __post_init__(self) -> None:
        if min(self.vocab, self.width, self.depth) < 1 or self.inner < 0 or self.window < 1:
            raise SesameError("backbone: vocab, width, depth and window must be at least 1, inner not below 0")
        check_depth(self.depth)
        if not 0 <= self.dropout < 1 or self.init < 0 or (self.orthogonal and self.init == 0):
            raise SesameError("backbone: dropout lies from 0 to below 1, init is not below 0, with orthogonal above it")
        if self.bidirectional and self.start == "copy":
            raise SesameError('backbone.bidirectional needs start = "tanh": two last states do not fit one first state')
        if self.attention == "none" and (self.feed or self.coverage):
            raise SesameError('backbone.feed and backbone.coverage need an attention; set it, such as "global"')
        if self.coverage and self.score != "additive":
            raise SesameError('backbone.coverage is part of the additive score; set backbone.score = "additive"')
        if self.feed and self.looks == "before":
            raise SesameError('backbone.feed is for looks = "after": who looks before feeds the context anyway')
        if self.readout_before and (self.attention == "none" or self.looks == "after"):
            raise SesameError('backbone.readout_before needs an attention with looks = "before"; leave it out')
        if self.readout == "state" and (self.state != self.width or self.attention != "none" or self.context == "all"):
            raise SesameError(
                'backbone.readout = "state" needs inner = width, no attention and context = "first"; take "tanh"'
            )


class RecurrentSeq2Seq(Backbone):
    config: RecurrentSeq2SeqConfig
    answers = True
    compiles = False

    def __init__(self, config: RecurrentSeq2SeqConfig) -> None:
        super().__init__()
        c, self.config, self.width, self.vocab = config, config, config.width, config.vocab
        self.depth = 2 * c.depth
        self.tokens = nn.Embedding(padded_vocab(c.vocab), c.width)
        drops = (c.dropout, c.dropout, c.dropout)
        self.encoder = RecurrentStack(
            c.cell, c.width, [c.state] * c.depth, bidirectional=c.bidirectional, residual=c.residual, dropouts=drops,
            variational=False,
        )  # fmt: skip
        kinds = 2 if c.cell == "lstm" else 1
        starts = c.depth * kinds if c.start == "tanh" else 0
        self.starts = nn.ModuleList(nn.Linear(c.values, c.state) for _ in range(starts))
        self.decoder = RecurrentDecoder(c)
        self._start_weights()

    @torch.no_grad()
    def _start_weights(self) -> None:
        c = self.config
        most = c.init or c.state**-0.5
        for name, weight in self.named_parameters():
            if name.endswith("sharpness"):
                continue
            if not c.orthogonal:
                nn.init.uniform_(weight, -most, most)
            elif "weight_hh" in name:
                for part in weight.chunk(4 if c.cell == "lstm" else 3):
                    nn.init.orthogonal_(part)
            elif weight.dim() > 1:
                nn.init.normal_(weight, std=c.init)
            else:
                nn.init.zeros_(weight)
        self.tokens.weight[c.vocab :] = 0.0  # rows that no id points at are never saved

    @property
    def blocks(self) -> list[nn.Module]:  # type: ignore[override]
        return [*self.encoder.layers, *self.decoder.stack.layers]

    def groups(self) -> list[nn.Module]:
        ends = [module for module in (self.decoder.looking, self.decoder.out) if module is not None]
        return [self.tokens, *self.encoder.layers, self.starts, *self.decoder.stack.layers, *ends]

    def drop(self, rate: float | None) -> None:
        rate = self.config.dropout if rate is None else rate
        for module in self.modules():
            if isinstance(module, RecurrentStack):
                module.dropouts = (rate, rate, rate)
            elif isinstance(module, Dropout):
                module.rate = rate

    def token_table(self) -> Tensor:
        return self.tokens.weight

    # ---- both halves -----------------------------------------------------------------------------------------------

    def forward(self, batch: Batch, only: Tensor | None = None, maps: bool = False) -> Encoded:
        """What the output layer reads at all places of `batch.outputs`; the one map is the decoder's looks (B, 1, K, L)."""
        tokens = self.tokens(outputs_of(batch))
        source, last, memory = self.read(batch)
        told: Told = self.decoder(tokens, self.decoder.begin(memory, source), source, last)
        hidden = told.hidden if only is None else take(told.hidden, only)
        seen = _maps(told) if maps else ()
        return Encoded(batch, (tokens, hidden), only, seen, looked=Looked(told.chosen, told.repeated))

    def read(self, batch: Batch) -> tuple[Source, Tensor, Memory]:
        """The source, ready to be looked at; its last state (B, values); the decoder's first memory."""
        walked = self.encoder(self.tokens(batch.ids), None if batch.full else batch.lengths)
        last = walked.memory[-1][0].flatten(1)
        memory: Memory = walked.memory
        if self.config.start == "tanh":
            memory = self._first(memory)
        if self.decoder.looking is None:
            return Source(last[:, None], last[:, None], None), last, memory
        return self.decoder.looking.read(walked.top, batch.mask()), last, memory

    def _first(self, memory: Memory) -> Memory:
        """hidden = tanh(W h), cell = W c: Bahdanau's first state, for all layers and both kinds of cells."""
        parts = [part.flatten(1) for part in chain(*memory)]
        made = [start(part)[:, None] for start, part in zip(self.starts, parts, strict=True)]
        kinds = len(memory[0])
        return tuple((torch.tanh(made[at]), *made[at + 1 : at + kinds]) for at in range(0, len(made), kinds))

    def go_on(self, batch: Batch, state: State, maps: bool = False) -> Encoded:
        """The tokens of `batch.outputs` after those of `state`; a state without a source first reads `batch.ids`."""
        tokens = self.tokens(outputs_of(batch))
        if state.source:
            values, keys, last = state.source
            source, last, carried = Source(values, keys, state.source_real), last[:, 0], self._carried(state)
        else:
            source, last, memory = self.read(batch)
            carried = self.decoder.begin(memory, source)
        told = self.decoder.one_by_one(tokens, carried, source, last)
        parts = (source.values, source.keys, last[:, None])
        after = State(_layers(told.carried), source=parts, source_real=source.real)
        return Encoded(batch, (tokens, told.hidden), maps=_maps(told) if maps else (), state=after)

    def _carried(self, state: State) -> Carried:
        """The way back from `_layers`."""
        rest = list(state.layers[1:])
        covered = rest.pop()[:, 0] if self.config.coverage else None
        fed = rest.pop()[:, 0] if self.config.feed else None
        kinds = len(rest) // self.config.depth
        memory = tuple(tuple(rest[at : at + kinds]) for at in range(0, len(rest), kinds))
        return Carried(state.length, memory, fed, covered)


def _layers(carried: Carried) -> tuple[Tensor, ...]:
    """As a `State` keeps them, rows first: a counter of steps, each layer's memory, what is fed, what is covered."""
    parts = list(chain(*carried.memory))
    counter = parts[0].new_empty(parts[0].shape[0], carried.step, 0)
    more = [part[:, None] for part in (carried.fed, carried.covered) if part is not None]
    return (counter, *parts, *more)


def _maps(told: Told) -> tuple[Tensor, ...]:
    return () if told.weights is None else (told.weights[:, None],)
