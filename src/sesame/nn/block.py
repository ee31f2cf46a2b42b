"""One Transformer block: attention, then feed-forward, each with a residual and a norm.

Three orders live in the literature: post LN(x + f(x)) (Vaswani et al. 2017, BERT), pre x + f(LN(x)) (GPT-2; trains at
higher rates), branch x + LN(f(x)). A decoder that answers an encoder has a third part between the two: `CrossBlock`.
"""

from torch import Tensor, nn

from sesame.nn.add_norm import add_norm
from sesame.nn.attention.cross import CrossAttention
from sesame.nn.attention.multihead import Rows, SelfAttention, take
from sesame.nn.feedforward import FeedForward
from sesame.nn.norms import make_norm


class Block(nn.Module):
    """Shape: (B, L, D) -> (B, L, D); with `only` (B, K) -> (B, K, D); or (T, D) without padding."""

    def __init__(
        self,
        attention: SelfAttention,
        feedforward: FeedForward,
        width: int,
        order: str,
        eps: float,
        norm: str = "layer",
    ) -> None:
        super().__init__()
        bias = attention.out.bias is not None
        self.attention, self.feedforward, self.order = attention, feedforward, order
        self.attention_norm: nn.LayerNorm | nn.RMSNorm | nn.Identity = make_norm(norm, width, eps, bias)
        self.feedforward_norm = make_norm(norm, width, eps, bias)

    def forward(self, x: Tensor, rows: Rows, only: Tensor | None = None, maps: list[Tensor] | None = None) -> Tensor:
        kept = x if only is None else take(x, only)
        if self.order == "pre":
            kept = kept + self.attention(self.attention_norm(x), rows, only, maps)
            return kept + self.feedforward(self.feedforward_norm(kept))  # type: ignore[no-any-return]
        if self.order == "branch":
            kept = kept + self.attention_norm(self.attention(x, rows, only, maps))
            return kept + self.feedforward_norm(self.feedforward(kept))  # type: ignore[no-any-return]
        attention, feedforward = self.attention, self.feedforward
        heads = attention.heads_of(x, rows, only, maps)
        kept = add_norm(attention.out, heads, kept, attention.dropout.now(), self.attention_norm)
        return add_norm(
            feedforward.down, feedforward.inner(kept), kept, feedforward.dropout.now(), self.feedforward_norm
        )

    def go_on(self, x: Tensor, past: Tensor | None, rows: Rows) -> tuple[Tensor, Tensor]:
        """For tokens that follow those of `past`, without dropout: see `SelfAttention.go_on`."""
        found, kept = self.attention.go_on(self.attention_norm(x) if self.order == "pre" else x, past, rows)
        x = _join(x, found, self.attention_norm, self.order)
        found = self.feedforward(self.feedforward_norm(x) if self.order == "pre" else x)
        return _join(x, found, self.feedforward_norm, self.order), kept


class CrossBlock(Block):
    """A block that also looks at a source: self-attention, attention to the source, feed-forward.

    Shape: x (B, L, D), source (S, M, 2 H d) as its own `cross.read` gives it -> (B, L, D).
    """

    def __init__(
        self,
        attention: SelfAttention,
        cross: CrossAttention,
        feedforward: FeedForward,
        width: int,
        order: str,
        eps: float,
        norm: str = "layer",
    ) -> None:
        super().__init__(attention, feedforward, width, order, eps, norm)
        self.cross = cross
        self.cross_norm = make_norm(norm, width, eps, cross.out.bias is not None)

    def answer(
        self, x: Tensor, rows: Rows, source: Tensor, mask: Tensor | None, maps: list[Tensor] | None = None
    ) -> Tensor:
        """All tokens of the answer at once, in training."""
        attention, cross, feedforward = self.attention, self.cross, self.feedforward
        if self.order == "pre":
            x = x + attention(self.attention_norm(x), rows)
            x = x + cross(self.cross_norm(x), source, mask, maps)
            return x + feedforward(self.feedforward_norm(x))  # type: ignore[no-any-return]
        if self.order == "branch":
            x = x + self.attention_norm(attention(x, rows))
            x = x + self.cross_norm(cross(x, source, mask, maps))
            return x + self.feedforward_norm(feedforward(x))  # type: ignore[no-any-return]
        x = add_norm(attention.out, attention.heads_of(x, rows), x, attention.dropout.now(), self.attention_norm)
        heads = cross.heads_of(x, source, mask, maps)
        x = add_norm(cross.out, heads, x, cross.dropout.now(), self.cross_norm)
        return add_norm(feedforward.down, feedforward.inner(x), x, feedforward.dropout.now(), self.feedforward_norm)

    def answer_on(
        self,
        x: Tensor,
        past: Tensor | None,
        rows: Rows,
        source: Tensor,
        mask: Tensor | None,
        maps: list[Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Tokens that follow those of `past`, without dropout."""
        pre = self.order == "pre"
        found, kept = self.attention.go_on(self.attention_norm(x) if pre else x, past, rows)
        x = _join(x, found, self.attention_norm, self.order)
        x = _join(x, self.cross(self.cross_norm(x) if pre else x, source, mask, maps), self.cross_norm, self.order)
        found = self.feedforward(self.feedforward_norm(x) if pre else x)
        return _join(x, found, self.feedforward_norm, self.order), kept


def _join(x: Tensor, found: Tensor, norm: nn.Module, order: str) -> Tensor:
    """The residual sum, with the norm where the order has it behind."""
    if order == "pre":
        return x + found
    return x + norm(found) if order == "branch" else norm(x + found)  # type: ignore[no-any-return]
