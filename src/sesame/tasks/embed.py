"""Embed: one vector for each text (or token), from the layers of your choice.

Layers are named in `layers.py`. Pooling over the tokens: `mean`, `max`, `cls` (the last token's state where nobody looks
ahead: the first one has seen itself alone), `pooler` (BERT's tanh layer on [CLS]), or `none` for all tokens.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from sesame.backbones import Backbone, Encoded
from sesame.backbones.base import at_end
from sesame.backbones.fast import FastEncoder
from sesame.config import unknown
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.nn.attention.multihead import take
from sesame.nn.steady import Steady, row_sums
from sesame.progress import Bar
from sesame.tasks.answer import Engine
from sesame.tasks.inputs import batch_of, by_length
from sesame.tasks.layers import choose_layers
from sesame.tasks.streams import even, side_by_side
from sesame.text import Encoding, Tokenizer

POOLS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": lambda x, lengths: row_sums(x, lengths) / lengths[:, None],
    "max": lambda x, lengths: x.masked_fill(~_real(x, lengths), -torch.inf).amax(1),
    "cls": lambda x, lengths: x[:, 0],
}


def embed(
    backbone: Backbone | FastEncoder | Engine,
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
    found: list[Tensor] = [torch.empty(0)] * len(encodings)
    device, pad = torch.device("cpu"), tokenizer.id("pad")
    if isinstance(backbone, Backbone):
        backbone.eval()
        device = next(backbone.parameters()).device

    def work(group: list[int]) -> None:
        batch = batch_of([encodings[i] for i in group], pad).to(device)
        with torch.inference_mode():
            if isinstance(backbone, Backbone | FastEncoder):
                encoded = _encode(backbone, batch, layers, pooling)
                with Steady():
                    vectors = _pool(encoded, layers, pooling, pooler, _cls(backbone, batch)).cpu()
            else:
                vectors = backbone.logits(batch)
        for row, index in enumerate(group):
            found[index] = vectors[row, : len(encodings[index].ids)] if pooling == "none" else vectors[row]
        if progress is not None:
            progress.advance(len(group))

    if isinstance(backbone, FastEncoder):
        side_by_side(work, even([len(encoding.ids) for encoding in encodings]))
    else:
        for group in by_length(encodings, alike=isinstance(backbone, Backbone) and device.type == "cpu"):
            work(group)
    return found


def _encode(backbone: Backbone | FastEncoder, batch: Batch, layers: str, pooling: str) -> Encoded:
    """No more of the last layer than is read."""
    only = _cls(backbone, batch) if layers == "last" and pooling in ("cls", "pooler") else None
    if isinstance(backbone, FastEncoder):
        return backbone(batch, only, last=layers == "last")
    with Steady():
        return backbone(batch, only)  # type: ignore[no-any-return]


def _cls(backbone: Backbone | FastEncoder, batch: Batch) -> Tensor:
    """Where the state of the whole text stands, as for tasks. (B, 1)"""
    return batch.lengths[:, None] - 1 if at_end(backbone) else batch.lengths.new_zeros(batch.size, 1)


def _pool(encoded: Encoded, layers: str, pooling: str, pooler: nn.Module | None, cls: Tensor) -> Tensor:
    chosen = choose_layers(layers, encoded.layers)
    if pooling == "none":
        return chosen
    if pooling in ("cls", "pooler"):
        first = (chosen if encoded.only is not None else take(chosen, cls))[:, 0]
        return first if pooling == "cls" or pooler is None else pooler(first).tanh()
    return encoded.mean(chosen) if pooling == "mean" else POOLS[pooling](chosen, encoded.batch.lengths)


def _real(x: Tensor, lengths: Tensor) -> Tensor:
    return (torch.arange(x.shape[1], device=x.device)[None] < lengths[:, None])[..., None]
