"""Ids to vectors: token + position + segment + language (XLM), normed (BERT), optionally through a narrow table (ALBERT).

A batch that does not say its segments is all segment 0, and so is any batch for a model that knows no other (RoBERTa); one
that does not say its languages gets none added, which is what transformers' XLM does.
"""

from torch import Tensor, nn

from sesame.nn.dropout import Dropout
from sesame.nn.positions import sinusoids


def padded_vocab(size: int) -> int:
    """Tables are kept at a multiple of 64 rows: matrix kernels run up to 1.4 times faster. No id ever points there."""
    return -(-size // 64) * 64


def lengthened(table: Tensor, seen: int) -> Tensor:
    """Rows beyond the first `seen` as copies of those: so Longformer's places began (Beltagy et al. 2020)."""
    return table[:seen].repeat(-(-len(table) // seen), 1)[: len(table)]


class Embeddings(nn.Module):
    """Shape: ids (B, L) or, unpadded, (T,) -> (B, L, D) or (T, D)."""

    table: Tensor

    def __init__(
        self,
        vocab: int,
        width: int,
        narrow: int,
        positions: str,
        max_length: int,
        segments: int,
        norm: bool,
        norm_bias: bool,
        eps: float,
        dropout: float,
        languages: int = 0,
        square: bool = False,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(padded_vocab(vocab), narrow)
        self.positions = nn.Embedding(max_length, narrow) if positions == "learned" else None
        if positions == "sinusoidal":
            self.register_buffer("table", sinusoids(max_length, narrow), persistent=False)
        self.kind = positions
        self.segments = nn.Embedding(segments, narrow) if segments else None
        self.languages = nn.Embedding(languages, narrow) if languages else None
        self.norm = nn.LayerNorm(narrow, eps=eps, bias=norm_bias) if norm else None
        self.project = nn.Linear(narrow, width) if square or narrow != width else None
        self.dropout = Dropout(dropout)

    def forward(self, ids: Tensor, at: Tensor, segments: Tensor | None, langs: Tensor | None = None) -> Tensor:
        x: Tensor = self.tokens(ids)
        if self.positions is not None:
            x = x + self.positions(at)
        elif self.kind == "sinusoidal":
            x = x + self.table[at]
        if self.segments is not None:
            one = segments is None or self.segments.num_embeddings == 1
            x = x + (self.segments.weight[0] if one else self.segments(segments))
        if self.languages is not None and langs is not None:
            x = x + self.languages(langs)
        if self.norm is not None:
            x = self.norm(x)
        x = self.dropout(x)
        return x if self.project is None else self.project(x)
