"""Sentence-pair objectives: next-sentence prediction.

Paper: Devlin et al. 2018, "BERT", section 3.1, task 2.
Idea: from the [CLS] state tell whether B really followed A or came from another document (half of the cases).
    p = softmax(W tanh(W_p h_[CLS] + b_p) + b);  label 0: B follows A, 1: B is from elsewhere
Needs: packing "pairs", which draws B and knows the label.
Targets: "nsp", one label for each example.
Relations: ALBERT's sentence order (SOP) asks the harder question whether A and B were swapped; RoBERTa dropped the task.
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


class PairHead(nn.Module):
    """Shape: [CLS] states (B, D) -> (B, 2)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.pooler = nn.Linear(width, width)
        self.out = nn.Linear(width, 2)
        self.apply(bert_init())

    def forward(self, first: Tensor) -> Tensor:
        return self.out(torch.tanh(self.pooler(first)))  # type: ignore[no-any-return]


class NextSentence(Objective):
    def __init__(self, config: NextSentenceConfig, head: PairHead) -> None:
        super().__init__()
        self.config, self.head, self.weight = config, head, config.weight

    def heads(self) -> dict[str, nn.Module]:
        return {"pooler": self.head.pooler, "nsp": self.head.out}

    def looks_at(self, batch: Batch) -> Tensor | None:
        return batch.lengths.new_zeros(batch.size, 1)

    def terms(self, encoded: Encoded, backbone: Backbone) -> list[Term]:
        targets = encoded.batch.targets["nsp"]
        logits = self.head(encoded.take(encoded.batch.lengths.new_zeros(encoded.batch.size, 1))[:, 0])
        total = F.cross_entropy(
            logits.float() if logits.dtype == torch.bfloat16 else logits, targets.labels, reduction="sum"
        )
        hits = None if self.training else (logits.argmax(-1) == targets.labels).sum()
        return [Term("nsp", total, targets.count(), hits=hits)]
