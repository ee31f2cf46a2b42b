"""Permutation language modelling.

Paper: Yang et al. 2019, "XLNet" (https://arxiv.org/abs/1906.08237), sections 2.2 to 2.5. Code: zihangdai/xlnet.
Idea: predict tokens one after the other, but in an order drawn at random: each token then sees some of its left and some of
its right, nothing is ever replaced by [MASK], and targets know those before them. Only 1/K of the tokens, the last ones of
the order, are asked for.
    loss = - sum over targets i of log p(x_i | tokens that are no targets, targets j with rank_j < rank_i, earlier parts)
Needs: the `xlnet` backbone; word numbers (a span begins where a word begins). [MASK] is not used.
Targets: "plm", labels (B, K) at positions (B, K); "plm_order", the rank of each token; "plm_backward", rows that were turned.
Relations: `mlm` predicts targets independently and shows [MASK]; this predicts them in turn. `span` chooses spans as well.

How, as in the code:
- A row is A [SEP] B [SEP] [CLS], [CLS] a segment of its own, cut into parts of `part` tokens (their 256 of 512); each has an
  order of its own and sees all of the parts before it and nothing of those after it.
- Targets are spans of n <= 5 tokens, p(n) ~ 1/n, somewhere in a context of K n tokens; then single tokens, until 1/K of the
  part is reached. (The paper says so too; but the code puts the span beside its context, not into it, so spans alone give
  1/(K+1), and counts tokens where it means words, both of which are followed here.)
- Tokens that are no targets have rank -1: everybody sees them, they see no target. [SEP] and [CLS] have a random rank but no
  loss; one drawn as a target is not replaced by another, so a row may have a few targets less.
- Half of the rows are read backwards, with distances of the other sign.

Unusual: memory. The authors lay the text out in rows that go on from batch to batch, so that states of the last batch
(384 tokens) are the memory of this one; their 512 tokens are one pass, and gradients flow from the second half into the
first. Then a batch depends on all before it: the memory belongs into every checkpoint, rows cannot be shuffled, and
ranks, batch size and micro-batches must never change. Here memory lives within an example: its parts are passed one after
the other, and the states of the earlier ones are the memory of the next, without gradient (Transformer-XL). Each step
stays a pure function of its number, so a run resumes at once and to the bit; but no token looks back further than the
beginning of its example. For a longer memory take longer examples (`stages.*.length`), not more parts. In a row read
backwards a span begins at the last piece of a word.
"""

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sesame import chance
from sesame.backbones import Backbone
from sesame.backbones.xlnet import Order, XLNet
from sesame.data.batch import IGNORE, Batch, Targets
from sesame.errors import SesameError
from sesame.nn.cross_entropy import linear_cross_entropy
from sesame.nn.embeddings import padded_vocab
from sesame.objectives import orders
from sesame.objectives.base import Objective, Term, Vocab
from sesame.objectives.orders import Counts, Flags, Luck

Number = TypeVar("Number", int, Counts)
DRAWS = ("length", "left", "fill", "order")


@dataclass(frozen=True)
class PermutationLMConfig:
    weight: float = 1.0
    every: int = 6  # one of so many tokens is a target (K)
    span: int = 5  # no span is longer
    part: int = 256  # tokens that are ordered among themselves; a longer row is several parts
    backward: float = 0.5  # share of the rows that are read from their end

    def __post_init__(self) -> None:
        if self.every < 2 or self.span < 1 or self.part < 2 * self.every:
            raise SesameError("objectives.plm: every is at least 2, span at least 1, part at least twice every")
        if not 0 <= self.backward <= 1:
            raise SesameError(f"objectives.plm.backward is {self.backward}; it is a share, from 0 to 1")


@dataclass(frozen=True)
class Part:
    """A stretch of all rows, and which of the target slots belong to it."""

    begin: int
    end: int
    first: int
    last: int


class TableHead(nn.Module):
    """Tokens straight from the (tied) token table plus a bias. Shape: (N, D) -> (N, V padded), the padding -inf."""

    def __init__(self, width: int, vocab: int, tied: bool = True) -> None:
        super().__init__()
        self.vocab = vocab
        self.bias = nn.Parameter(torch.zeros(vocab))
        self.table = None if tied else nn.Parameter(torch.zeros(padded_vocab(vocab), width))

    def forward(self, hidden: Tensor, table: Tensor) -> Tensor:
        return F.linear(hidden, *self._last(table))

    def loss(self, hidden: Tensor, table: Tensor, labels: Tensor) -> Tensor:
        """The summed loss, without the logits."""
        return linear_cross_entropy(hidden, *self._last(table), labels)

    def _last(self, table: Tensor) -> tuple[Tensor, Tensor]:
        used = table if self.table is None else self.table
        return used, F.pad(self.bias, (0, used.shape[0] - self.vocab), value=-torch.inf)


class PermutationLM(Objective):
    needs_words = True
    own_pass = True  # two streams, part after part: no other objective can share this pass

    def __init__(self, config: PermutationLMConfig, head: TableHead, vocab: Vocab) -> None:
        super().__init__()
        self.config, self.head, self.vocab, self.weight = config, head, vocab, config.weight

    def heads(self) -> dict[str, nn.Module]:
        return {"plm": self.head}

    # ---- corruption ------------------------------------------------------------------------------------------------

    def corrupt(self, batch: Batch, progress: float = 1.0) -> Batch:
        keys = batch.keys
        assert keys is not None, "an order needs the chance of each example"
        backward = chance.uniform_tensor(keys, "plm.backward", 1)[:, 0] < self.config.backward
        batch = self._arrange(batch, backward)
        width = batch.ids.shape[1]
        real = torch.arange(width, device=keys.device)[None, :] < batch.lengths[:, None]
        functional = (batch.ids == self.vocab.roles["cls"]) | (batch.ids == self.vocab.roles["sep"])
        luck = {name: chance.uniform(keys.numpy().view(np.uint64), f"plm.{name}", width) for name in DRAWS}
        starts = _word_starts(batch)
        rank, at = self._orders(batch, starts.numpy(), real.numpy(), functional.numpy(), luck)
        labels = torch.where(at < width, torch.gather(batch.ids, 1, at.clamp(max=width - 1)), IGNORE)
        firsts = torch.cat([at.new_full((part.last - part.first,), part.begin) for part in self.parts(width)])
        found = {"plm": Targets(labels, torch.where(at < width, at, firsts)), "plm_order": Targets(rank)}
        return batch.with_targets(**found, plm_backward=Targets(backward.long()))

    def _orders(
        self, batch: Batch, starts: Flags, real: Flags, functional: Flags, luck: dict[str, Luck]
    ) -> tuple[Tensor, Tensor]:
        """The rank of each token, and where the targets stand. Shape: (B, L), (B, K)."""
        width, every, lengths = starts.shape[1], self.config.every, batch.lengths.numpy()
        found, places = [], []
        for part in self.parts(width):
            here = slice(part.begin, part.end)
            goal = _rounded(lengths.clip(max=part.end), every) - _rounded(part.begin, every)
            spare = (real & ~functional)[:, here].sum(axis=1) - 1  # at least one token is given
            goal = np.minimum(goal.clip(min=0), spare.clip(min=0))
            drawn = {name: value[:, here] for name, value in luck.items()}
            chosen = orders.choose(starts[:, here], real[:, here], goal, every, self.config.span, drawn)
            given = ~(chosen | functional[:, here])
            found.append(np.where(given, -1, orders.ranks(drawn["order"])))
            slots = part.last - part.first
            places.append(orders.places(chosen & ~functional[:, here], slots, nowhere=width, begin=part.begin))
        return torch.from_numpy(np.concatenate(found, axis=1)), torch.from_numpy(np.concatenate(places, axis=1))

    def parts(self, width: int) -> list[Part]:
        """Where rows of this width are cut; how many targets each part has room for follows from the width alone."""
        every, cuts = self.config.every, [*range(0, width, self.config.part), width]
        slots = [_rounded(cut, every) for cut in cuts]
        return [Part(*item) for item in zip(cuts[:-1], cuts[1:], slots[:-1], slots[1:], strict=True)]

    def _arrange(self, batch: Batch, backward: Tensor) -> Batch:
        """[CLS] A [SEP] B [SEP], as it is packed, to A [SEP] B [SEP] [CLS], or read from the end: Bᴿ [SEP] Aᴿ [SEP] [CLS]."""
        ids, length = batch.ids, batch.lengths[:, None]
        place = torch.arange(ids.shape[1], device=ids.device)[None, :]
        moved = (ids[:, :1] == self.vocab.roles["cls"]).long()
        source = torch.where(place < length - 1, place + moved, place)
        source = torch.where(place == length - 1, (length - 1) * (1 - moved), source)
        turned = backward[:, None] & (place < length - 2)
        source = torch.where(turned, length - 3 - place + moved, source)
        ids = torch.gather(ids, 1, source)
        words = None if batch.words is None else torch.gather(batch.words, 1, source)
        ends = ids == self.vocab.roles["sep"]
        segments = torch.zeros_like(ids)
        if batch.segments is not None:  # two pieces: a separator belongs to the piece before it
            segments = (ends.cumsum(1) - ends.long()).clamp(max=1)
        segments = torch.where(place == length - 1, 2, segments)
        return replace(batch, ids=ids, segments=segments, words=words, real=None)

    # ---- the loss --------------------------------------------------------------------------------------------------

    def forward(self, backbone: Backbone, batch: Batch) -> list[Term]:
        hidden = self.predictions(backbone, batch).flatten(0, 1)
        labels, table = batch.targets["plm"].labels.flatten(), backbone.token_table()
        count = batch.targets["plm"].count()
        if hidden.device.type == "cpu":  # no static shapes to keep: leave the empty slots out
            hidden, labels = hidden[labels != IGNORE], labels[labels != IGNORE]
        if self.training:
            return [Term("plm", self.head.loss(hidden, table, labels), count)]
        logits = self.head(hidden, table)
        total = F.cross_entropy(logits.float() if logits.dtype == torch.bfloat16 else logits, labels, reduction="sum")
        return [Term("plm", total, count, hits=((logits.argmax(-1) == labels) & (labels != IGNORE)).sum())]

    def predictions(self, backbone: Backbone, batch: Batch) -> Tensor:
        """The query stream at all targets, part after part, each with the memory of those before. Shape: (B, K, D)."""
        assert isinstance(backbone, XLNet)
        assert batch.segments is not None
        at, rank = batch.targets["plm"].at, batch.targets["plm_order"].labels
        assert at is not None
        backward = batch.targets["plm_backward"].labels if self.config.backward > 0 else None
        state, found = None, []
        for part in self.parts(batch.ids.shape[1]):
            if part.first == part.last:  # a rest too short for a target
                continue
            here = slice(part.begin, part.end)
            lengths = (batch.lengths - part.begin).clamp(0, part.end - part.begin)
            rows = Batch(batch.ids[:, here], lengths, segments=batch.segments[:, here], full=batch.full)
            order = Order(rank[:, here], at[:, part.first : part.last] - part.begin)
            encoded = backbone(rows, state=state, order=order, backward=backward)
            state = encoded.state
            found.append(encoded.last)
        return torch.cat(found, dim=1)


def _rounded(count: Number, every: int) -> Number:
    """The targets among so many tokens: count / every, rounded. 43 of 256 and 85 of 512, as in the code, for 6."""
    return (2 * count + every) // (2 * every)


def _word_starts(batch: Batch) -> Tensor:
    """Where a span may begin: the first piece of a word, and specials. (B, L)"""
    if batch.words is None:
        return torch.ones_like(batch.ids, dtype=torch.bool)
    before = F.pad(batch.words[:, :-1], (1, 0), value=-1)
    return (batch.words != before) | (batch.words == 0)
