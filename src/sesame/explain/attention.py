"""All attention of a model on one text, or pair: every layer, every head.

Of an encoder-decoder there are two kinds: the encoder's looks at its own text, and the decoder's looks at the source while it
answers (recurrent ones with attention too; see `alignment.py`). A row looks at its columns; rows sum to 1.

Attention is not explanation: other weights often give the same answer (Jain & Wallace 2019, https://arxiv.org/abs/1902.10186;
but see Wiegreffe & Pinter 2019, https://arxiv.org/abs/1908.04626). It says where a head looked, not what decided.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from sesame.backbones import EncoderDecoder
from sesame.checkpoint.folder import Parts
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.explain.alignment import looks, told_and_read
from sesame.explain.asked import shown

CAPTION = (
    "Attention is not explanation: it shows where a head looked, not what decided the answer. Other weights can lead to the "
    "same answer, and much of it rests on [CLS], [SEP] and full stops, where a head looks when it has nothing to do."
)


@dataclass(frozen=True)
class Maps:
    """One kind of attention: `layers` are (heads, rows, columns) each."""

    name: str
    rows: list[str]
    columns: list[str]
    layers: list[npt.NDArray[np.float32]]


def look(parts: Parts, text: str, pair: str | None = None, answer: str | None = None, beams: int = 5) -> list[Maps]:
    """All maps; `answer` is for an encoder-decoder, whose own one is taken otherwise."""
    if parts.tokenizer is None:
        raise SesameError("this model has no tokenizer; put tokenizer.json or vocab.txt beside the weights")
    parts.backbone.eval()
    if parts.backbone.answers:
        if pair is not None:
            raise SesameError("an encoder-decoder reads one source; leave out --pair, and give an answer with --label")
        return _of_both(parts, text, answer, beams)
    tokens, batch = read(parts, text, pair)
    with torch.inference_mode():
        maps = parts.backbone(batch, maps=True).maps
    if not maps:
        raise SesameError("this model reads without attention, so there are no maps to show; take a Transformer")
    return [Maps("self-attention", tokens, tokens, [_array(layer) for layer in maps])]


def read(parts: Parts, text: str, pair: str | None) -> tuple[list[str], Batch]:
    """A text, or pair, as a model that only reads takes it: its tokens as they are shown, and a batch of one."""
    tokenizer, backbone = parts.tokenizer, parts.backbone
    assert tokenizer is not None
    encoding = tokenizer.encode(text, special=True) if pair is None else tokenizer.encode_pair(text, pair)
    size, longest = len(encoding.ids), backbone.longest
    if longest is not None and size > longest:
        raise SesameError(f"the text has {size} tokens, the model takes {longest}; shorten it")
    if not size:
        raise SesameError("the text holds no token of the model; give it some text")
    last = max(backbone.segment_kinds, 1) - 1
    segments = torch.tensor([[min(segment, last) for segment in encoding.segments]])
    batch = Batch(torch.tensor([encoding.ids]), torch.tensor([size]), segments=segments if last else None, full=True)
    return shown(tokenizer, encoding.ids), batch.to(next(backbone.parameters()).device)  # some have no token table


def _of_both(parts: Parts, text: str, answer: str | None, beams: int) -> list[Maps]:
    assert parts.tokenizer is not None
    said = told_and_read(parts, text, answer, beams)
    with _encoder_maps(parts) as inside:
        outside = looks(parts, said)
    read, told = shown(parts.tokenizer, said.read), shown(parts.tokenizer, said.told)
    found = [Maps("the answer looks at the source", told, read, outside)]
    if inside:
        placed = [_in_order(_array(layer), said.order) for layer in inside]
        found.append(Maps("self-attention of the encoder", read, read, placed))
    return found


def _in_order(layer: npt.NDArray[np.float32], order: list[int]) -> npt.NDArray[np.float32]:
    """A source that is read from its end is shown in its own order."""
    placed = np.empty_like(layer)
    placed[np.ix_(range(len(layer)), order, order)] = layer
    return placed


@contextmanager
def _encoder_maps(parts: Parts) -> Iterator[list[Tensor]]:
    """What the encoder's blocks see, in order; they are asked for it by a hook, since the model gives the decoder's only."""
    seen: list[Tensor] = []
    blocks = parts.backbone.encoder.blocks if isinstance(parts.backbone, EncoderDecoder) else ()

    def wish(module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return given, named | {"maps": seen}

    hooks = [block.register_forward_pre_hook(wish, with_kwargs=True) for block in blocks]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def _array(layer: Tensor) -> npt.NDArray[np.float32]:
    found: npt.NDArray[np.float32] = layer[0].float().cpu().numpy()
    return found
