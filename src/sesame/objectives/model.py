"""A backbone together with what it learns from: the thing that is trained."""

from torch import nn

from sesame.backbones import Encoder
from sesame.data.batch import Batch
from sesame.objectives.base import Term, Together


class Model(nn.Module):
    def __init__(self, backbone: Encoder, objective: Together) -> None:
        super().__init__()
        self.backbone, self.objective = backbone, objective

    def forward(self, batch: Batch) -> list[Term]:
        return self.objective(self.backbone, batch)  # type: ignore[no-any-return]
