"""Masked language modelling.

Paper: Devlin et al. 2018, "BERT" (https://arxiv.org/abs/1810.04805), section 3.1, task 1.
Idea: hide 15 % of the tokens and restore them from both sides. Of the chosen tokens 80 % become [MASK], 10 % a random token
and 10 % stay, so that the model cannot rely on seeing [MASK] only where something is asked.
    loss = - sum over masked i of log p(x_i | corrupted x)
Needs: a mask token; word numbers for whole-word and n-gram masks: a batch that has them is masked by whole words, which a
stage may let be phrases or entities (`units`, ERNIE).
Targets: "mlm", labels (B, K) at positions (B, K).
Relations: `span`, `rtd`, `plm` choose or replace differently; RoBERTa is this with fresh masks each epoch (the default here,
`static = 10` gives BERT's ten fixed masks), ERNIE and whole-word masking choose groups of tokens. `ngram = 3` is ALBERT's
(Lan et al. 2019, https://arxiv.org/abs/1909.11942, section 3.1): groups are n whole words, n <= 3, p(n) ~ 1/n.
Unusual: the number of masks is exact for each row, as in the authors' code, so shapes are static; head and loss run on the
masked places only; `end_rate` lets the rate glide linearly over the training (Wettig et al. 2023 found 40 % good early).
N-grams: the row is cut from left to right into spans of drawn lengths, then spans are drawn until the rate is filled; so
spans never overlap and all rows are done at once. ALBERT's code draws starts, and drops what overlaps; as there, the last
span is shortened to the words that still fit, spans may reach over a [SEP], and each token of a span is masked, replaced or
kept on its own (SpanBERT decides once for the span).
A unit longer than all that its row may hide is passed over, as in BERT's code. Where that is no word of a language (a line of
DNA or SMILES), or where all units of a row are so long, each of its pieces is a unit of its own: else next to nothing would
be hidden.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sesame import chance
from sesame.backbones import Backbone, Encoded
from sesame.data.batch import IGNORE, Batch, Targets
from sesame.errors import SesameError
from sesame.nn.cross_entropy import linear_cross_entropy
from sesame.nn.embeddings import padded_vocab
from sesame.nn.feedforward import ACTIVATIONS
from sesame.nn.init import bert_init
from sesame.objectives.base import Objective, Term, Vocab
from sesame.objectives.decoder_head import DecoderHead

LONGEST = 16  # pieces of a word or a name; what is longer is none


@dataclass(frozen=True)
class MaskedLMConfig:
    weight: float = 1.0
    rate: float = 0.15
    end_rate: float = -1.0  # below 0: the rate stays
    mask: float = 0.8
    random: float = 0.1  # the rest keeps its token
    whole_words: bool = False
    ngram: int = 1  # above 1: spans of up to so many whole words
    static: int = 0  # how many fixed masks an example has; 0: a fresh one every time
    plain: bool = False  # tokens straight from the states: no dense layer and norm before the table (XLM)

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise SesameError(f"objectives.mlm.rate is {self.rate}; it must lie between 0 and 1")
        if not self.end_rate < 1:
            raise SesameError(
                f"objectives.mlm.end_rate is {self.end_rate}; it must be below 1 (below 0: the rate stays)"
            )
        if self.static < 0:
            raise SesameError(f"objectives.mlm.static is {self.static}; it is a number of masks, 0 for ever fresh ones")
        if self.ngram < 1:
            raise SesameError(f"objectives.mlm.ngram is {self.ngram}; it is a number of words, at least 1")
        if self.mask < 0 or self.random < 0 or self.mask + self.random > 1:
            raise SesameError("objectives.mlm: mask and random are shares of the chosen tokens; their sum is at most 1")


class MaskedLMHead(nn.Module):
    """Restore tokens from hidden states: dense, activation, norm, then the (tied) token table plus a bias.

    `plain` (XLM) is the table and the bias alone. Shape: (N, D) -> (N, V padded); the padding columns hold -inf.
    """

    def __init__(
        self,
        width: int,
        narrow: int,
        vocab: int,
        activation: str,
        eps: float,
        tied: bool = True,
        plain: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if plain and tied and width != narrow:
            raise SesameError("a plain head needs a token table as wide as the states; leave embedding_width out")
        self.vocab = vocab
        self.dense = None if plain else nn.Linear(width, narrow, bias=bias)
        self.activation = ACTIVATIONS[activation]
        self.norm = None if plain else nn.LayerNorm(narrow, eps=eps, bias=bias)
        self.bias = nn.Parameter(torch.zeros(vocab))
        self.table = None if tied else nn.Parameter(torch.zeros(padded_vocab(vocab), narrow))
        self.apply(bert_init())

    def forward(self, hidden: Tensor, table: Tensor) -> Tensor:
        return F.linear(*self._last(hidden, table))

    def loss(self, hidden: Tensor, table: Tensor, labels: Tensor) -> Tensor:
        """The summed loss, without the logits."""
        return linear_cross_entropy(*self._last(hidden, table), labels)

    def _last(self, hidden: Tensor, table: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Input, weight and bias of the last product."""
        x = hidden
        if self.dense is not None and self.norm is not None:
            x = self.norm(self.activation(self.dense(hidden)))
        used = table if self.table is None else self.table
        return x, used, F.pad(self.bias, (0, used.shape[0] - self.vocab), value=-torch.inf)


class MaskedLM(Objective):
    def __init__(self, config: MaskedLMConfig, head: MaskedLMHead, vocab: Vocab) -> None:
        super().__init__()
        self.config, self.head, self.vocab = config, head, vocab
        self.weight, self.needs_words = config.weight, config.whole_words or config.ngram > 1

    def heads(self) -> dict[str, nn.Module]:
        return {"mlm": self.head}

    def corrupt(self, batch: Batch, progress: float = 1.0) -> Batch:
        """Choose places, keep their tokens as labels, replace them in the input."""
        keys = batch.keys
        assert keys is not None, "corruption needs the chance of each example"
        assert batch.words is not None or self.config.ngram == 1, "n-gram masks need word numbers"
        rate = self.config.rate
        if self.config.end_rate >= 0:
            rate += (self.config.end_rate - rate) * progress
        at, chosen = self._choose(batch, keys, rate)
        tokens = torch.gather(batch.ids, 1, at)
        labels = torch.where(chosen, tokens, IGNORE)
        luck = chance.uniform_at(keys, "mlm.replace", at)
        other = chance.uniform_at(keys, "mlm.random", at)
        drawn = (other * self.vocab.size).long()
        new = torch.where(luck < self.config.mask, self.vocab.roles["mask"], tokens)
        new = torch.where((luck >= self.config.mask) & (luck < self.config.mask + self.config.random), drawn, new)
        # Unchosen places point at position 0, which is never maskable: its token is written back as it was.
        ids = batch.ids.scatter(1, at, torch.where(chosen, new, tokens))
        return Batch(**{**batch.__dict__, "ids": ids}).with_targets(mlm=Targets(labels, at))

    def _choose(self, batch: Batch, keys: Tensor, rate: float) -> tuple[Tensor, Tensor]:
        """Positions (B, K), and whether each is really chosen (a short row has fewer)."""
        width = batch.ids.shape[1]
        most = max(1, round(max(self.config.rate, self.config.end_rate) * width))  # one shape, however the rate glides
        wanted = torch.clamp(torch.round(batch.lengths.double() * rate).long(), min=1)[:, None]
        luck = chance.uniform_tensor(keys, "mlm.pick", width)
        if batch.words is not None:
            return self._choose_words(batch, keys, luck, wanted.clamp(max=round(rate * width)), most)
        order, places = torch.where(self._maskable(batch), luck, 2.0).topk(most, dim=1, largest=False)
        chosen = (torch.arange(most, device=keys.device)[None, :] < wanted) & (order < 1.5)
        return torch.where(chosen, places, 0), chosen

    def _choose_words(
        self, batch: Batch, keys: Tensor, luck: Tensor, wanted: Tensor, most: int
    ) -> tuple[Tensor, Tensor]:
        """The same, a word entering whole or not at all."""
        assert batch.words is not None
        words, fitting = _fitting(batch.words, wanted)
        luck = torch.gather(luck, 1, self.spans(words, keys))  # a span shares its draw
        order = torch.where(self._maskable(batch) & fitting, luck, 2.0).sort(dim=1, stable=True)
        maskable = order.values < 1.5
        ends = _word_ends(torch.gather(words, 1, order.indices), maskable)
        chosen = ((ends <= wanted) & maskable)[:, :most]
        return torch.where(chosen, order.indices[:, :most], 0), chosen

    def spans(self, words: Tensor, keys: Tensor) -> Tensor:
        """The number of each word's span: lengths n <= ngram are drawn with p(n) ~ 1/n and laid end to end. (B, L)"""
        if self.config.ngram == 1:
            return words
        shares = [1 / n for n in range(1, self.config.ngram + 1)]
        law = [sum(shares[:n]) / sum(shares) for n in range(1, self.config.ngram)]
        luck = chance.uniform_tensor(keys, "mlm.ngram", words.shape[1])
        drawn = 1 + torch.stack([luck >= edge for edge in law]).sum(0)
        ends = drawn.cumsum(1)
        return torch.searchsorted(ends, words)

    def _maskable(self, batch: Batch) -> Tensor:
        roles = self.vocab.roles
        real = torch.arange(batch.ids.shape[1], device=batch.ids.device)[None, :] < batch.lengths[:, None]
        return real & (batch.ids != roles["cls"]) & (batch.ids != roles["sep"])

    def looks_at(self, batch: Batch) -> Tensor | None:
        return batch.targets["mlm"].at

    def terms(self, encoded: Encoded, backbone: Backbone) -> list[Term]:
        targets = encoded.batch.targets["mlm"]
        assert targets.at is not None
        hidden, labels = encoded.take(targets.at).flatten(0, 1), targets.labels.flatten()
        return [token_term("mlm", self.head, backbone.token_table(), hidden, labels)]


def token_term(name: str, head: MaskedLMHead | DecoderHead, table: Tensor, hidden: Tensor, labels: Tensor) -> Term:
    """How well tokens are told from states; labels may be IGNORE. Shape: hidden (N, D), labels (N,)."""
    count = (labels != IGNORE).sum()
    if hidden.device.type == "cpu":  # no static shapes to keep: leave the unchosen places out
        real = labels != IGNORE
        hidden, labels = hidden[real], labels[real]
    if head.training:
        return Term(name, head.loss(hidden, table, labels), count)
    logits = head(hidden, table)
    total = F.cross_entropy(logits.float() if logits.dtype == torch.bfloat16 else logits, labels, reduction="sum")
    return Term(name, total, count, hits=((logits.argmax(-1) == labels) & (labels != IGNORE)).sum())


def _fitting(words: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Which places belong to words of at most `wanted` (B, 1) pieces. (B, L) and (B, L)

    Of longer ones, those that are no words of a language are as many as they have pieces; so are all of a row in which
    nothing shorter stands.
    """
    sizes = torch.zeros_like(words).scatter_add(1, words, torch.ones_like(words))
    some = ((sizes > 0) & (sizes <= wanted))[:, 1:].any(1, keepdim=True)  # 0 is no word
    size = torch.gather(sizes, 1, words)
    apart = (size > wanted) & ((size > LONGEST) | ~some)
    inside = (words > 0) & (words == F.pad(words[:, :-1], (1, 0)))  # not where a word begins
    more = (inside & apart).cumsum(1)
    return torch.where(words > 0, words + more, 0), (words == 0) | (size <= wanted) | apart


def _word_ends(words: Tensor, maskable: Tensor) -> Tensor:
    """How many places are taken once the word of a place is in, if they are taken in this order. (B, L)"""
    ranks = torch.arange(1, words.shape[1] + 1, device=words.device) * maskable
    last = torch.zeros_like(words).scatter_reduce(1, words, ranks, "amax")
    return torch.gather(last, 1, words)
