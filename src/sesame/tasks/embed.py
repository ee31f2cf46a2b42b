"""Embed: one vector for each text (or token), from the layers of your choice.

Layers, as in the feature-based experiments of the BERT paper (table 7): `last`, `second-to-last`, `first` (the embeddings),
`sum-last-4`, `concat-last-4`, `sum-all`, or a number. Pooling over the tokens: `mean`, `max`, `cls`, `pooler` (BERT's tanh
layer on [CLS]), or `none` for all tokens.
"""

import re
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from sesame.backbones import Backbone
from sesame.config import unknown
from sesame.errors import SesameError
from sesame.progress import Bar
from sesame.tasks.inputs import batch_of, by_length
from sesame.text import Encoding, Tokenizer

LAYERS: dict[str, Callable[[Sequence[Tensor]], Tensor]] = {
    "last": lambda layers: layers[-1],
    "second-to-last": lambda layers: layers[-2],
    "first": lambda layers: layers[0],
    "sum-last-4": lambda layers: torch.stack(tuple(layers[1:][-4:])).sum(0),
    "concat-last-4": lambda layers: torch.cat(tuple(layers[1:][-4:]), dim=-1),
    "sum-all": lambda layers: torch.stack(tuple(layers[1:])).sum(0),
}

POOLS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": lambda x, real: (x * real[..., None]).sum(1) / real.sum(1)[:, None],
    "max": lambda x, real: x.masked_fill(~real[..., None], -torch.inf).amax(1),
    "cls": lambda x, real: x[:, 0],
}


def choose_layers(name: str, layers: Sequence[Tensor]) -> Tensor:
    if re.fullmatch(r"-?[0-9]{1,6}", name):
        if not -len(layers) <= int(name) < len(layers):
            raise SesameError(f"layer {name}: the model has layers 0 (embeddings) to {len(layers) - 1}")
        return layers[int(name)]
    if name not in LAYERS:
        raise SesameError(unknown(name, LAYERS, "--layers", "choice") + "; or a number")
    return LAYERS[name](layers)


@torch.no_grad()
def embed(
    backbone: Backbone,
    pooler: nn.Module | None,
    tokenizer: Tokenizer,
    encodings: Sequence[Encoding],
    layers: str,
    pooling: str,
    progress: Bar | None = None,
) -> list[Tensor]:
    """A vector (D,) for each text, in the order given; with pooling "none" a matrix (L, D)."""
    known = {**POOLS, "pooler": None, "none": None}
    if pooling not in known:
        raise SesameError(unknown(pooling, known, "--pooling", "choice"))
    if pooling == "pooler" and pooler is None:
        raise SesameError("this model has no trained pooler; choose --pooling mean or cls")
    backbone.eval()
    device = next(backbone.parameters()).device
    found: list[Tensor] = [torch.empty(0)] * len(encodings)
    for group in by_length(encodings):
        batch = batch_of([encodings[i] for i in group], tokenizer.id("pad")).to(device)
        chosen = choose_layers(layers, backbone(batch).layers)
        real = torch.arange(batch.ids.shape[1], device=device)[None] < batch.lengths[:, None]
        if pooling == "pooler":
            assert pooler is not None
            chosen = pooler(chosen[:, 0]).tanh()
        elif pooling != "none":
            chosen = POOLS[pooling](chosen, real)
        for row, index in enumerate(group):
            found[index] = (chosen[row, : len(encodings[index].ids)] if pooling == "none" else chosen[row]).cpu()
        if progress is not None:
            progress.advance(len(group))
    return found
