"""MASS: tell a long span of a text from the rest.

Paper: Song et al. 2019, "MASS" (https://arxiv.org/abs/1905.02450), section 3; code: microsoft/MASS, `restricted_mask_sent`.
Idea: half of a text, in one stretch, is masked in the source, and the decoder tells that stretch alone. The encoder must
understand what is left; the decoder, which is not shown the rest, must ask the encoder instead of its own past.
    source  [CLS] a b _ _ _ f [SEP]
    reads     b c d        the tokens before the wanted ones, at the places where they stand in the text
    target    c d e
Needs: a mask token, and a first token in each row ([CLS]), which is never masked: where the stretch begins the text, it is
what the decoder reads first. Let it be the start token too, then a fine-tuned decoder starts as it did here.
Targets: "mass", labels (B, K) with their places in the text `at` (B, K); the decoder's inputs stand one place before.
Relations: `mlm` and `clm` are this with a stretch of one token and of all tokens; `span` and `denoise` have many short spans.

As in the code: of a row of n tokens, its last one among them, round(n / 2) are masked. A fifth of the stretches begin the
text, a fifth end it, the others are anywhere. Of the masked tokens 80 % become [MASK], 10 % stay and 10 % are random ones.
Unusual: other places are absent from what the decoder reads, as in the code; the paper's figure masks them. That halves the
cost, but then its positions must be those of the text, and not 0, 1, 2 ...
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sesame import chance
from sesame.data.batch import IGNORE, Batch
from sesame.errors import SesameError
from sesame.objectives.base import Vocab
from sesame.objectives.seq2seq import Exercise


@dataclass(frozen=True)
class MassConfig:
    weight: float = 1.0
    rate: float = 0.5
    begin: float = 0.2  # of the stretches are at the beginning
    end: float = 0.2  # and at the end
    mask: float = 0.8
    random: float = 0.1  # the rest keeps its token

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise SesameError(f"objectives.mass.rate is {self.rate}; it must lie between 0 and 1")
        for one, other in (("begin", "end"), ("mask", "random")):
            shares = getattr(self, one), getattr(self, other)
            if min(shares) < 0 or sum(shares) > 1:
                raise SesameError(f"objectives.mass: {one} and {other} are shares; their sum is at most 1")


class MaskedSpan:
    needs_words = False

    def __init__(self, config: MassConfig, vocab: Vocab) -> None:
        for role in ("mask", "cls"):
            if role not in vocab.roles:
                raise SesameError(
                    f"objectives.mass needs a {role} token, and this tokenizer has none; train another one"
                )
        self.config, self.vocab = config, vocab

    def __call__(self, batch: Batch) -> Exercise:
        keys = batch.keys
        assert keys is not None, "corruption needs the chance of each example"
        count = torch.round(batch.lengths.double() * self.config.rate).long()
        count = torch.minimum(count, batch.lengths - 1)[:, None]
        most = max(1, round(batch.ids.shape[1] * self.config.rate))
        number = torch.arange(most, device=keys.device)[None, :]
        real = number < count
        # Places behind the stretch point at place 0, which is never masked: its token is written back as it was.
        at = torch.where(real, self._begin(batch.lengths, count[:, 0], keys)[:, None] + number, 0)
        tokens = batch.ids.gather(1, at)
        ids = batch.ids.scatter(1, at, torch.where(real, self._replaced(tokens, at, keys), tokens))
        before = torch.where(real, batch.ids.gather(1, (at - 1).clamp(min=0)), self.vocab.roles["pad"])
        labels = torch.where(real, tokens, IGNORE)
        return Exercise(ids, batch.lengths, labels, full=batch.full, outputs=before, at=at)

    def _begin(self, lengths: Tensor, count: Tensor, keys: Tensor) -> Tensor:
        """The first place of each stretch, 1 at least. (B,)"""
        luck = chance.uniform_tensor(keys, "mass.begin", 2)
        free = (lengths - 1 - count).clamp(min=0)
        lead = (luck[:, 1] * (free + 1)).long()
        lead = torch.where(luck[:, 0] < self.config.begin + self.config.end, free, lead)
        return 1 + torch.where(luck[:, 0] < self.config.begin, 0, lead)

    def _replaced(self, tokens: Tensor, at: Tensor, keys: Tensor) -> Tensor:
        """What the source shows in place of these tokens."""
        luck = chance.uniform_at(keys, "mass.replace", at)
        drawn = (chance.uniform_at(keys, "mass.random", at) * self.vocab.size).long()
        found = torch.where(luck < self.config.mask + self.config.random, drawn, tokens)
        return torch.where(luck < self.config.mask, self.vocab.roles["mask"], found)
