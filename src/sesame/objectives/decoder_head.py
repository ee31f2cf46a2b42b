"""The output layer of decoders: tokens straight from the (tied) token table, as GPT, T5, BART and Marian have it."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sesame.data.batch import IGNORE
from sesame.nn.cross_entropy import linear_cross_entropy
from sesame.nn.embeddings import padded_vocab
from sesame.nn.init import truncated_normal_

Bias = Literal["none", "fixed", "trained"]


class DecoderHead(nn.Module):
    """Tokens straight from the (tied) token table. Shape: (N, D) -> (N, V padded); the padding columns hold -inf.

    `scale` multiplies the states first: T5 1.0, whose table is tied and starts large, takes D^-0.5. A `fixed` bias (BART,
    Marian: `final_logits_bias`) is kept with the weights but never trained.
    """

    bias: Tensor

    def __init__(self, width: int, vocab: int, tied: bool = True, scale: float = 1.0, bias: Bias = "none") -> None:
        super().__init__()
        self.vocab, self.scale = vocab, scale
        self.table = None if tied else nn.Parameter(torch.empty(padded_vocab(vocab), width))
        if self.table is not None:
            truncated_normal_(self.table, width**-0.5)  # logits of size 1 from normed states
        if bias == "trained":
            self.bias = nn.Parameter(torch.zeros(vocab))
        else:
            self.register_buffer("bias", torch.zeros(vocab), persistent=bias == "fixed")

    def forward(self, hidden: Tensor, table: Tensor) -> Tensor:
        return F.linear(*self._last(hidden, table))

    def loss(self, hidden: Tensor, table: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        """The summed loss, IGNORE left out, without the logits. Shape: (N, D), (V padded, D), (N,) -> scalar."""
        x, used, bias = self._last(hidden, table)
        total = linear_cross_entropy(x, used, bias, labels)
        return total if smoothing == 0 else total + smoothing * self._margin(x, used, labels)

    def _margin(self, x: Tensor, table: Tensor, labels: Tensor) -> Tensor:
        """How far the wanted logits stand above the mean of all, summed."""
        exact = torch.promote_types(x.dtype, torch.float32)
        at = labels.clamp(min=0)
        rows = F.embedding(at, table).to(exact) - table[: self.vocab].mean(0, dtype=exact)
        bias = self.bias.to(exact)
        margins = (x.to(exact) * rows).sum(1) + bias[at] - bias.mean()
        return torch.where(labels != IGNORE, margins, 0.0).sum()

    def _last(self, hidden: Tensor, table: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Input, weight and bias of the last product."""
        used = table if self.table is None else self.table
        x = hidden if self.scale == 1 else hidden * self.scale
        bias = self.bias.to(x.dtype)
        return x, used, F.pad(bias, (0, used.shape[0] - self.vocab), value=-torch.inf)
