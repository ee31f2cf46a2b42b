"""A backbone together with what it learns from: the thing that is trained."""

from torch import nn

from sesame.backbones import Backbone
from sesame.data.batch import Batch
from sesame.objectives.base import Term, Together


class Model(nn.Module):
    def __init__(self, backbone: Backbone, objective: Together) -> None:
        super().__init__()
        self.backbone, self.objective = backbone, objective
        self.frozen = False

    def freeze(self) -> None:
        """Train the heads alone; the backbone gives features, without dropout."""
        self.frozen = True
        self.backbone.requires_grad_(False)

    def train(self, mode: bool = True) -> "Model":
        super().train(mode)
        if self.frozen:
            self.backbone.eval()
        return self

    def forward(self, batch: Batch) -> list[Term]:
        return self.objective(self.backbone, batch)  # type: ignore[no-any-return]
