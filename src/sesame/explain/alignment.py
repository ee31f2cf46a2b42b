"""Where a decoder looks while it answers: the alignment of source and answer.

Papers: Bahdanau, Cho & Bengio 2015 (https://arxiv.org/abs/1409.0473, figure 3) for recurrent decoders; Garg et al. 2019
(https://arxiv.org/abs/1909.02074) for Transformers: the heads of one layer, averaged; the last layer but one aligns best.
A row is the look that chose a token of the answer, a column a token of the source.

Unusual: the answer may be given (forced), so that two models can be asked about the same words. A source that the model reads
from its end is shown in its own order.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from sesame.checkpoint.folder import Parts
from sesame.checkpoint.speech import answers, voice_of
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.text import Tokenizer
from sesame.text.template import around


@dataclass(frozen=True)
class Alignment:
    source: list[str]
    answer: list[str]
    weights: npt.NDArray[np.float32]  # (answer, source)
    layer: int  # from 1; of how many
    layers: int


@dataclass(frozen=True)
class Told:
    """A source and an answer to it as numbers."""

    read: list[int]  # the source in its own order
    order: list[int]  # which of it is read first, second ...
    told: list[int]  # the answer
    outputs: list[int]  # what the decoder reads to give it


def told_and_read(parts: Parts, source: str, answer: str | None = None, beams: int = 5) -> Told:
    """The model's own answer, or the one given."""
    tokenizer = parts.tokenizer
    if not parts.backbone.answers or tokenizer is None:
        raise SesameError("this model has no encoder and decoder with a tokenizer; an alignment needs both")
    if not source.strip():
        raise SesameError("the source holds no text, so there is nothing to look at; give one")
    voice = voice_of(parts)
    if answer is None:
        (said,) = answers(parts, [source], {"beams": beams})
        told = [*said[0].ids, *(voice.end[:1] if said[0].ended else ())]
    else:
        told = [*voice.first, *tokenizer.answers.encode(answer, literal=True).ids, *voice.end[:1]]
    read = tokenizer.encode(voice.read(source), special=True, literal=True).ids
    longest = parts.backbone.longest
    if longest is not None and max(len(read), len(told)) > longest:
        raise SesameError(f"the source has {len(read)} and the answer {len(told)} tokens; the model takes {longest}")
    return Told(read, _order(tokenizer, len(read), voice.reverse), told, [*voice.start, *told[:-1]])


def looks(parts: Parts, said: Told) -> list[npt.NDArray[np.float32]]:
    """For each layer of the decoder, for each head, where each token of the answer came from. Shape: (H, answer, source)."""
    maps = _maps(parts, [said.read[at] for at in said.order], said.outputs)
    found = []
    for layer in maps:
        weights = np.empty((len(layer), len(said.told), len(said.read)), dtype=np.float32)
        weights[:, :, said.order] = layer[:, len(said.outputs) - len(said.told) :]
        found.append(weights)
    return found


def align(parts: Parts, source: str, answer: str | None = None, layer: int | None = None, beams: int = 5) -> Alignment:
    """The looks behind an answer: the model's own, or the one given; `layer` from 1, otherwise the last but one."""
    said = told_and_read(parts, source, answer, beams)
    maps = looks(parts, said)
    number = _layer(layer, len(maps))
    assert parts.tokenizer is not None
    source_tokens, answer_tokens = (_shown(parts.tokenizer, ids) for ids in (said.read, said.told))
    return Alignment(source_tokens, answer_tokens, maps[number - 1].mean(0), number, len(maps))


def _order(tokenizer: Tokenizer, size: int, reverse: bool) -> list[int]:
    """Which token is read first, second ..."""
    front, back = map(len, around(tokenizer))
    inner = range(front, size - back)
    return [*range(front), *(reversed(inner) if reverse else inner), *range(size - back, size)]


def _maps(parts: Parts, read: list[int], outputs: list[int]) -> list[npt.NDArray[np.float32]]:
    """For each layer all heads. Shape: (H, K, L)."""
    device = parts.backbone.token_table().device
    batch = Batch(torch.tensor([read]), torch.tensor([len(read)]), outputs=torch.tensor([outputs]), full=True).to(
        device
    )
    parts.backbone.eval()
    with torch.inference_mode():
        found = parts.backbone(batch, maps=True).maps
    if not found:
        raise SesameError("this model answers without attention, so there is no alignment; train one with attention")
    return [layer[0].float().cpu().numpy() for layer in found]


def _layer(wanted: int | None, count: int) -> int:
    if wanted is None:
        return max(count - 1, 1)
    if not 1 <= wanted <= count:
        raise SesameError(f"--layer {wanted}: the decoder looks in layers 1 to {count}")
    return wanted


def _shown(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    return [tokenizer.shown(id).strip() or "␣" for id in ids]
