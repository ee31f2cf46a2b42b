"""Choose one of several continuations or answers (SWAG, RACE).

Paper: Devlin et al. 2018, section 4.4. Each option is read together with the stem and gets one score:
    p(option) = softmax over the options of w · pool(stem, option)
Targets: by the task's name, the number of the right option (E,), and how many there are.
Unusual: examples may have different numbers of options; a long stem is windowed beside the whole option.
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from sesame.backbones import Backbone
from sesame.data.batch import IGNORE, Batch, Targets
from sesame.data.examples import Example
from sesame.tasks.base import Item, Reply, TaskConfig
from sesame.tasks.pooled import PooledTask
from sesame.tasks.windows import Inputs


class Choice(PooledTask):
    kind: ClassVar[str] = "choice"

    def __init__(self, name: str, config: TaskConfig, backbone: Backbone, dropout: float) -> None:
        super().__init__(name, config, backbone, 1, dropout)

    def items(self, examples: Sequence[Example], inputs: Inputs) -> list[Item]:
        stems = inputs.encode([example.text for example in examples])
        options = iter(inputs.encode([option for example in examples for option in example.options]))
        found = []
        for example, stem in zip(examples, stems, strict=True):
            parts = [inputs.pair(stem, next(options), long=0) for _ in example.options]
            slots = [number for number, windows in enumerate(parts) for _ in windows]
            found.append(Item(tuple(w for windows in parts for w in windows), tuple(slots), example.label))
        return found

    def slots(self, items: Sequence[Item]) -> int:
        return max(slot for item in items for slot in item.slots) + 1

    def targets(self, items: Sequence[Item], width: int) -> Targets:
        """`at` tells which options each item has, (E, most)."""
        counts = torch.tensor([[max(item.slots) + 1] for item in items])
        return Targets(self.labels(items), at=torch.arange(self.slots(items)) < counts, rows=self.rows(items))

    def labels(self, items: Sequence[Item]) -> Tensor:
        return torch.tensor([IGNORE if item.label is None else item.label for item in items])

    def logits(self, features: Tensor, batch: Batch) -> Tensor:
        """Shape: (items, most options); -inf where an item has fewer."""
        targets = batch.targets[self.name]
        assert targets.at is not None
        items, most = targets.at.shape
        scores: Tensor = self.out(self.vectors(features, batch, items * most)).view(items, most)
        return scores.masked_fill(~targets.at, -torch.inf)

    def loss(self, logits: Tensor, targets: Targets) -> Tensor:
        return F.cross_entropy(logits, targets.labels, reduction="sum")

    def read(self, logits: Tensor, item: Item, example: Example) -> Reply:
        chances = (logits[: len(example.options)] / self.config.temperature).softmax(-1)
        best = int(chances.argmax())
        return {"choice": best, "option": example.options[best], "probabilities": chances.tolist()}
