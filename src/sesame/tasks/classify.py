"""Classify a text or a pair of texts: one of several labels, or any number of them.

Paper: Devlin et al. 2018, section 4.1 (GLUE). One label: softmax and cross-entropy; several: a sigmoid for each and
    loss = - Σ_c y_c log σ(z_c) + (1 - y_c) log(1 - σ(z_c)).
Targets: by the task's name, a class (E,) or a row of zeros and ones (E, C) for each example.
Relations: `regress` is this with one number and squared error, `choice` compares texts instead of naming them.
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from sesame.backbones import Backbone
from sesame.data.batch import IGNORE, Targets
from sesame.data.examples import Example
from sesame.errors import SesameError
from sesame.tasks.base import Item, Reply, TaskConfig
from sesame.tasks.pooled import PooledTask


def as_trained(example: Example, multi: bool) -> str | tuple[str, ...] | None:
    """The label as a name, or with `multi` as a tuple of names; files may differ in how they write one label."""
    label = example.label
    if label is None or isinstance(label, str) != multi:
        return label  # type: ignore[no-any-return]
    if isinstance(label, str):
        return (label,)
    if len(label) != 1:
        raise SesameError(
            f"{example.place}: has {'no label' if not label else 'several labels'}, but the training rows have one each; "
            "give one here, or lists in all files"
        )
    return str(label[0])


class Classify(PooledTask):
    kind: ClassVar[str] = "classify"

    def __init__(self, name: str, config: TaskConfig, backbone: Backbone, dropout: float) -> None:
        super().__init__(name, config, backbone, len(config.labels), dropout)
        self.index = {label: number for number, label in enumerate(config.labels)}

    def number(self, example: Example) -> int | list[int] | None:
        label = as_trained(example, self.config.multi)
        if label is None:
            return None
        if isinstance(label, str):
            return self._class(label, example.place)
        return [self._class(name, example.place) for name in label]

    def _class(self, name: str, place: str) -> int:
        if name not in self.index:
            known = ", ".join(self.config.labels[:10]) + (" ..." if len(self.config.labels) > 10 else "")
            raise SesameError(f"{place}: the label {name!r} is not among those trained on ({known})")
        return self.index[name]

    def labels(self, items: Sequence[Item]) -> Tensor:
        if not self.config.multi:
            return torch.tensor([IGNORE if item.label is None else item.label for item in items])
        found = torch.zeros(len(items), len(self.index))
        for row, item in enumerate(items):
            found[row, item.label or []] = 1.0
        return found

    def loss(self, logits: Tensor, targets: Targets) -> Tensor:
        if self.config.multi:
            return F.binary_cross_entropy_with_logits(logits, targets.labels.to(logits.dtype), reduction="sum")
        return F.cross_entropy(logits, targets.labels, reduction="sum")

    def read(self, logits: Tensor, item: Item, example: Example) -> Reply:
        names = self.config.labels
        scaled = logits / self.config.temperature
        if self.config.multi:
            each = dict(zip(names, scaled.sigmoid().tolist(), strict=True))
            return {"labels": [name for name, chance in each.items() if chance > 0.5], "probabilities": each}
        chances = scaled.softmax(-1)
        best = int(chances.argmax())
        return {
            "label": names[best],
            "probability": float(chances[best]),
            "probabilities": dict(zip(names, chances.tolist(), strict=True)),
        }
