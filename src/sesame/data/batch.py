"""The batch: the only thing that crosses to the device.

`ids` is (B, L), a row is valid up to its length. `real` tells where the valid places are, for backbones that leave the
padding out: they unpad once at the door and pad once at the exit, so that nobody else meets a second layout.
"""

from collections.abc import Callable, Hashable
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
            return torch.full((), self.labels.numel(), device=self.labels.device)
        return (self.labels != IGNORE).sum()


@dataclass(frozen=True)
class Real:
    """The real tokens of a padded batch, end to end."""

    at: Tensor  # (T,) places in the flattened ids; then B * L, the place behind the last, to fill up to a round number
    offsets: Tensor  # (B+1+F,) int32: where each row begins among them; the fill makes F rows of its own
    longest: int  # no row has more tokens


@dataclass(frozen=True)
class Batch:
    ids: Tensor  # (B, L)
    lengths: Tensor  # (B,)
    keys: Tensor | None = None  # (B,) int64: the chance of each example
    segments: Tensor | None = None  # like ids
    langs: Tensor | None = None  # like ids: the number of each token's language
    positions: Tensor | None = None  # like ids; None: 0, 1, 2 ... in each row
    words: Tensor | None = None  # like ids: 1, 2, 3 ... in the row, 0 for specials and padding
    outputs: Tensor | None = (
        None  # (B, K) what a decoder reads: the wanted text, one place to the right, padded at its end
    )
    output_positions: Tensor | None = None  # like outputs; None: 0, 1, 2 ... in each row
    full: bool = False  # no padding at all: attention needs no mask
    real: Real | None = None
    targets: dict[str, Targets] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return self.lengths.shape[0]

    def mask(self) -> Tensor | None:
        """True at real tokens, (B, L); None when everything is real."""
        if self.full:
            return None
        return torch.arange(self.ids.shape[1], device=self.ids.device)[None, :] < self.lengths[:, None]

    def with_targets(self, **targets: Targets) -> "Batch":
        return replace(self, targets={**self.targets, **targets})

    def unpadded(self, multiple: int = 1, anchor: int = 0) -> "Batch":
        """The same batch, told where its real tokens are; their number is filled up, so that few shapes occur: to `anchor`
        or a number so many multiples away from it."""
        size, width = self.ids.shape
        rows = -(-(multiple - 1) // width)  # that the longest fill needs
        places = torch.arange(width)[None, :] < self.lengths[:, None]
        at = places.flatten().nonzero()[:, 0]
        fill = (anchor - len(at)) % multiple
        ends = torch.cumsum(self.lengths, 0)
        fills = (torch.arange(1, rows + 1) * width).clamp(max=fill) + len(at)
        offsets = torch.cat([torch.zeros(1, dtype=torch.long), ends, fills]).int()
        at = torch.cat([at, at.new_full((fill,), size * width)])
        return replace(self, full=False, real=Real(at, offsets, width))

    def to(self, device: torch.device, pin: bool = False) -> "Batch":
        """Move every tensor; with `pin` through page-locked memory, without waiting."""

        def move(tensor: Tensor) -> Tensor:
            return tensor.pin_memory().to(device, non_blocking=True) if pin else tensor.to(device)

        return self.map(move)

    def map(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """The same batch with every tensor changed."""

        def walk(value: Any) -> Any:
            if isinstance(value, Tensor):
                return change(value)
            if isinstance(value, Targets | Real):
                return replace(value, **{item.name: walk(getattr(value, item.name)) for item in fields(value)})
            if isinstance(value, dict):
                return {name: walk(inner) for name, inner in value.items()}
            return value

        return Batch(**{item.name: walk(getattr(self, item.name)) for item in fields(self)})

    def tensors(self) -> list[Tensor]:
        """All of them, in an order that depends on the layout alone."""
        found: list[Tensor] = []

        def note(tensor: Tensor) -> Tensor:
            found.append(tensor)
            return tensor

        self.map(note)
        return found

    def layout(self) -> Hashable:
        """Equal for batches that differ in the numbers of their tensors only."""
        present = tuple(item.name for item in fields(self) if getattr(self, item.name) is not None)
        tensors = tuple((tuple(tensor.shape), tensor.dtype) for tensor in self.tensors())
        longest = None if self.real is None else self.real.longest
        return present, self.full, longest, tuple(self.targets), tensors
