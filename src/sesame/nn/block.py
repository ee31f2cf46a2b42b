"""One Transformer block: attention, then feed-forward, each with a residual and a norm.

Three orders live in the literature: post LN(x + f(x)) (Vaswani et al. 2017, BERT), pre x + f(LN(x)) (GPT-2; trains at
higher rates), branch x + LN(f(x)).
"""

from torch import Tensor, nn

from sesame.nn.add_norm import add_norm
from sesame.nn.attention.multihead import Rows, SelfAttention, take
from sesame.nn.feedforward import FeedForward

ORDERS = ("post", "pre", "branch")


class Block(nn.Module):
    """Shape: (B, L, D) -> (B, L, D); with `only` (B, K) -> (B, K, D); or (T, D) without padding."""

    def __init__(self, attention: SelfAttention, feedforward: FeedForward, width: int, order: str, eps: float) -> None:
        super().__init__()
        bias = attention.out.bias is not None
        self.attention, self.feedforward, self.order = attention, feedforward, order
        self.attention_norm: nn.LayerNorm | nn.Identity = nn.LayerNorm(width, eps=eps, bias=bias)
        self.feedforward_norm = nn.LayerNorm(width, eps=eps, bias=bias)

    def forward(self, x: Tensor, rows: Rows, only: Tensor | None = None, maps: list[Tensor] | None = None) -> Tensor:
        kept = x if only is None else take(x, only)
        if self.order == "pre":
            kept = kept + self.attention(self.attention_norm(x), rows, only, maps)
            return kept + self.feedforward(self.feedforward_norm(kept))  # type: ignore[no-any-return]
        if self.order == "branch":
            kept = kept + self.attention_norm(self.attention(x, rows, only, maps))
            return kept + self.feedforward_norm(self.feedforward(kept))  # type: ignore[no-any-return]
        attention, feedforward = self.attention, self.feedforward
        assert isinstance(self.attention_norm, nn.LayerNorm)
        heads = attention.heads_of(x, rows, only, maps)
        kept = add_norm(attention.out, heads, kept, attention.dropout.now(), self.attention_norm)
        return add_norm(
            feedforward.down, feedforward.inner(kept), kept, feedforward.dropout.now(), self.feedforward_norm
        )
