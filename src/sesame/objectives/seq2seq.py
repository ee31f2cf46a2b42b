"""Sequence to sequence: tell the tokens of one text, one after the other, from another text.

Paper: Vaswani et al. 2017, "Attention is all you need" (https://arxiv.org/abs/1706.03762), section 5.4 for the smoothing.
Idea: the encoder reads the source; the decoder, which sees the wanted text up to a place, tells the token that follows. With
label smoothing the truth is 1 - eps of the wanted token and eps of all tokens alike, so that the model is never too sure.
    nll = - sum over k of log p(y_k | y_1 ... y_{k-1}, x)
    loss = (1 - eps) nll + eps sum over k of mean over v of -log p(v | y_1 ... y_{k-1}, x)
Needs: an encoder-decoder backbone, whose last layer (B, K, D) is the decoder's.
Targets: its own name, labels (B, K), IGNORE at padding; `Batch.outputs`, what the decoder reads: a start token, then the
labels one place to the right.
Relations: `span` (T5), `denoise` (BART) and `mass` are this with a source that a `Corruption` makes from the target; the loss
is one. The checkpoint keeps all their heads under one name, so that any of them goes on from any other. With `agreement`
every pair is passed twice (R-Drop).
Unusual: the mean over the vocabulary counts the truth too (Szegedy et al. 2016, PyTorch, fairseq until 2020). Tensor2tensor,
the authors' code, and fairseq today give eps / (V - 1) to each of the others and none to the truth: that is this with
eps V / (V - 1), no difference that could be measured. The smoothed loss keeps no logits either: with z = W x + b,
    loss = sum over k of logsumexp(z) - z_y + eps (z_y - mean z),  mean z = (mean W) x + mean b
Evaluation reports the plain nll, so that its exponential is the perplexity.
"""

from dataclasses import dataclass, replace
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sesame.backbones import Backbone, Encoded
from sesame.data.batch import IGNORE, Batch, Targets
from sesame.errors import SesameError
from sesame.nn.attention.hard import reinforce
from sesame.objectives.agreement import agreed, twice
from sesame.objectives.base import Objective, Term
from sesame.objectives.decoder_head import DecoderHead


@dataclass(frozen=True)
class Seq2SeqConfig:
    weight: float = 1.0
    smoothing: float = 0.1  # eps
    agreement: float = 0.0  # R-Drop's alpha; 0: one pass

    def __post_init__(self) -> None:
        if not 0 <= self.smoothing < 1:
            raise SesameError(f"objectives.seq2seq.smoothing is {self.smoothing}; it lies from 0 to below 1")
        if not 0 <= self.agreement < float("inf"):
            raise SesameError(f"objectives.seq2seq.agreement is {self.agreement}; it is 0 or above, such as 5")


@dataclass(frozen=True)
class Exercise:
    """What a corruption makes of a batch of texts: sources, and what is to be told from them."""

    ids: Tensor  # (B, L')
    lengths: Tensor  # (B,)
    labels: Tensor  # (B, K), IGNORE at padding
    full: bool = False  # no source has padding
    outputs: Tensor | None = None  # (B, K) what the decoder reads; None: the labels, one place to the right
    at: Tensor | None = None  # (B, K) where in the text the labels stand; None: 0, 1, 2 ...


class Corruption(Protocol):
    """A pure function of texts and `batch.keys`."""

    needs_words: bool

    def __call__(self, batch: Batch) -> Exercise: ...


class Seq2Seq(Objective):
    """The decoder's loss. Without a corruption the batch brings sources and, under `name`, labels."""

    def __init__(
        self,
        name: str,
        head: DecoderHead,
        start: int,
        pad: int,
        smoothing: float = 0.0,
        weight: float = 1.0,
        corruption: Corruption | None = None,
        agreement: float = 0.0,
    ) -> None:
        super().__init__()
        self.name, self.head, self.start, self.pad, self.agreement = name, head, start, pad, agreement
        self.smoothing, self.weight, self.corruption = smoothing, weight, corruption
        self.needs_words = corruption is not None and corruption.needs_words

    def heads(self) -> dict[str, nn.Module]:
        return {"seq2seq": self.head}

    def corrupt(self, batch: Batch, progress: float = 1.0) -> Batch:
        """Sources and labels, and what the decoder reads.

        Segments, positions, words and languages of the text do not fit a corrupted source and are left out.
        """
        if self.corruption is None:
            labels = batch.targets[self.name].labels
            return replace(batch, outputs=shifted(labels, self.start, self.pad))
        made = self.corruption(batch)
        outputs = shifted(made.labels, self.start, self.pad) if made.outputs is None else made.outputs
        at = None if made.at is None else (made.at - 1).clamp(min=0)
        found = Batch(
            made.ids, made.lengths, keys=batch.keys, outputs=outputs, output_positions=at, full=made.full,
            targets=batch.targets,
        )  # fmt: skip
        return found.with_targets(**{self.name: Targets(made.labels, made.at)})

    def before(self, batch: Batch) -> tuple[Batch, list[Term]]:
        return (twice(batch) if self.training and self.agreement else batch), []

    def terms(self, encoded: Encoded, backbone: Backbone) -> list[Term]:
        targets, table = encoded.batch.targets[self.name], backbone.token_table()
        hidden, labels = encoded.last.flatten(0, 1), targets.labels.flatten()
        if hidden.device.type == "cpu":  # no static shapes to keep: leave the padding out
            hidden, labels = hidden[labels != IGNORE], labels[labels != IGNORE]
        if self.training:
            passes = 2 if self.agreement else 1
            total = self._loss(hidden, table, labels)
            total = total if encoded.looked is None else total + self._looked(encoded, targets.labels, table) / passes
            return [Term(self.name, total, targets.count() // passes)]
        logits = self.head(hidden, table)
        total = F.cross_entropy(logits.float() if logits.dtype == torch.bfloat16 else logits, labels, reduction="sum")
        hits = ((logits.argmax(-1) == labels) & (labels != IGNORE)).sum()
        return [Term(self.name, total, targets.count(), hits=hits)]

    def _loss(self, hidden: Tensor, table: Tensor, labels: Tensor) -> Tensor:
        if not self.agreement:
            return self.head.loss(hidden, table, labels, self.smoothing)
        logits = self.head(hidden, table)[:, : self.head.vocab]
        return agreed(logits, labels, self.smoothing, self.agreement)

    def _looked(self, encoded: Encoded, labels: Tensor, table: Tensor) -> Tensor:
        """What a recurrent decoder's looks add: coverage (See et al. 2017, equation 13, λ = 1) and the gradient of draws.

        A draw answers for all that is paid from it on: smoothed losses and coverage, which has no other gradient then.
        """
        assert encoded.looked is not None
        told, looked, total = labels != IGNORE, encoded.looked, encoded.last.new_zeros(())
        if looked.repeated is not None:
            total = total + (looked.repeated * told).sum()
        if looked.chosen is not None:
            with torch.no_grad():
                logits = self.head(encoded.last.flatten(0, 1), table)[:, : self.head.vocab]
                logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
                losses = F.cross_entropy(logits, labels.flatten(), reduction="none", label_smoothing=self.smoothing)
                losses = losses.view(labels.shape) + (0.0 if looked.repeated is None else looked.repeated)
            total = total + reinforce(losses, looked.chosen, told)
        return total


def shifted(labels: Tensor, start: int, pad: int) -> Tensor:
    """What a decoder reads to tell these labels: a start token, then all of them but the last. Shape: (B, K) -> (B, K)."""
    before = F.pad(labels[:, :-1], (1, 0), value=start)
    return torch.where(labels == IGNORE, pad, before)
