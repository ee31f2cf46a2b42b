"""The encoder of skip-thought: one vector for a sentence, a GRU's last state.

Paper: Kiros et al. 2015, "Skip-Thought Vectors" (https://arxiv.org/abs/1506.06726). What it learns from: the sentences around
(`objectives/skip_thought.py`).

    uni   h = →h_L
    bi    h = [→h_L ; ←h_1]         `bidirectional`, each direction with half the width

Unusual: the vector of the sentence stands at its last token, where `cls` pooling finds it; in both directions the state there
would else have seen one token only backward. The paper's combine-skip is a model of each kind, their vectors side by side.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from sesame.backbones.base import Backbone, Encoded, check_depth
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.nn.attention.multihead import take
from sesame.nn.embeddings import padded_vocab
from sesame.nn.recurrent import RecurrentStack


@dataclass(frozen=True)
class SkipThoughtConfig:
    vocab: int
    width: int = 620  # of token vectors
    inner: int = 2400  # of the sentence vector
    depth: int = 1
    cell: Literal["lstm", "gru"] = "gru"
    bidirectional: bool = False
    dropout: float = 0.0
    init: float = 0.1  # of the table: uniform within ± this

    def __post_init__(self) -> None:
        if min(self.vocab, self.width, self.inner, self.depth) < 1 or (self.bidirectional and self.inner % 2):
            raise SesameError(
                "backbone: vocab, width, inner and depth must be at least 1; inner even for two directions"
            )
        check_depth(self.depth)
        if not 0 <= self.dropout < 1 or self.init <= 0:
            raise SesameError("backbone: dropout lies from 0 to below 1, init above 0")

    @property
    def side(self) -> int:
        """Numbers of one direction."""
        return self.inner // 2 if self.bidirectional else self.inner

    @property
    def inputs(self) -> list[int]:
        """What each layer reads."""
        return [self.width, *[self.inner] * (self.depth - 1)]

    @property
    def gates(self) -> int:
        return 4 if self.cell == "lstm" else 3


class SkipThought(Backbone):
    config: SkipThoughtConfig
    compiles = False
    cls_last = True
    pooled = "cls"

    def __init__(self, config: SkipThoughtConfig) -> None:
        super().__init__()
        c, self.config, self.width, self.vocab = config, config, config.inner, config.vocab
        self.depth = c.depth - 1  # the first GRU stands where others have their embeddings
        self.tokens = nn.Embedding(padded_vocab(c.vocab), c.width)
        nn.init.uniform_(self.tokens.weight, -c.init, c.init)
        self.encoder = RecurrentStack(
            c.cell, c.width, [c.side] * c.depth, bidirectional=c.bidirectional, dropouts=(c.dropout, c.dropout, 0.0)
        )
        start_recurrent(self.encoder)

    @property
    def blocks(self) -> nn.ModuleList:  # type: ignore[override]
        return self.encoder.layers

    def groups(self) -> list[nn.Module]:
        return [self.tokens, *self.encoder.layers]

    def drop(self, rate: float | None) -> None:
        rate = self.config.dropout if rate is None else rate
        self.encoder.dropouts = (rate, rate, 0.0)

    def token_table(self) -> Tensor:
        return self.tokens.weight

    def forward(self, batch: Batch, only: Tensor | None = None, maps: bool = False) -> Encoded:
        walked = self.encoder(self.tokens(batch.ids), None if batch.full else batch.lengths)
        last = (batch.lengths - 1)[:, None, None].expand(-1, 1, self.width)
        layers = [
            states.scatter(1, last, memory[0].flatten(1)[:, None].to(states.dtype))
            for states, memory in zip(walked.layers, walked.memory, strict=True)
        ]
        return Encoded(batch, layers if only is None else [*layers[:-1], take(layers[-1], only)], only)


@torch.no_grad()
def start_recurrent(stack: RecurrentStack) -> None:
    """The paper's start: orthogonal from state to state; else uniform ±0.1, biases 0."""
    for name, weight in stack.named_parameters():
        if "weight_hh" in name:
            for part in weight.chunk(weight.shape[0] // weight.shape[1]):
                nn.init.orthogonal_(part)
        elif weight.ndim > 1:
            nn.init.uniform_(weight, -0.1, 0.1)
        else:
            nn.init.zeros_(weight)
