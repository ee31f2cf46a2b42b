"""Embed: one vector for each text (or token), from the layers of your choice.

Layers are named in `layers.py`. Pooling over the tokens: `mean`, `max`, `cls`, `pooler` (BERT's tanh layer on [CLS]), or
`none` for all tokens.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from sesame.backbones import Backbone
from sesame.config import unknown
from sesame.errors import SesameError
from sesame.progress import Bar
from sesame.tasks.inputs import batch_of, by_length
from sesame.tasks.layers import choose_layers
from sesame.text import Encoding, Tokenizer

POOLS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": lambda x, real: (x * real[..., None]).sum(1) / real.sum(1)[:, None],
    "max": lambda x, real: x.masked_fill(~real[..., None], -torch.inf).amax(1),
    "cls": lambda x, real: x[:, 0],
}


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
