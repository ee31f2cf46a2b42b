"""Memory of earlier tokens (Dai et al. 2019, Transformer-XL): what is kept in a `State`, and what of it may be looked at."""

import torch
from torch import Tensor, nn

from sesame.backbones.base import Backbone, State
from sesame.data.batch import Batch
from sesame.nn.attention.relative import RelativeAttention
from sesame.nn.dropout import Dropout


class Remembering(Backbone):
    """What Transformer-XL and XLNet have in common: a token table, then blocks that look at distances."""

    tokens: nn.Embedding

    @property
    def longest(self) -> int | None:
        # Nothing in it ends there, but attention over a whole book would fill any memory.
        return self.config.max_length  # type: ignore[no-any-return]

    def groups(self) -> list[nn.Module]:
        return [self.tokens, *self.blocks]

    def drop(self, rate: float | None) -> None:
        for module in self.modules():
            if isinstance(module, Dropout):
                module.rate = self.config.dropout if rate is None else rate
            elif isinstance(module, RelativeAttention):
                module.rate = self.config.attention_dropout if rate is None else rate

    def token_table(self) -> Tensor:
        return self.tokens.weight


def remembered(state: State | None) -> int:
    """How many tokens stand in front of the present ones."""
    return 0 if state is None else state.layers[0].shape[1]


def keep(old: Tensor | None, new: Tensor, memory: int, reuse: int = 0) -> Tensor:
    """The last `memory` of old and new (0: all), without gradient; of the new ones the first `reuse` (0: all).

    Shape: (B, M, ...), (B, L, ...) -> (B, M', ...).
    """
    new = new[:, :reuse] if reuse else new
    new = new if old is None else torch.cat([old.to(new.dtype), new], dim=1)
    return (new[:, -memory:] if memory else new).detach()


def behind(state: State | None, layer: int, h: Tensor) -> Tensor:
    """What a layer looks at: what is remembered of its input, then the input. Shape: (B, L, D) -> (B, M + L, D)."""
    return h if state is None else torch.cat([state.layers[layer].to(h.dtype), h], dim=1)


def real_places(batch: Batch, state: State | None) -> Tensor | None:
    """Where memory and batch hold tokens, (B, M + L); None: everywhere."""
    here = batch.mask()
    if state is None:
        return here
    if here is None and state.real is None:
        return None
    shape = (batch.size, remembered(state))
    before = torch.ones(shape, dtype=torch.bool, device=batch.ids.device) if state.real is None else state.real
    return torch.cat([before, torch.ones_like(batch.ids, dtype=torch.bool) if here is None else here], dim=1)
