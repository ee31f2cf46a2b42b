"""Span corruption: tell the spans that were cut out of a text.

Paper: Raffel et al. 2020, "T5" (https://arxiv.org/abs/1910.10683), section 3.1.4; code: text-to-text-transfer-transformer,
`random_spans_noise_mask` and `noise_span_to_unique_sentinel`.
Idea: 15 % of the tokens, in spans of 3 in the mean, are cut out. In the source each span is one sentinel, a token of its own
number; the target names each sentinel and then the tokens it stands for. Both sides are short: it costs half of `denoise`.
    text    Thank you for inviting me to your party last week .
    source  Thank you <X> me to your party <Y> [end]
    target  <X> for inviting <Y> last week . [end]
Needs: one sentinel for each span of the longest row, in order (T5: <extra_id_0>, <extra_id_1> ...; 100 of them).
Targets: "span", labels (B, K).
Relations: `mlm` asks for each token by itself and where it stands; `denoise` tells the whole text; `mass` one long span.

As in the code: n = round(0.15 length) tokens, s = round(n / 3) spans. Both the n hidden and the others are cut into s parts,
every cut equally likely, and the parts alternate, the first one given: so a row always ends with a hidden span, and one of
up to 30 tokens has no other.
That is why the target there, and in the Flax example of Hugging Face, ends with the last span and the end token. The paper's
figure and Hugging Face's documentation show one more sentinel behind it, which belongs to a text that goes on after its last
span; `final` puts it there.
Unusual: all rows at once, with one topk for each cut. A first token ([CLS]) and the last one stay as they are, on both ends
of the source; text shorter than two tokens is left whole and only its end is asked for. T5 fills its sources: rows of 568
tokens become sources of 512 (`raw_length`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sesame import chance
from sesame.data.batch import IGNORE, Batch
from sesame.errors import SesameError
from sesame.objectives.seq2seq import Exercise


@dataclass(frozen=True)
class SpanConfig:
    weight: float = 1.0
    rate: float = 0.15  # of the tokens are hidden
    mean: float = 3.0  # tokens in a span
    final: bool = False  # one more sentinel behind the last span

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise SesameError(f"objectives.span.rate is {self.rate}; it must lie between 0 and 1")
        if not self.mean >= 1:
            raise SesameError(f"objectives.span.mean is {self.mean}; it is a number of tokens, at least 1")

    def hidden(self, size: Tensor) -> tuple[Tensor, Tensor]:
        """How many tokens of so many are hidden, and in how many spans."""
        noise = torch.round(size.double() * self.rate).long().clamp(min=1)
        noise = torch.minimum(noise, size - 1).clamp(min=0)
        spans = torch.round(noise.double() / self.mean).long().clamp(min=1)
        return noise, torch.minimum(spans, torch.minimum(noise, size - noise))

    def room(self, size: int) -> tuple[int, int]:
        """Tokens of source and target that a text of so many tokens needs, with their ends. Longer texts need no less."""
        noise, spans = (int(found) for found in self.hidden(torch.tensor(size)))
        return size - noise + spans + 1, noise + spans + self.final + 1


def raw_length(config: SpanConfig, source: int) -> int:
    """The longest text whose source has at most so many tokens, with its end: 568 for 512, as in the authors' code."""
    size = source
    while config.room(size + 1)[0] <= source:
        size += 1
    while size > 0 and config.room(size)[0] > source:
        size -= 1
    return size


class SpanCorruption:
    needs_words = False

    def __init__(
        self, config: SpanConfig, sentinels: Sequence[int], pad: int, front: int = 0, longest: int | None = None
    ) -> None:
        """`front`: how many tokens before the text stay; `longest`: no row has more tokens, if that is known."""
        self.config, self.pad, self.front = config, pad, front
        self.sentinels = torch.tensor(list(sentinels), dtype=torch.long)
        if longest is not None:
            self._spans(longest)

    def _spans(self, width: int) -> int:
        """The most spans of rows that are so wide, if there are sentinels for them."""
        spans = int(self.config.hidden(torch.tensor(max(0, width - self.front - 1)))[1])
        needed, have = spans + self.config.final, len(self.sentinels)
        if needed > have:
            raise SesameError(
                f"objectives.span: rows of {width} tokens need {needed} sentinels, and the tokenizer has {have}; "
                "take shorter rows, a larger objectives.span.mean, or a tokenizer with more of them"
            )
        return max(1, spans)

    def __call__(self, batch: Batch) -> Exercise:
        assert batch.keys is not None, "corruption needs the chance of each example"
        front, width = self.front, batch.ids.shape[1]
        most, text = self._spans(width), batch.ids[:, front:]
        rooms = self.config.room(max(0, width - front - 1))
        size = (batch.lengths - front - 1).clamp(min=0)
        noise, spans = self.config.hidden(size)
        given = size - noise
        # (B, most + 2): what the first 0, 1, 2 ... spans hold, and what is given before the first, second ... of them
        lost = F.pad(_cut(batch.keys, "span.noise", noise, spans, most, rooms[1]), (1, 1))
        kept = _cut(batch.keys, "span.given", given, spans, most, width)
        kept = torch.cat([kept, given[:, None].expand(-1, 2)], dim=1)
        number = torch.arange(most + 1, device=text.device)[None, :]
        at = torch.where(number < spans[:, None], kept[:, :-1] + number, rooms[0])
        source = self._lay(text, at, lost, rooms[0])
        at = torch.where(number < spans[:, None] + self.config.final, lost[:, :-1] + number, rooms[1])
        target = self._lay(text, at, torch.cat([kept[:, :1], kept[:, :-1]], dim=1), rooms[1])
        lengths, wanted = front + given + spans + 1, noise + spans + self.config.final + 1
        source = torch.cat([batch.ids[:, :front], source], dim=1)
        ids = torch.where(_up_to(lengths, source), source, self.pad)
        return Exercise(ids, lengths, torch.where(_up_to(wanted, target), target, IGNORE), full=batch.full)

    def _lay(self, text: Tensor, at: Tensor, skipped: Tensor, room: int) -> Tensor:
        """Sentinels at these places, the text between them, its end behind it. Shape: (B, L), (B, J), (B, J+1) -> (B, room).

        `skipped` says how much of the text is left out before a place that has 0, 1, 2 ... sentinels up to it.
        """
        marks = torch.zeros(len(at), room + 1, dtype=torch.long, device=at.device).scatter_(1, at, 1)
        passed = marks.cumsum(1)
        origin = torch.arange(room + 1, device=at.device)[None, :] - passed + skipped.gather(1, passed)
        tokens = text.gather(1, origin.clamp_(0, text.shape[1] - 1))
        names = F.pad(self.sentinels.to(at.device), (0, at.shape[1]))[: at.shape[1]]
        return tokens.scatter_(1, at, names.expand_as(at))[:, :room]


def _cut(keys: Tensor, name: str, total: Tensor, parts: Tensor, most: int, room: int) -> Tensor:
    """Cut so many items into non-empty parts, all ways equally likely: where each part ends. Shape: (B,) -> (B, most)."""
    ends = total[:, None].expand(-1, most)
    if most == 1:
        return ends
    luck = chance.uniform_tensor(keys, name, room)
    free = torch.arange(room, device=keys.device)[None, :] < total[:, None] - 1
    drawn = torch.where(free, luck, 2.0).topk(most - 1, dim=1, largest=False).indices + 1
    cuts = torch.arange(most - 1, device=keys.device)[None, :] < parts[:, None] - 1
    ends = torch.where(cuts, drawn, ends[:, 1:]).sort(dim=1).values
    return torch.cat([ends, total[:, None]], dim=1)


def _up_to(lengths: Tensor, ids: Tensor) -> Tensor:
    """True at the places of each row before its length. (B, L)"""
    return torch.arange(ids.shape[1], device=ids.device)[None, :] < lengths[:, None]
