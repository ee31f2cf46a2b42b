"""Several models that speak as one.

    probabilities:      p(v) = 1/M sum_m p_m(v)
    log-probabilities:  log p(v) = 1/M sum_m log p_m(v) + const   (the geometric mean, "log-linear")

The first is the mean of experts, the usual one; the second needs all to agree. All models must share a vocabulary.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.generate.base import Heard, Memory, Speaker

Mean = Literal["probabilities", "log-probabilities"]


@dataclass(frozen=True)
class Memories:
    each: list[Memory]

    def select(self, rows: Tensor) -> "Memories":
        return Memories([memory.select(rows) for memory in self.each])


class Ensemble:
    """A `Speaker` made of others."""

    def __init__(self, speakers: Sequence[Speaker], mean: Mean = "probabilities") -> None:
        if not speakers:
            raise SesameError("an ensemble has no model; name at least one")
        if mean not in get_args(Mean):
            raise SesameError(f"the mean of an ensemble is {mean!r}; choose one of {', '.join(get_args(Mean))}")
        sizes = [speaker.vocab for speaker in speakers]
        if len(set(sizes)) > 1:
            raise SesameError(
                f"the models of an ensemble have vocabularies of {', '.join(map(str, sizes))} tokens; "
                "take models with one tokenizer"
            )
        self.speakers, self.mean, self.vocab = list(speakers), mean, sizes[0]

    def begin(self, batch: Batch, looks: bool = False) -> Heard:
        return self._together([speaker.begin(batch, looks) for speaker in self.speakers])

    def next(self, ids: Tensor, memory: Memory, looks: bool = False) -> Heard:
        assert isinstance(memory, Memories)
        pairs = zip(self.speakers, memory.each, strict=True)
        return self._together([speaker.next(ids, own, looks) for speaker, own in pairs])

    def _together(self, heard: list[Heard]) -> Heard:
        memory = Memories([one.memory for one in heard])
        if len(heard) == 1:
            return Heard(heard[0].logits, memory, heard[0].looked)
        join: Callable[[Tensor, Tensor], Tensor] = torch.logaddexp if self.mean == "probabilities" else torch.add
        logits = heard[0].logits.log_softmax(1)
        for one in heard[1:]:
            logits = join(logits, one.logits.log_softmax(1))
        logits = logits - math.log(len(heard)) if self.mean == "probabilities" else logits / len(heard)
        looked = [one.looked for one in heard if one.looked is not None]
        whole = torch.stack(looked).mean(0) if len(looked) == len(heard) else None
        return Heard(logits, memory, whole)
