"""The loader of labelled items: step number n, at once and always the same, as `data/loader.py` is for raw text.

With several tasks a step belongs to one of them, drawn with p(task) ~ size^alpha (1: by size, 0: evenly).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sesame import chance
from sesame.data.batch import Batch
from sesame.data.order import locate
from sesame.tasks.base import Item, Task
from sesame.tasks.pooled import PooledTask, thin

WIDTHS = 32  # rows are as wide as a multiple of this, where shapes should be few


@dataclass
class ItemLoader:
    """Micro-batches of a step of one task: at most `tokens` places each, of similar length."""

    task: Task
    items: Sequence[Item]
    pad: int
    batch: int
    seed: int
    tokens: int
    numbers: Mapping[int, int] = field(default_factory=dict)  # by id of a window: its place in the kept features
    unpad: bool = False  # the backbone leaves the padding out; sizes are rounded up, so that few shapes occur

    def load(self, step: int) -> list[Batch]:
        epochs, rows = locate(step * self.batch, self.batch, len(self.items), self.seed)
        chosen = [self.items[row] for row in rows]
        if isinstance(self.task, PooledTask):
            lucks = [chance.key(self.seed, int(e), int(r), 2) / 2**64 for e, r in zip(epochs, rows, strict=True)]
            chosen = [thin(item, luck) for item, luck in zip(chosen, lucks, strict=True)]
        return [self._collate(part) for part in self._parts(chosen)]

    def _collate(self, items: Sequence[Item]) -> Batch:
        if self.unpad:
            batch = self.task.collate(items, self.pad, WIDTHS)
            return batch.unpadded(few_sizes(int(batch.lengths.sum())))
        batch = self.task.collate(items, self.pad)
        if not self.numbers:
            return batch
        windows = [self.numbers[id(window)] for item in items for window in item.windows]
        return replace(batch, keys=torch.tensor(windows))

    def _parts(self, items: list[Item]) -> list[list[Item]]:
        """By length, so that little is padded; the loop's sums make the cut invisible."""
        parts: list[list[Item]] = []
        rows = 0
        for item in sorted(items, key=lambda item: max(len(window.ids) for window in item.windows)):
            width = max(len(window.ids) for window in item.windows)
            if parts and (rows + len(item.windows)) * width <= self.tokens:
                parts[-1].append(item)
                rows += len(item.windows)
            else:
                parts.append([item])
                rows = len(item.windows)
        return parts


def few_sizes(tokens: int) -> int:
    """What to round a number of tokens up to a multiple of: a 16th of the power of two below it, little waste."""
    return max(64, 1 << max(0, tokens.bit_length() - 5))


class ManyLoader:
    """Several tasks, a step for one of them at a time."""

    def __init__(self, loaders: Sequence[ItemLoader], steps: int, seed: int, alpha: float) -> None:
        self.loaders = loaders
        sizes = np.array([len(loader.items) for loader in loaders], dtype=np.float64) ** alpha
        luck = chance.uniform(np.array([chance.key(seed, 3)], dtype=np.uint64), "task", max(steps, 1))[0]
        chosen = np.searchsorted(np.cumsum(sizes / sizes.sum()), luck, side="right")
        self.chosen: npt.NDArray[np.int64] = np.minimum(chosen, len(loaders) - 1).astype(np.int64)
        self.before = np.stack([np.cumsum(self.chosen == n) - (self.chosen == n) for n in range(len(loaders))])

    def load(self, step: int) -> list[Batch]:
        number = int(self.chosen[step % len(self.chosen)])
        return self.loaders[number].load(int(self.before[number, step % len(self.chosen)]))


def keep_features(windows: Sequence[Tensor], keys: Tensor, device: torch.device) -> Tensor:
    """Kept features of a batch's windows, padded to the longest. Shape: each (J, D) or (J, L, D) -> (J, B, ...)."""
    chosen = [windows[key].to(device) for key in keys.tolist()]
    if chosen[0].ndim == 2:
        return torch.stack(chosen, dim=1)
    padded = torch.nn.utils.rnn.pad_sequence([part.transpose(0, 1) for part in chosen], batch_first=True)
    return padded.permute(2, 0, 1, 3)
