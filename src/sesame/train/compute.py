"""How a model is run in training: compiled or not, through a bf16 copy or as it is."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from sesame.backbones import Backbone
from sesame.nn.device import has_triton
from sesame.train.precision import Machine
from sesame.train.replay import Replay


def computing(model: nn.Module, machine: Machine, compiled: bool | None = None) -> Callable[..., Any]:
    """What the loop calls in the place of `model`. Compiled, unless told otherwise, on a GPU that has a compiler."""
    if compiled is None:
        compiles = all(part.compiles for part in model.modules() if isinstance(part, Backbone))
        compiled = compiles and has_triton(machine.device)

    def dress(model: nn.Module) -> Callable[..., Any]:
        return torch.compile(model, dynamic=False) if compiled else model

    return Replay(model, dress) if machine.shadow else dress(model)


def replaying(model: nn.Module, machine: Machine) -> Callable[..., Any]:
    """The same for short trainings: ready at once, and quick with small batches of few shapes."""
    return Replay(model) if machine.shadow else model
