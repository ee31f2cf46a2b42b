"""Where a run stands: all that must be remembered, besides weights and optimiser, to go on exactly as before."""

from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from sesame.train.optim import Optimizer


@dataclass
class State:
    step: int = 0  # optimiser steps done, over all stages
    stage: int = 0
    stage_step: int = 0  # steps done in this stage: with the batch size this is the position in the data
    elapsed: float = 0.0  # seconds, over all restarts
    tokens: int = 0
    skipped: list[int] = field(default_factory=list)  # steps whose batch was left out by the guard
    history: list[float] = field(default_factory=list)  # last losses, for the guard
    held_out: dict[str, float] = field(default_factory=dict)  # last evaluation
    look: dict[str, float] = field(default_factory=dict)  # its step and its loss as a whole
    best: dict[str, float] = field(default_factory=dict)  # the same of the look with the lowest loss

    def begin(self, stage: int) -> None:
        """A new stage: other rows, whose losses are no measure for each other."""
        self.stage, self.stage_step, self.history = stage, 0, []

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "State":
        return cls(**value)


class Snapshot:
    """A copy of weights and optimiser in memory, to fall back to within a few steps."""

    def __init__(self, model: nn.Module, optimizer: Optimizer, state: State) -> None:
        self.parameters = [p for p in model.parameters() if p in optimizer]  # frozen ones cannot break
        self.optimizer = optimizer
        self.copies: list[Tensor] = []
        self.take(state)

    @torch.no_grad()
    def take(self, state: State) -> None:
        self.state = State.from_json(state.to_json() | {"skipped": [*state.skipped], "history": [*state.history]})
        held = self.optimizer.held()
        sources = [*self.parameters, *(x for kept in held.values() for x in kept.values() if isinstance(x, Tensor))]
        plain = all(type(x) in (Tensor, nn.Parameter) for x in sources)
        if plain and [x.shape for x in sources] == [x.shape for x in self.copies]:
            torch._foreach_copy_(self.copies, sources)  # in few launches: this happens every few steps
        else:
            self.copies = [x.detach().clone() for x in sources]
        copies = iter(self.copies)
        self.weights = [next(copies) for _ in self.parameters]
        self.memory = {
            p: {name: next(copies) if isinstance(x, Tensor) else x for name, x in kept.items()}
            for p, kept in held.items()
        }

    @torch.no_grad()
    def restore(self) -> State:
        for parameter, kept in zip(self.parameters, self.weights, strict=True):
            parameter.copy_(kept)
        self.optimizer.restore(self.memory)
        return State.from_json(self.state.to_json())
