"""Give a text or a pair of texts a number: similarity, rating, age.

Paper: Devlin et al. 2018, section 4.1 (STS-B). One output, squared error:
    loss = Σ (z - y)² / spread²
Targets: by the task's name, a number for each example.
Unusual: the output starts at the mean of the training scores and its weights are scaled by their spread (as is its rate, see
`train/adapt.py`), so scores from 0 to 5 and prices in millions train alike, and the checkpoint still gives plain scores.
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from sesame.backbones import Backbone
from sesame.data.batch import Targets
from sesame.data.examples import Example
from sesame.tasks.base import Item, Reply, TaskConfig
from sesame.tasks.pooled import PooledTask


class Regress(PooledTask):
    kind: ClassVar[str] = "regress"

    def __init__(self, name: str, config: TaskConfig, backbone: Backbone, dropout: float) -> None:
        super().__init__(name, config, backbone, 1, dropout)
        middle, self.spread = config.scale
        with torch.no_grad():
            self.out.weight.mul_(self.spread)
            self.out.bias.fill_(middle)

    def rates(self) -> dict[nn.Parameter, float]:
        return dict.fromkeys(self.out.parameters(), self.spread)

    def number(self, example: Example) -> float | None:
        return None if example.label is None else float(example.label)

    def labels(self, items: Sequence[Item]) -> Tensor:
        return torch.tensor([0.0 if item.label is None else item.label for item in items], dtype=torch.float64)

    def loss(self, logits: Tensor, targets: Targets) -> Tensor:
        return ((logits[:, 0] - targets.labels.to(logits.dtype)) / self.spread).square().sum()

    def read(self, logits: Tensor, item: Item, example: Example) -> Reply:
        return {"value": float(logits[0])}
