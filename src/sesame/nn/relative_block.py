"""A post-norm block with relative attention: LN(x + attention), then LN(x + feed-forward). Transformer-XL and XLNet.

Unlike in `block.py` the keys come from outside: memory stands in front of them, and two streams may share them.
"""

from torch import Tensor, nn

from sesame.nn.add_norm import add_norm
from sesame.nn.attention.relative import Keys, RelativeAttention, Sight
from sesame.nn.feedforward import FeedForward


class RelativeBlock(nn.Module):
    """Shape: (B, Lq, D) -> (B, Lq, D)."""

    def __init__(self, attention: RelativeAttention, feedforward: FeedForward, width: int, eps: float) -> None:
        super().__init__()
        self.attention, self.feedforward = attention, feedforward
        self.attention_norm = nn.LayerNorm(width, eps=eps)
        self.feedforward_norm = nn.LayerNorm(width, eps=eps)

    def forward(self, x: Tensor, keys: Keys, sight: Sight, maps: list[Tensor] | None = None) -> Tensor:
        attention, feedforward = self.attention, self.feedforward
        heads = attention(x, keys, sight, maps)
        x = add_norm(attention.out, heads, x, attention.dropout.now(), self.attention_norm)
        inner = feedforward.dropout(feedforward.inner(x))  # also here, in the authors' code
        return add_norm(feedforward.down, inner, x, feedforward.dropout.now(), self.feedforward_norm)
