"""The batch: the only thing that crosses to the device.

`ids` is (B, L), a row is valid up to its length. `real` tells where the valid places are, for backbones that leave the
padding out: they unpad once at the door and pad once at the exit, so that nobody else meets a second layout.

On its way to a GPU a batch is one array of bytes, over which its tensors lie (`whole`): moving it is one operation and not
ten. Each of them hands the interpreter to the threads that load, and a small model has no time to wait for it ten times.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

IGNORE = -100
"""The label of a place that carries no target."""
ALIGNED = 64  # bytes: every tensor in a batch of one array begins at a multiple, as kernels want it


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
    whole: Tensor | None = None  # bytes: the array over which the tensors lie, if they do

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
        device = self.ids.device
        places = torch.arange(width, device=device)[None, :] < self.lengths[:, None]
        at = places.flatten().nonzero()[:, 0]
        fill = (anchor - len(at)) % multiple
        ends = torch.cumsum(self.lengths, 0)
        fills = (torch.arange(1, rows + 1, device=device) * width).clamp(max=fill) + len(at)
        offsets = torch.cat([ends.new_zeros(1), ends, fills]).int()
        at = torch.cat([at, at.new_full((fill,), size * width)])
        return replace(self, full=False, real=Real(at, offsets, width))

    def to(self, device: torch.device, pin: bool = False) -> "Batch":
        """Move every tensor; with `pin` all of them in one array, through page-locked memory, without waiting."""
        if not pin:
            return self.map(lambda tensor: tensor.to(device))
        return self.over(self.joined(pin=True).to(device, non_blocking=True))

    def joined(self, pin: bool = False) -> Tensor:
        """All tensors in one array of bytes, which `over` reads."""
        whole = torch.empty(sum(_room(tensor) for tensor in self.tensors()), dtype=torch.uint8, pin_memory=pin)
        for into, tensor in zip(self.over(whole).tensors(), self.tensors(), strict=True):
            into.copy_(tensor)
        return whole

    def over(self, whole: Tensor) -> "Batch":
        """The same batch, its tensors lying over this array: whoever writes there changes them."""
        store, at = whole.untyped_storage(), whole.storage_offset()

        def lay(tensor: Tensor) -> Tensor:
            nonlocal at
            # Not a view to autograd: a compiler would ask where it comes from.
            found = torch.empty(0, dtype=tensor.dtype, device=whole.device)
            found.set_(store, at // tensor.element_size(), tensor.shape, tensor.contiguous().stride())
            at += _room(tensor)
            return found

        return replace(self.map(lay), whole=whole)

    def map(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """The same batch with every tensor changed, each by itself."""

        def walk(value: Any) -> Any:
            if isinstance(value, Tensor):
                return change(value)
            if isinstance(value, Targets | Real):
                return replace(value, **{item.name: walk(getattr(value, item.name)) for item in fields(value)})
            if isinstance(value, dict):
                return {name: walk(inner) for name, inner in value.items()}
            return value

        return Batch(**{item.name: walk(getattr(self, item.name)) for item in fields(self) if item.name != "whole"})

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
        parts = (item.name for item in fields(self) if item.name != "whole")
        present = tuple(name for name in parts if getattr(self, name) is not None)
        tensors = tuple((tuple(tensor.shape), tensor.dtype) for tensor in self.tensors())
        longest = None if self.real is None else self.real.longest
        return present, self.full, longest, tuple(self.targets), tensors


def _room(tensor: Tensor) -> int:
    """Bytes that a tensor takes in a batch of one array."""
    return -(-tensor.numel() * tensor.element_size() // ALIGNED) * ALIGNED
