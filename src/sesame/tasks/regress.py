"""Give a text or a pair of texts a number: similarity, rating, age.

Paper: Devlin et al. 2018, section 4.1 (STS-B). One output, squared error:
    loss = Σ (z - y)² / spread²
Targets: by the task's name, a number for each example.
Unusual: what the head learns is multiplied by the spread of the training scores and added to their mean, so scores from 0
to 5 and prices in millions train alike; after training both are folded into the weights, so they give plain scores.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from sesame.backbones import Backbone
from sesame.data.batch import Batch, Targets
from sesame.data.examples import Example
from sesame.tasks.base import Item, Reply, TaskConfig
from sesame.tasks.pooled import PooledTask


class Regress(PooledTask):
    kind: ClassVar[str] = "regress"

    def __init__(self, name: str, config: TaskConfig, backbone: Backbone, dropout: float) -> None:
        super().__init__(name, config, backbone, 1, dropout)

    @torch.no_grad()
    def settle(self) -> None:
        super().settle()
        middle, spread = self.config.scale
        self.out.weight.mul_(spread)
        self.out.bias.mul_(spread).add_(middle)
        self.config = replace(self.config, scale=(0.0, 1.0))

    def logits(self, features: Tensor, batch: Batch) -> Tensor:
        middle, spread = self.config.scale
        return super().logits(features, batch) * spread + middle

    def number(self, example: Example) -> float | None:
        return None if example.label is None else float(example.label)

    def labels(self, items: Sequence[Item]) -> Tensor:
        return torch.tensor([0.0 if item.label is None else item.label for item in items], dtype=torch.float64)

    def loss(self, logits: Tensor, targets: Targets) -> Tensor:
        return ((logits[:, 0] - targets.labels.to(logits.dtype)) / self.config.scale[1]).square().sum()

    def read(self, logits: Tensor, item: Item, example: Example) -> Reply:
        return {"value": float(logits[0])}
