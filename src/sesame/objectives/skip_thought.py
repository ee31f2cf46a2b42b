"""Skip-thought: from the vector of a sentence, tell the sentence before it and the sentence behind it.

Paper: Kiros, Zhu, Salakhutdinov, Zemel, Torralba, Urtasun & Fidler 2015, "Skip-Thought Vectors"
(https://arxiv.org/abs/1506.06726).
Idea: word2vec's, one step up: what stands around a sentence says what it means. Two GRUs, one for each neighbor, read the
sentence's vector h at every step beside the token before; one softmax serves both.
    s_t = GRU([y_{t-1} ; h], s_{t-1}),  p(y_t) = softmax(V s_t)
    loss = - sum over t of log p(y_t of the next sentence) - sum over t of log p(y_t of the previous one)
Needs: backbone "skip-thought", packing "neighbors", tokenizer.template = "end", a cls token to begin with.
Targets: "previous" and "next", labels (B, K), IGNORE behind their ends and where a document has no such sentence.
Relations: `seq2seq` with two answers and a source of one vector.
Unusual: each loss is divided by its own count of tokens; both count alike, as in the paper, where they are added.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sesame.backbones import Backbone, Encoded, SkipThought, SkipThoughtConfig
from sesame.backbones.skip_thought import start_recurrent
from sesame.data.batch import IGNORE, Batch
from sesame.nn.recurrent import RecurrentStack
from sesame.objectives.base import Objective, Term, Vocab
from sesame.objectives.decoder_head import DecoderHead
from sesame.objectives.seq2seq import shifted


@dataclass(frozen=True)
class SkipThoughtObjectiveConfig:
    weight: float = 1.0


class Neighbors(nn.Module):
    """Both decoders, as wide as the sentence's vector, and their softmax."""

    def __init__(self, config: SkipThoughtConfig) -> None:
        super().__init__()
        self.previous, self.next = (
            RecurrentStack(config.cell, config.width + config.inner, [config.inner]) for _ in range(2)
        )
        for decoder in (self.previous, self.next):
            start_recurrent(decoder)
        self.out = DecoderHead(config.inner, config.vocab, tied=False, bias="trained")

    def states(self, which: str, vectors: Tensor, told: Tensor) -> Tensor:
        """Of one decoder. Shape: (B, D), (B, K, E) -> (B, K, D)."""
        decoder = self.get_submodule(which)
        steps = vectors[:, None].expand(-1, told.shape[1], -1)
        return decoder(torch.cat([told.to(steps.dtype), steps], -1)).top  # type: ignore[no-any-return]


class SkipThoughtObjective(Objective):
    def __init__(self, config: SkipThoughtObjectiveConfig, backbone: SkipThought, vocab: Vocab) -> None:
        super().__init__()
        self.weight, self.start, self.pad = config.weight, vocab.roles["cls"], vocab.roles["pad"]
        self.neighbors = Neighbors(backbone.config)

    def heads(self) -> dict[str, nn.Module]:
        return {"neighbors": self.neighbors}

    def looks_at(self, batch: Batch) -> Tensor | None:
        return batch.lengths[:, None] - 1

    def terms(self, encoded: Encoded, backbone: Backbone) -> list[Term]:
        vectors = encoded.take(encoded.batch.lengths[:, None] - 1)[:, 0]
        return [self._term(which, vectors, encoded.batch, backbone) for which in ("previous", "next")]

    def _term(self, which: str, vectors: Tensor, batch: Batch, backbone: Backbone) -> Term:
        labels = batch.targets[which].labels
        read = F.embedding(shifted(labels, self.start, self.pad), backbone.token_table())
        hidden, flat = self.neighbors.states(which, vectors, read).flatten(0, 1), labels.flatten()
        count = (flat != IGNORE).sum()
        if hidden.device.type == "cpu":  # no static shapes to keep: leave the padding out
            hidden, flat = hidden[flat != IGNORE], flat[flat != IGNORE]
        out = self.neighbors.out
        assert out.table is not None
        if self.training:
            return Term(which, out.loss(hidden, out.table, flat), count)
        logits = out(hidden, out.table)
        logits = logits.float() if logits.dtype == torch.bfloat16 else logits
        total = F.cross_entropy(logits, flat, reduction="sum", ignore_index=IGNORE)
        return Term(which, total, count, hits=((logits.argmax(-1) == flat) & (flat != IGNORE)).sum())
