"""What every objective is: it corrupts a batch, then tells how wrong the backbone was.

A loss leaves here as a sum and a count, never as a mean. Only the loop knows all micro-batches and ranks of a step, so only
it divides: 4 batches of 8 then equal 1 batch of 32 whatever their lengths.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from sesame.backbones import Backbone, Encoded, Encoder
from sesame.data.batch import Batch


@dataclass(frozen=True)
class Term:
    """One summand of the loss: weight * total / (count over the whole step)."""

    name: str
    total: Tensor  # sum of losses, a scalar with a gradient
    count: Tensor  # over how many targets
    weight: float = 1.0
    hits: Tensor | None = None  # how many of them were right; computed in evaluation only
    figures: Mapping[str, Tensor] = field(default_factory=dict)  # health, live: name -> (2,), how many of how many
    ranking: tuple[Tensor, Tensor] | None = None  # scores and truths (N,), to be ranked together; in evaluation only


@dataclass(frozen=True)
class Vocab:
    """What corruption must know of the tokenizer: ids by role, and how many there are."""

    size: int
    roles: Mapping[str, int]
    front: int = 1  # tokens before a text: [CLS], or none
    sentinels: tuple[int, ...] = ()  # that stand for hidden spans, in their order (T5)
    stops: tuple[int, ...] = ()  # that end a sentence
    start: int | None = None  # what the decoder of a model that exists reads first; None: the objective chooses


Beside = tuple[Encoder, dict[str, nn.Module]]
"""An encoder and its heads by name."""


class Objective(nn.Module):
    """One file, one method. It owns its heads; the backbone comes with every call."""

    needs_words = False  # True: the batch must carry word numbers
    own_pass = False  # True: it runs the backbone in a way of its own, and so it must be alone
    weight: float = 1.0

    def corrupt(self, batch: Batch, progress: float = 1.0) -> Batch:
        """Make inputs and targets; pure given the batch's keys. `progress` runs from 0 to 1 over the training."""
        return batch

    def before(self, batch: Batch) -> tuple[Batch, list[Term]]:
        """What comes ahead of the backbone's pass: other inputs for it, and terms of a network of one's own."""
        return batch, []

    def looks_at(self, batch: Batch) -> Tensor | None:
        """The only places of the last layer that this objective reads, (B, K); None: all of them."""
        return None

    def terms(self, encoded: Encoded, backbone: Backbone) -> list[Term]:
        raise NotImplementedError

    def heads(self) -> dict[str, nn.Module]:
        """The trained parts that a checkpoint keeps, by the names it knows them under."""
        return {}

    def beside(self) -> "dict[str, Beside]":
        """Other encoders that are trained along: a checkpoint keeps each in a folder of this name."""
        return {}

    def apart(self) -> list[nn.Module]:
        """Networks whose gradients are clipped by themselves; what they share with the backbone stays with it."""
        return []

    def paces(self) -> list[tuple[nn.Module, float]]:
        """Networks with a rate of their own, as a multiple of the common one; what they share stays with the backbone."""
        return []

    def forward(self, backbone: Backbone, batch: Batch) -> list[Term]:
        batch, first = self.before(batch)
        return first + self.terms(backbone(batch, self.looks_at(batch)), backbone)


class Together(Objective):
    """Several objectives on one pass of the backbone; their weighted sum is the loss."""

    def __init__(self, parts: Mapping[str, Objective]) -> None:
        super().__init__()
        self.parts = nn.ModuleDict(parts)
        self.needs_words = any(part.needs_words for part in parts.values())

    def all(self) -> list[Objective]:
        return [part for part in self.parts.values() if isinstance(part, Objective)]

    def heads(self) -> dict[str, nn.Module]:
        return {name: head for part in self.all() for name, head in part.heads().items()}

    def beside(self) -> dict[str, Beside]:
        return {name: found for part in self.all() for name, found in part.beside().items()}

    def apart(self) -> list[nn.Module]:
        return [module for part in self.all() for module in part.apart()]

    def paces(self) -> list[tuple[nn.Module, float]]:
        return [pace for part in self.all() for pace in part.paces()]

    def corrupt(self, batch: Batch, progress: float = 1.0) -> Batch:
        for part in self.all():
            batch = part.corrupt(batch, progress)
        return batch

    def present(self, batch: Batch) -> list[Objective]:
        """The parts that this batch has targets for: with several tasks a batch belongs to one of them."""
        return [part for name, part in self.parts.items() if name in batch.targets and isinstance(part, Objective)]

    def looks_at(self, batch: Batch) -> Tensor | None:
        places = [part.looks_at(batch) for part in self.present(batch)]
        if any(place is None for place in places):
            return None
        asked = [place for place in places if place is not None]
        return asked[0] if len(asked) == 1 else torch.cat(asked, dim=1)

    def before(self, batch: Batch) -> tuple[Batch, list[Term]]:
        found: list[Term] = []
        for part in self.present(batch):
            batch, terms = part.before(batch)
            found += _weighted(terms, part)
        return batch, found

    def forward(self, backbone: Backbone, batch: Batch) -> list[Term]:
        alone = [part for part in self.present(batch) if part.own_pass]
        if alone:
            return [term for part in alone for term in _weighted(part(backbone, batch), part)]
        return super().forward(backbone, batch)

    def terms(self, encoded: Encoded, backbone: Backbone) -> list[Term]:
        return [term for part in self.present(encoded.batch) for term in _weighted(part.terms(encoded, backbone), part)]


def _weighted(terms: list[Term], part: Objective) -> list[Term]:
    return [replace(term, weight=term.weight * part.weight) for term in terms]
