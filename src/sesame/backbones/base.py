"""What every backbone is: ids in, hidden states out.

A backbone keeps nothing between calls. Heads belong to objectives and tasks; a backbone only says its groups, bottom to
top, so that freezing, layer-wise rates and distillation work for all of them.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from sesame.data.batch import Batch
from sesame.nn.attention.multihead import take


@dataclass(frozen=True)
class Encoded:
    """Hidden states: the embeddings first, then one entry for each layer."""

    batch: Batch
    layers: tuple[Tensor, ...]  # (B, L, D) or packed (T, D) each; the last one (B, K, D) if limited to `only`
    only: Tensor | None = None  # (B, K): the places at which the last layer was computed
    maps: tuple[Tensor, ...] = ()  # (B, H, L, L) for each layer, when asked for
    kept: Tensor | None = None  # instead of layers: what a task's head reads, computed earlier by a frozen backbone

    @property
    def last(self) -> Tensor:
        return self.layers[-1]

    def take(self, at: Tensor) -> Tensor:
        """Last hidden states at positions of each row. Shape: (B, K) -> (B, K, D)."""
        if self.batch.packed:
            return self.last[self.batch.flat(at)]
        if self.only is None:
            return take(self.last, at)
        found = (at[:, :, None] == self.only[:, None, :]).int().argmax(-1)
        return take(self.last, found)


class Backbone(nn.Module):
    width: int
    vocab: int
    depth: int  # layers above the embeddings

    def groups(self) -> list[nn.Module]:
        """The modules from bottom to top."""
        raise NotImplementedError

    def forward(self, batch: Batch, only: Tensor | None = None, maps: bool = False) -> Encoded:
        """`only` limits the last layer to these places (B, K); `maps` asks for the attention maps."""
        raise NotImplementedError

    def token_table(self) -> Tensor:
        """The embedding of every token, for tied output layers. Shape: (V padded, E)."""
        raise NotImplementedError
