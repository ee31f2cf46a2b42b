"""How a pre-trained backbone is adapted to a task: what trains, from when on, and how fast.

- full: everything, at one rate (Devlin et al. 2018), or lower layers slower by `layer_decay` each (ULMFiT: 1/2.6).
- frozen: the head alone, on features of a chosen layer.
- gradual: the head first, then group by group from the top (ULMFiT: Howard & Ruder 2018), all open after `unfreeze`.
- `reinit` top layers start afresh: what the last layers learnt for their objective can hinder (Zhang et al. 2021).
"""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from sesame.errors import SesameError
from sesame.nn.init import bert_init
from sesame.objectives.model import Model
from sesame.train.optim import Scales


@dataclass(frozen=True)
class Adapt:
    strategy: Literal["full", "frozen", "gradual"] = "full"
    layer_decay: float = 1.0  # rate of a layer over that of the layer above it
    head_rate: float = 1.0  # rate of the heads, which are new, over that of the top layer
    unfreeze: float = 0.5  # gradual: the share of the run after which everything trains
    reinit: int = 0  # top layers that start afresh

    def __post_init__(self) -> None:
        if not 0 < self.layer_decay <= 1 or not 0 < self.unfreeze <= 1 or self.reinit < 0 or self.head_rate <= 0:
            raise SesameError(
                "adapt: layer_decay and unfreeze lie above 0 up to 1, head_rate above 0, reinit is not below 0"
            )
        if self.reinit and self.strategy == "frozen":
            raise SesameError(
                "adapt.reinit makes layers anew, but a frozen model never trains them; leave one of them out"
            )


def groups_of(model: Model) -> list[nn.Module]:
    """The backbone's groups that have weights, bottom to top."""
    return [group for group in model.backbone.groups() if any(True for _ in group.parameters())]


def prepare(model: Model, adapt: Adapt) -> Scales:
    """Freeze or re-initialise what the strategy says; gives the rates of single weights."""
    groups = groups_of(model)
    if adapt.reinit:
        blocks = list(dict.fromkeys(model.backbone.blocks))
        if adapt.reinit > len(blocks):
            raise SesameError(f"adapt.reinit is {adapt.reinit}, but the model has {len(blocks)} layers")
        for block in blocks[-adapt.reinit :]:
            block.apply(_afresh)
            block.apply(bert_init(model.backbone.config.init))
    if adapt.strategy == "frozen":
        model.freeze()
    scales: dict[nn.Parameter, float] = {}
    if adapt.layer_decay != 1.0:
        for distance, group in enumerate(reversed(groups), start=1):
            scales |= dict.fromkeys(group.parameters(), adapt.layer_decay**distance)
    if adapt.head_rate != 1.0:
        scales |= dict.fromkeys(model.objective.parameters(), adapt.head_rate)
    return scales


def unfreeze(model: Model, adapt: Adapt, progress: float) -> None:
    """Open the groups whose time has come: the top one at once with the head's second share, the embeddings last."""
    groups = groups_of(model)
    for number, group in enumerate(reversed(groups), start=1):
        group.requires_grad_(progress >= adapt.unfreeze * number / len(groups))


def _afresh(module: nn.Module) -> None:
    if isinstance(module, nn.LayerNorm | nn.LSTM | nn.GRU):
        module.reset_parameters()
