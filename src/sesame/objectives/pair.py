"""Objectives of [CLS]: next-sentence prediction, sentence order, real dialogues.

Papers: NSP: Devlin et al. 2018, "BERT", section 3.1, task 2. SOP: Lan et al. 2019, "ALBERT"
(https://arxiv.org/abs/1909.11942), section 3.1. Dialogue: Sun et al. 2019, "ERNIE" (https://arxiv.org/abs/1904.09223),
section 3.3.
Idea: from the [CLS] state tell how A and B belong together. NSP: did B really follow A, or come from another document (half
of the cases)? SOP: are two consecutive stretches of one document in order, or swapped (half of the cases)? Dialogue: is it
one, or does a turn come from another dialogue (half of the cases)?
    p = softmax(W tanh(W_p h_[CLS] + b_p) + b)
    nsp: 0: B follows A, 1: B is from elsewhere;  sop: 0: A and B in order, 1: swapped;  dialogue: 0: real, 1: not
Needs: packing "pairs" for NSP, "orders" for SOP, "dialogues" for dialogue, which draw the text and know the label.
Targets: "nsp", "sop" or "dialogue", one label for each example, or IGNORE (a single turn).
Relations: NSP can be solved by topic alone; SOP cannot, both sides share it. RoBERTa dropped the task.
Unusual: the tanh layer ("pooler") is part of this head; fine-tuning takes it over from here.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sesame.backbones import Backbone, Encoded
from sesame.data.batch import Batch
from sesame.nn.init import bert_init
from sesame.objectives.base import Objective, Term


@dataclass(frozen=True)
class NextSentenceConfig:
    weight: float = 1.0  # the paper adds the two losses as they are


@dataclass(frozen=True)
class SentenceOrderConfig:
    weight: float = 1.0  # the authors' code adds the two losses as they are


@dataclass(frozen=True)
class DialogueConfig:
    weight: float = 1.0  # ours: the paper says that the two are trained in turn, not how much


class PairHead(nn.Module):
    """Shape: [CLS] states (B, D) -> (B, 2)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.pooler = nn.Linear(width, width)
        self.out = nn.Linear(width, 2)
        self.apply(bert_init())

    def forward(self, first: Tensor) -> Tensor:
        return self.out(torch.tanh(self.pooler(first)))  # type: ignore[no-any-return]


class PairLabel(Objective):
    """What packing knows of a pair, told from [CLS]: `name` is "nsp", "sop" or "dialogue"."""

    def __init__(self, name: str, weight: float, head: PairHead) -> None:
        super().__init__()
        self.name, self.weight, self.head = name, weight, head

    def heads(self) -> dict[str, nn.Module]:
        return {"pooler": self.head.pooler, self.name: self.head.out}

    def looks_at(self, batch: Batch) -> Tensor | None:
        return batch.lengths.new_zeros(batch.size, 1)

    def terms(self, encoded: Encoded, backbone: Backbone) -> list[Term]:
        targets = encoded.batch.targets[self.name]
        logits = self.head(encoded.take(encoded.batch.lengths.new_zeros(encoded.batch.size, 1))[:, 0])
        total = F.cross_entropy(
            logits.float() if logits.dtype == torch.bfloat16 else logits, targets.labels, reduction="sum"
        )
        hits = None if self.training else (logits.argmax(-1) == targets.labels).sum()
        return [Term(self.name, total, targets.count(), hits=hits)]
