"""Perplexity of a model that reads both ways (ELMo): of the words ahead to the one half, of those behind to the other.

    forward  = exp(- mean of log p(w_k | w_1 ... w_{k-1}))      backward = exp(- mean of log p(w_k | w_{k+1} ... w_N))

Texts are read in windows that know nothing of each other, each between the marks of a sentence as in training; each word is
asked for once by either half, the marks around a window are not. A piece is a word of the model's: one that is no token of
its own is the unknown word to the softmax, which flatters; they are counted and said.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from sesame.backbones import BiLM
from sesame.checkpoint.folder import Parts
from sesame.data.batch import IGNORE, Batch
from sesame.errors import SesameError
from sesame.evaluate.perplexity import TOKENS, Reading, Surprise, length_of, padded, rows_of, say_unknown, sizes_of
from sesame.objectives.base import Vocab
from sesame.objectives.bilm import SOFTMAXES, BiLMObjective, BiLMObjectiveConfig
from sesame.progress import Bar


@torch.no_grad()
def both_ways(
    parts: Parts, texts: Sequence[str], reading: Reading | None = None, progress: Bar | None = None
) -> dict[str, Surprise]:
    """How unexpected these texts are to either half: "forward" and "backward"."""
    backbone, tokenizer, reading = parts.backbone, parts.tokenizer, reading or Reading()
    assert isinstance(backbone, BiLM)
    name = next((name for name in SOFTMAXES if name in parts.heads), None)
    if name is None or tokenizer is None:
        raise SesameError("perplexity: this model tells no words; its softmax comes with `sesame pretrain elmo`")
    if reading.memory or reading.stride or reading.remember is not None or reading.rows > 1:
        raise SesameError("perplexity: a model that reads both ways has neither memory nor stride; set a length alone")
    length = reading.length or length_of(backbone, False)
    if not 3 <= length <= backbone.config.max_length:
        raise SesameError(
            f"perplexity: length {length}; this model reads from 3 to {backbone.config.max_length} tokens"
        )
    objective = _objective(parts, name)
    rows, between = rows_of(tokenizer, texts, reading)
    marks = tokenizer.id("cls"), tokenizer.id("sep")
    inside = [row[at : at + length - 2] for row in rows for at in range(0, len(row), length - 2)]
    windows = sorted(([marks[0], *row, marks[1]] for row in inside), key=len)
    nats, pieces, unknown = dict.fromkeys(("forward", "backward"), 0.0), 0, 0
    each = max(1, TOKENS // length)
    for at in range(0, len(windows), each):
        group = windows[at : at + each]
        batch = Batch(padded(group, tokenizer.id("pad")), torch.tensor([len(row) for row in group]))
        asked = {way: _without_marks(objective.corrupt(batch).targets[way].labels, way == "forward") for way in nats}
        halves = backbone(batch.to(next(backbone.parameters()).device)).last.chunk(2, -1)
        for (way, labels), states in zip(asked.items(), halves, strict=True):
            real = labels != IGNORE
            nats[way] += float(objective.head.tell(states[real], labels[real].to(states.device), False)[0])
        pieces += int(real.sum())
        unknown += int((labels == objective.unknown).sum())
        if progress is not None:
            progress.advance(int(real.sum()))
    say_unknown(unknown)
    return {way: Surprise(found, pieces, *sizes_of(texts, between), unknown) for way, found in nats.items()}


def _objective(parts: Parts, name: str) -> BiLMObjective:
    """What training asked, with the softmax that the model has."""
    assert isinstance(parts.backbone, BiLM)
    assert parts.tokenizer is not None
    config = BiLMObjectiveConfig(softmax="full" if name == "bilm" else "adaptive")
    with torch.device("meta"):  # its own softmax is not needed
        objective = BiLMObjective(config, parts.backbone, Vocab(len(parts.tokenizer), parts.tokenizer.ids()))
    objective.head = parts.heads[name]  # type: ignore[assignment]
    parts.backbone.eval(), objective.eval()
    return objective


def _without_marks(labels: Tensor, forward: bool) -> Tensor:
    """The half that reads ahead is asked for the mark behind the last word, the other for the one before the first."""
    asked = labels != IGNORE
    numbers = asked.flip(1).cumsum(1).flip(1) if forward else asked.cumsum(1)
    return labels.masked_fill(asked & (numbers == 1), IGNORE)
