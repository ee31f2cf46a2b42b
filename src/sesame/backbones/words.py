"""Word vectors read by a bidirectional LSTM: what a tagger was before models were pre-trained.

Papers: Huang, Xu & Yu 2015 (https://arxiv.org/abs/1508.01991); Lample et al. 2016 (https://arxiv.org/abs/1603.01360).
    x_t = table[word t];   h_t = [LSTM forward(x)_t ; LSTM backward(x)_t], a layer above the other
The table is the place for static vectors (`data/vectors.py`): frozen, so that words which training never saw stay comparable
with those it saw, or tuned with the rest.

Unusual: layer 0 is the word vectors with zeros behind them, for all layers of a backbone have one width.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sesame.backbones.base import Backbone, Encoded
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.nn.attention.multihead import take
from sesame.nn.dropout import Dropout
from sesame.nn.embeddings import padded_vocab
from sesame.nn.recurrent import RecurrentStack


@dataclass(frozen=True)
class WordsConfig:
    vocab: int
    width: int  # of a state: both directions beside each other
    depth: int = 1
    word_width: int = 0  # of a word vector; 0: width
    frozen: bool = False  # the word vectors do not train
    cell: Literal["lstm", "gru"] = "lstm"
    dropout: float = 0.5  # Lample et al. 2016: on what enters and leaves the layers, one mask a sentence
    max_length: int = 512
    init: float = 0.1  # word vectors start uniform within ± this, if they are not given

    @property
    def words(self) -> int:
        return self.word_width or self.width

    def __post_init__(self) -> None:
        if min(self.vocab, self.width, self.depth, self.max_length) < 1 or self.width % 2:
            raise SesameError("backbone: vocab, width, depth and max_length must be at least 1, width an even number")
        if not 0 < self.words <= self.width:
            raise SesameError(f"backbone.word_width is {self.word_width}; it lies from 1 to width, {self.width}")
        if not 0 <= self.dropout < 1 or self.init <= 0:
            raise SesameError("backbone: dropout lies from 0 to below 1, init above 0")


class Words(Backbone):
    config: WordsConfig

    def __init__(self, config: WordsConfig) -> None:
        super().__init__()
        c, self.config = config, config
        self.width, self.vocab, self.depth = c.width, c.vocab, c.depth
        self.tokens = nn.Embedding(padded_vocab(c.vocab), c.words)
        drops = (c.dropout, c.dropout, c.dropout)
        self.stack = RecurrentStack(c.cell, c.words, [c.width // 2] * c.depth, bidirectional=True, dropouts=drops)
        with torch.no_grad():
            nn.init.uniform_(self.tokens.weight, -c.init, c.init)
            self.tokens.weight[c.vocab :] = 0.0
            for name, weight in self.stack.named_parameters():
                if "weight_hh" in name:
                    for part in weight.chunk(4 if c.cell == "lstm" else 3):
                        nn.init.orthogonal_(part)
                elif weight.dim() > 1:
                    nn.init.xavier_uniform_(weight)
                else:
                    nn.init.zeros_(weight)
        self.tokens.weight.requires_grad_(not c.frozen)

    @property
    def blocks(self) -> list[nn.Module]:  # type: ignore[override]
        return list(self.stack.layers)

    @property
    def longest(self) -> int | None:
        return self.config.max_length

    @property
    def segment_kinds(self) -> int:
        return 0

    def groups(self) -> list[nn.Module]:
        """Without frozen vectors, which nobody may open."""
        return list(self.stack.layers) if self.config.frozen else [self.tokens, *self.stack.layers]

    def drop(self, rate: float | None) -> None:
        rate = self.config.dropout if rate is None else rate
        self.stack.dropouts = (rate, rate, rate)
        for module in self.modules():
            if isinstance(module, Dropout):
                module.rate = rate

    def token_table(self) -> Tensor:
        return self.tokens.weight

    def forward(self, batch: Batch, only: Tensor | None = None, maps: bool = False) -> Encoded:
        words: Tensor = self.tokens(batch.ids)
        walked = self.stack(words, None if batch.full else batch.lengths)
        layers = [F.pad(words, (0, self.width - words.shape[-1])), *walked.layers[:-1]]
        return Encoded(batch, [*layers, walked.top if only is None else take(walked.top, only)], only)
