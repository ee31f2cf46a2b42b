"""A language model of LSTMs that is regularized everywhere: AWD-LSTM (Merity, Keskar & Socher 2018,
https://arxiv.org/abs/1708.02182; code: salesforce/awd-lstm-lm).

Tokens are looked up, go through layers of LSTMs, and leave as wide as the table that is tied to the output:

    x_0 = table[ids];   x_n = LSTM_n(x_{n-1}),  widths D, C, ..., C, D

Five dropouts, and none of them changes within a row:
- `word_dropout` hides whole words: all occurrences of a token in a batch, in what is read and not in what is told;
- `weight_dropout` (DropConnect) hides numbers of the hidden-to-hidden matrices, the same at all steps;
- `input_dropout`, `layer_dropout` and `dropout` fall on what enters the first layer, goes from layer to layer, and leaves
  the last one: one mask for all steps of a row (Gal & Ghahramani 2016).

The state behind the last token is handed out and in again (`State`), so that parts of a text give what one long pass gives,
but for gradients; `objectives/clm.py` adds the paper's penalties on states that are large or change much.

Unusual:
- Layers are shown (`Encoded.layers`) where they are as wide as the table; of the paper's 400-1150-1150-400 these are the
  embeddings and the last one.
- `backward`: rows are read from their end, so that the state of a token has seen it and what comes after it, and tells the
  one before (ULMFiT: Howard & Ruder 2018). Whoever asks for states need not know.
- Kernels are those of the fused LSTM (`nn/recurrent`); a compiler would write every step of a row down.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sesame.backbones.base import Backbone, Encoded, State, check_depth
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.nn.attention.multihead import take
from sesame.nn.dropout import dropout
from sesame.nn.embeddings import padded_vocab
from sesame.nn.recurrent import Memory, Recurrent, RecurrentStack, reverse

DROPOUTS = ("dropout", "input_dropout", "layer_dropout", "word_dropout", "weight_dropout")


@dataclass(frozen=True)
class LSTMConfig:
    vocab: int
    width: int = 400  # of the token table and of the last layer
    depth: int = 3
    cell: int = 1150  # of the layers below the last one
    backward: bool = False  # rows are read from their end
    dropout: float = 0.4  # of what leaves
    input_dropout: float = 0.4
    layer_dropout: float = 0.25
    word_dropout: float = 0.1
    weight_dropout: float = 0.5
    max_length: int = 512  # tokens that are read at once; nothing in the model ends there
    init: float = 0.1  # the token table starts within ± this

    def __post_init__(self) -> None:
        for name in ("vocab", "width", "depth", "cell", "max_length"):
            if getattr(self, name) < 1:
                raise SesameError(f"backbone.{name} is {getattr(self, name)}; it must be at least 1")
        check_depth(self.depth)
        if not all(0 <= getattr(self, name) < 1 for name in DROPOUTS) or self.init <= 0:
            raise SesameError("backbone: dropouts lie from 0 to below 1, init above 0")

    @property
    def causal(self) -> bool:
        """Every token sees only those before it and itself."""
        return not self.backward

    @property
    def widths(self) -> list[int]:
        """Of the layers, bottom to top."""
        return [self.cell] * (self.depth - 1) + [self.width]


class LSTM(Backbone):
    config: LSTMConfig
    compiles = False
    reads_on = True

    def __init__(self, config: LSTMConfig) -> None:
        super().__init__()
        c, self.config, self.width, self.vocab = config, config, config.width, config.vocab
        self.tokens = nn.Embedding(padded_vocab(c.vocab), c.width)
        nn.init.uniform_(self.tokens.weight, -c.init, c.init)
        with torch.no_grad():
            self.tokens.weight[c.vocab :] = 0.0  # rows that no id points at are never saved
        inputs = [c.width, *c.widths]
        stacks = [RecurrentStack("lstm", inputs[n], [width]) for n, width in enumerate(c.widths)]
        self.blocks = nn.ModuleList(stacks)
        self.shown = [n for n, width in enumerate(c.widths) if width == c.width]
        self.depth = len(self.shown)  # of the layers that tasks may read
        self.drop(None)

    @property
    def longest(self) -> int | None:
        return self.config.max_length

    def groups(self) -> list[nn.Module]:
        return [self.tokens, *self.blocks]

    def token_table(self) -> Tensor:
        return self.tokens.weight

    def drop(self, rate: float | None) -> None:
        leaving, entering, between, self.word_dropout, weights = (
            getattr(self.config, name) if rate is None else rate for name in DROPOUTS
        )
        for number, stack in enumerate(self._stacks()):
            stack.dropouts = (between if number else entering, 0.0, leaving if number == len(self.blocks) - 1 else 0.0)
            for layer in stack.layers:
                assert isinstance(layer, Recurrent)
                layer.weight_dropout = weights

    def forward(
        self, batch: Batch, only: Tensor | None = None, maps: bool = False, state: State | None = None
    ) -> Encoded:
        """With a `state` (`State()` at the beginning), or without padding, the state to go on from is in the answer."""
        if state is not None and self.config.backward:
            raise SesameError("this model reads texts from their end and cannot go on; take one that reads forward")
        lengths = None if batch.full else batch.lengths
        ids = reverse(batch.ids, lengths) if self.config.backward else batch.ids
        # Padding comes last in either direction, so what is real never depends on it: only states to go on from do.
        layers, raw, memory = self._walk(self._look_up(ids), lengths if state is not None else None, state)
        if self.config.backward:
            layers, raw = [reverse(layer, lengths) for layer in layers], reverse(raw, lengths)
        last = layers[-1] if only is None else take(layers[-1], only)
        after = None if self.config.backward or (state is None and not batch.full) else State(memory)
        return Encoded(batch, [*layers[:-1], last], only, state=after, undropped=raw)

    def go_on(self, batch: Batch, state: State, maps: bool = False) -> Encoded:
        return self(batch, state=state)  # type: ignore[no-any-return]

    def _look_up(self, ids: Tensor) -> Tensor:
        """Vectors of tokens, some tokens being 0 wherever they stand. Shape: (B, L) -> (B, L, D)."""
        x: Tensor = self.tokens(ids)
        if not self.training or self.word_dropout == 0.0:
            return x
        return x * dropout(x.new_ones(self.tokens.num_embeddings), self.word_dropout, True)[ids][..., None]

    def _walk(
        self, x: Tensor, lengths: Tensor | None, state: State | None
    ) -> tuple[list[Tensor], Tensor, tuple[Tensor, ...]]:
        """The layers that are shown, the last one before its dropout, and what is remembered: hidden, cell, hidden ..."""
        given = state.layers if state is not None else ()
        layers, after = [x], list[Tensor]()
        for number, stack in enumerate(self._stacks()):
            memory: Memory | None = ((given[2 * number], given[2 * number + 1]),) if given else None
            walked = stack(x, lengths, memory)
            x, raw = walked.top, walked.layers[-1]
            after += [part.detach() for part in walked.memory[0]]
            if number in self.shown:
                layers.append(x)
        return layers, raw, tuple(after)

    def _stacks(self) -> list[RecurrentStack]:
        return list(self.blocks)  # type: ignore[arg-type]
