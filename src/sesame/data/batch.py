"""The batch: the only thing that crosses to the device.

Two layouts. Padded: `ids` is (B, L), a row is valid up to its length. Packed: `ids` is (T,), the rows stand end to end and
`offsets` (B+1,) tells where each begins. Positions in `Targets.at` count from the start of their row, so that they mean
the same in both layouts.
"""

from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

IGNORE = -100
"""The label of a place that carries no target."""


@dataclass(frozen=True)
class Targets:
    """What one objective wants to be told: labels, and where in the row they belong."""

    labels: Tensor  # (B, K) or (B,), IGNORE where there is none; numbers instead of names are floats, none is left out
    at: Tensor | None = None  # (B, K) positions in the row; None: one label for the whole example
    rows: Tensor | None = None  # (B,) whose label a row belongs to, where several rows (windows) share one

    def count(self) -> Tensor:
        if self.labels.is_floating_point():
            return torch.tensor(self.labels.numel(), device=self.labels.device)
        return (self.labels != IGNORE).sum()


@dataclass(frozen=True)
class Batch:
    ids: Tensor  # (B, L) padded or (T,) packed
    lengths: Tensor  # (B,)
    keys: Tensor | None = None  # (B,) int64: the chance of each example
    segments: Tensor | None = None  # like ids
    words: Tensor | None = None  # like ids: 1, 2, 3 ... in the row, 0 for specials and padding
    offsets: Tensor | None = None  # (B+1,) int32, packed only
    longest: int = 0  # packed only: the longest row, known without asking the device
    full: bool = False  # no padding at all: attention needs no mask
    targets: dict[str, Targets] = field(default_factory=dict)

    @property
    def packed(self) -> bool:
        return self.offsets is not None

    @property
    def size(self) -> int:
        return self.lengths.shape[0]

    def mask(self) -> Tensor | None:
        """True at real tokens, (B, L); None when everything is real."""
        if self.full or self.packed:
            return None
        return torch.arange(self.ids.shape[1], device=self.ids.device)[None, :] < self.lengths[:, None]

    def flat(self, at: Tensor) -> Tensor:
        """Positions in the rows (B, K) as positions in the flattened ids (B, K)."""
        if self.offsets is not None:
            return self.offsets[:-1, None].long() + at
        rows = torch.arange(at.shape[0], device=at.device)[:, None]
        return rows * self.ids.shape[1] + at

    def with_targets(self, **targets: Targets) -> "Batch":
        return replace(self, targets={**self.targets, **targets})

    def pack(self) -> "Batch":
        """The same batch without its padding."""
        if self.packed:
            return self
        real = torch.arange(self.ids.shape[1], device=self.ids.device)[None, :] < self.lengths[:, None]
        offsets = torch.zeros(self.size + 1, dtype=torch.int32, device=self.ids.device)
        offsets[1:] = torch.cumsum(self.lengths, 0)
        return replace(
            self,
            ids=self.ids[real],
            segments=None if self.segments is None else self.segments[real],
            words=None if self.words is None else self.words[real],
            offsets=offsets,
            longest=int(self.lengths.max()),
        )

    def to(self, device: torch.device, pin: bool = False) -> "Batch":
        """Move every tensor; with `pin` through page-locked memory, without waiting."""

        def move(value: Any) -> Any:
            if isinstance(value, Tensor):
                return value.pin_memory().to(device, non_blocking=True) if pin else value.to(device)
            if isinstance(value, Targets):
                return Targets(move(value.labels), move(value.at), move(value.rows))
            if isinstance(value, dict):
                return {name: move(inner) for name, inner in value.items()}
            return value

        return Batch(**{item.name: move(getattr(self, item.name)) for item in fields(self)})
