"""Forward and backward language modelling: tell the next word and the one before.

Paper: Peters et al. 2018, "Deep contextualized word representations" (ELMo, https://arxiv.org/abs/1802.05365), section 3.1.
Idea: of two stacks that never meet, the one that reads from the left tells the next word, the other the word before; both
share what reads the letters and what tells the words, and learn jointly.
    loss = - sum over words k of (log p(w_{k+1} | w_1 ... w_k) + log p(w_{k-1} | w_k ... w_N)) / 2
Needs: the backbone "bilm". A word is asked for if it is one token; any other is the unknown word to the softmax, while its
letters are read all the same.
Targets: "forward" and "backward", labels (B, L): at the first token of each word, [CLS] and [SEP] being words too, the one
ahead and the one behind; "bilm" is the former once more, and says that the batch is for this objective.
Relations: `clm` is the left half. TagLM and ELMo read the states of this as they are, without tuning.
Softmax: `full` computes every word, up to some hundred thousand; for more, `adaptive` (Grave et al. 2017,
https://arxiv.org/abs/1609.04309) groups words by frequency and computes the rare groups only where they are met. Both give
exact likelihoods; the authors sample 8,192 wrong words instead, which is quick but only an estimate.
Unusual: the half is that of the authors' code, so that the loss is that of a word as in `clm`. The perplexity of a direction
is exp of its loss, which held-out text gives by the names "forward" and "backward"; compare it for equal vocabularies only.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sesame.backbones import Backbone, Encoded
from sesame.backbones.bilm import BiLM
from sesame.data.batch import IGNORE, Batch, Targets
from sesame.nn.spelled import word_begins
from sesame.objectives.base import Objective, Term, Vocab
from sesame.objectives.decoder_head import DecoderHead

SHARES = (0.04, 0.2)  # of the vocabulary: where the groups of an adaptive softmax end, but for the last
NARROWER = 4.0  # so much narrower is each group than the one before (PyTorch's and the paper's)


@dataclass(frozen=True)
class BiLMObjectiveConfig:
    weight: float = 1.0
    softmax: Literal["full", "adaptive"] = "full"


class FullSoftmax(DecoderHead):
    """Every word, from a table of its own. Shape: (N, D / 2) -> (N, V padded)."""

    def __init__(self, width: int, vocab: int) -> None:
        super().__init__(width, vocab, tied=False, bias="trained")

    def tell(self, hidden: Tensor, labels: Tensor, hits: bool) -> tuple[Tensor, Tensor | None]:
        """The summed loss, and how many words were right if `hits` asks for it. Labels may be IGNORE."""
        assert self.table is not None
        if not hits:
            return self.loss(hidden, self.table, labels), None
        logits = self(hidden, self.table)
        logits = logits.float() if logits.dtype == torch.bfloat16 else logits
        total = F.cross_entropy(logits, labels, reduction="sum", ignore_index=IGNORE)
        return total, ((logits.argmax(-1) == labels) & (labels != IGNORE)).sum()


class AdaptiveSoftmax(nn.Module):
    """PyTorch's, for ids that follow frequency; in 32 bits, because it keeps logarithms of probabilities."""

    def __init__(self, width: int, vocab: int) -> None:
        super().__init__()
        ends = sorted({max(1, round(vocab * share)) for share in SHARES} - {vocab})
        narrower = min(NARROWER, 0.999 * width ** (1 / len(ends)))  # the last group is one number wide at least
        self.groups = nn.AdaptiveLogSoftmaxWithLoss(width, vocab, ends, narrower, head_bias=True)

    def tell(self, hidden: Tensor, labels: Tensor, hits: bool) -> tuple[Tensor, Tensor | None]:
        real = labels != IGNORE
        exact = torch.promote_types(hidden.dtype, torch.float32)
        hidden, labels = hidden[real].to(exact), labels[real]
        if not len(labels):
            return hidden.sum() * 0.0, (labels.sum() if hits else None)
        weights = {name: weight.to(exact) for name, weight in self.groups.named_parameters()}
        with torch.autocast(hidden.device.type, enabled=False):
            told = torch.func.functional_call(self.groups, weights, (hidden, labels))
            return -told.output.sum(), ((self.groups.predict(hidden) == labels).sum() if hits else None)


SOFTMAXES: dict[str, type[FullSoftmax | AdaptiveSoftmax]] = {"bilm": FullSoftmax, "bilm_adaptive": AdaptiveSoftmax}
"""By the names under which a checkpoint keeps them."""


class BiLMObjective(Objective):
    def __init__(self, config: BiLMObjectiveConfig, backbone: BiLM, vocab: Vocab) -> None:
        super().__init__()
        self.config, self.weight, self.unknown = config, config.weight, vocab.roles["unk"]
        self.name = "bilm" if config.softmax == "full" else "bilm_adaptive"
        self.head = SOFTMAXES[self.name](backbone.width // 2, backbone.vocab)
        # Of the loader's side, so it stays on the CPU.
        self.starts = None if backbone.spelled is None else backbone.spelled.starts.cpu().clone()

    def heads(self) -> dict[str, nn.Module]:
        return {self.name: self.head}

    def corrupt(self, batch: Batch, progress: float = 1.0) -> Batch:
        ids, (_, length) = batch.ids, batch.ids.shape
        real = torch.arange(length, device=ids.device)[None, :] < batch.lengths[:, None]
        begins = real if self.starts is None else word_begins(self.starts.to(ids.device)[ids], batch.lengths)
        number = begins.cumsum(1) - 1
        tokens = torch.zeros_like(ids).scatter_add(1, number, real.long())  # of each word
        told = torch.where(tokens.gather(1, number) > 1, self.unknown, ids)
        # The words of a row, with none before the first and behind the last; tokens that begin none are written aside.
        words = ids.new_full((len(ids), length + 3), IGNORE)
        words = words.scatter(1, torch.where(begins, number + 1, length + 2), told)
        ahead = Targets(torch.where(begins, words.gather(1, number + 2), IGNORE))
        behind = Targets(torch.where(begins, words.gather(1, number), IGNORE))
        return batch.with_targets(bilm=ahead, forward=ahead, backward=behind)

    def terms(self, encoded: Encoded, backbone: Backbone) -> list[Term]:
        halves, targets = encoded.last.chunk(2, -1), encoded.batch.targets
        return [
            self._term(name, half, targets[name].labels)
            for name, half in zip(("forward", "backward"), halves, strict=True)
        ]

    def _term(self, name: str, states: Tensor, labels: Tensor) -> Term:
        hidden, labels = states.flatten(0, 1), labels.flatten()
        count = (labels != IGNORE).sum()
        unknown = {"unknown": torch.stack([(labels == self.unknown).sum(), count])} if name == "forward" else {}
        if hidden.device.type == "cpu":  # no static shapes to keep
            real = labels != IGNORE
            hidden, labels = hidden[real], labels[real]
        total, hits = self.head.tell(hidden, labels, not self.training)
        return Term(name, total, count, weight=0.5, hits=hits, figures=unknown)
