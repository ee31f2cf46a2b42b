"""Which hidden states a head reads: the feature-based choices of the BERT paper (table 7), and ELMo's scalar mix.

`first` (the embeddings), `last`, `second-to-last`, `sum-last-4`, `concat-last-4`, `sum-all`, a number, or `mix`:
    mix(h) = γ Σ_j softmax(s)_j h_j        (Peters et al. 2018), with s and γ learnt by the task
"""

import re
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from sesame.backbones import Backbone
from sesame.config import unknown
from sesame.errors import SesameError
from sesame.nn.scalar_mix import ScalarMix

LAYERS: dict[str, Callable[[Sequence[Tensor]], Tensor]] = {
    "last": lambda layers: layers[-1],
    "second-to-last": lambda layers: layers[-2],
    "first": lambda layers: layers[0],
    "sum-last-4": lambda layers: torch.stack(_upper(layers)[-4:]).sum(0),
    "concat-last-4": lambda layers: torch.cat(_upper(layers)[-4:], dim=-1),
    "sum-all": lambda layers: torch.stack(_upper(layers)).sum(0),
}
MIX = "mix"


def _upper(layers: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Those above the embeddings; a model of one layer, which shows no embeddings (skip-thought), has that one."""
    return tuple(layers[1:]) or tuple(layers)


def choose_layers(name: str, layers: Sequence[Tensor]) -> Tensor:
    if re.fullmatch(r"-?[0-9]{1,6}", name):
        if not -len(layers) <= int(name) < len(layers):
            raise SesameError(f"layer {name}: the model has layers 0 (embeddings) to {len(layers) - 1}")
        return layers[int(name)]
    if name not in LAYERS:
        raise SesameError(unknown(name, LAYERS, "layers", "choice") + "; or a number")
    if name == "second-to-last" and len(layers) < 2:
        raise SesameError('layers "second-to-last": the model has one layer; take "last"')
    return LAYERS[name](layers)


class LayerChoice(nn.Module):
    """Splits the choice in two: `stack` has no weights and can be kept, `forward` finishes it."""

    def __init__(self, name: str, backbone: Backbone) -> None:
        super().__init__()
        depth = backbone.depth
        self.name = name
        self.mix = ScalarMix(depth + 1) if name == MIX else None
        self.width = backbone.width * (max(1, min(4, depth)) if name == "concat-last-4" else 1)
        if name != MIX:  # a wrong name is told at once
            choose_layers(name, [torch.empty(1)] * (depth + 1))

    def stack(self, layers: Sequence[Tensor]) -> Tensor:
        """Shape: J times (B, L, D) -> (J or 1, B, L, D')."""
        return torch.stack(tuple(layers)) if self.mix is not None else choose_layers(self.name, layers)[None]

    def forward(self, stack: Tensor) -> Tensor:
        return stack[0] if self.mix is None else self.mix(stack)
