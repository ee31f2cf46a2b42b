"""Denoising: tell a whole text from what was left of it.

Paper: Lewis et al. 2019, "BART" (https://arxiv.org/abs/1910.13461), section 2.2; code: fairseq, `denoising_dataset.py`.
Idea: the source is the text with noise of any kind, the target is the text. The published model shuffles the sentences, then
takes out 30 % of the words in spans of Poisson(3) words, each of which leaves one [MASK]: how many words are missing has to
be told as well. Spans of no words are masks put in where nothing is missing.
    source  [CLS] C . A [MASK] . B [MASK] . [SEP]
    target  [CLS] A a a . B b b . C . [SEP]
Needs: a mask token; ids of the pieces that end a sentence, for `permute`; word numbers, unless `whole_words = false`.
Targets: "denoise", labels (B, L): the row as it was, with its first and last token, as fairseq has it.
Relations: `span` numbers its masks and tells the missing words alone, at half the cost; `mlm` keeps the places.

The kinds of noise, in this order, each with its share; 0 leaves it out:
- `permute` sentences: a share of them changes places among each other. One ends at the first of several full stops; a
  single last token behind a stop stays where it is.
- `infill`: the number of words is ceil(0.3 words), the last span is shortened to that. Begins are drawn without regard to
  lengths: spans that overlap run into each other, so a little less is missing. No span reaches over the end.
- `mask` and `delete`: single tokens, replaced or left out.
- `rotate`: the share of the rows that begin at a random token, with what stood before it at the end.
A share `random` of the masks is a random token instead: the paper does not say so, the authors' command does
(https://github.com/facebookresearch/fairseq/issues/1899), which also has Poisson(3.5) for `mean`. Of n masks that are put in,
ceil(0.1 n) are, so most of those: that is the code's.
Unusual: all rows at once. A source is never longer than its text: more masks than words were taken out are not put in, which
only meets rows of a few words. First and last token of a row stay; separators inside it count as words. What is too long for
a word, as a line of DNA, is as many words as it has pieces: else nothing of a row would be left.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sesame import chance
from sesame.data.batch import IGNORE, Batch
from sesame.data.sentences import STOPS
from sesame.errors import SesameError
from sesame.objectives.base import Vocab
from sesame.objectives.mlm import LONGEST
from sesame.objectives.seq2seq import Exercise


@dataclass(frozen=True)
class DenoiseConfig:
    weight: float = 1.0
    permute: float = 1.0
    infill: float = 0.3
    mean: float = 3.0  # words in a span
    whole_words: bool = True
    mask: float = 0.0
    delete: float = 0.0
    rotate: float = 0.0
    random: float = 0.1  # of the masks

    def __post_init__(self) -> None:
        for name in ("permute", "infill", "mask", "delete", "rotate", "random"):
            if not 0 <= getattr(self, name) <= 1:
                raise SesameError(f"objectives.denoise.{name} is {getattr(self, name)}; it is a share, from 0 to 1")
        if not 0 < self.mean <= 30:
            raise SesameError(f"objectives.denoise.mean is {self.mean}; it is a number of words, above 0, at most 30")
        if not (self.permute or self.infill or self.mask or self.delete or self.rotate):
            raise SesameError("objectives.denoise: all kinds of noise are 0, so there is nothing to learn; set one")


def stop_ids(tokens: Sequence[str]) -> list[int]:
    """The ids of the pieces that end a sentence, among all tokens by id, as people read them; they may have the mark of a
    word's beginning before them."""
    return [id for id, token in enumerate(tokens) if (bare := token.lstrip("▁Ġ# ")) and not bare.strip(STOPS)]


class Denoising:
    def __init__(self, config: DenoiseConfig, vocab: Vocab, stops: Sequence[int] = (), front: int = 1) -> None:
        """`stops`: the ids that end a sentence; `front`: how many tokens before the text stay."""
        if "mask" not in vocab.roles and config.infill + config.mask > 0:
            raise SesameError("denoising needs a mask token, and this tokenizer has none; train another one")
        if config.permute and not len(stops):
            raise SesameError(
                "sentences cannot change places: the tokenizer has no piece that ends one, such as a full stop; "
                "set objectives.denoise.permute=0"
            )
        self.config, self.vocab, self.front = config, vocab, front
        self.needs_words = config.whole_words and config.infill > 0
        self.stops = torch.zeros(vocab.size, dtype=torch.bool)
        self.stops[torch.tensor(list(stops), dtype=torch.long)] = True
        self.law = torch.tensor(poisson(config.mean), dtype=torch.float64).cumsum(0)[:-1]

    def __call__(self, batch: Batch) -> Exercise:
        config, keys, front = self.config, batch.keys, self.front
        assert keys is not None, "corruption needs the chance of each example"
        assert batch.words is not None or not self.needs_words, "whole words need word numbers"
        text, size = batch.ids[:, front:], (batch.lengths - front - 1).clamp(min=0)
        place = torch.arange(text.shape[1], device=text.device)[None, :]
        starts = (place < size[:, None]) & (_word_starts(batch)[:, front:] if self.needs_words else True)
        if config.permute:
            order = self._permute(text, size, keys)
            text, starts = text.gather(1, order), starts.gather(1, order)
        if config.infill:
            text, size = self._infill(text, size, starts, keys)
        if config.mask:
            text = self._mask(text, size, keys)
        if config.delete:
            text, size = self._delete(text, size, keys)
        if config.rotate:
            text = self._rotate(text, size, keys)
        last = batch.ids.gather(1, (batch.lengths - 1).clamp(min=0)[:, None])
        text = torch.where(
            place < size[:, None], text, torch.where(place == size[:, None], last, self.vocab.roles["pad"])
        )
        real = torch.arange(batch.ids.shape[1], device=text.device)[None, :] < batch.lengths[:, None]
        labels = torch.where(real, batch.ids, IGNORE)
        return Exercise(torch.cat([batch.ids[:, :front], text], dim=1), size + front + 1, labels)

    def _permute(self, text: Tensor, size: Tensor, keys: Tensor) -> Tensor:
        """Which place of the text comes to each place, when sentences are shuffled. (B, L)"""
        place = torch.arange(text.shape[1], device=text.device)[None, :]
        stop = self.stops.to(text.device)[text] | (place == size[:, None] - 1)
        ends = stop & ~F.pad(stop[:, :-1], (1, 0)) & (place < size[:, None])
        count = ends.sum(1, keepdim=True)
        most = int(count.max()) + 1  # what stands behind the last end, padding too, is one more, and stays
        number = torch.where(ends, ends.cumsum(1), most + 1)
        begins = torch.full((len(text), most + 2), text.shape[1], device=text.device)
        begins = begins.scatter_(1, number, (place + 1).expand_as(number))[:, : most + 1]
        begins[:, 0] = 0
        order = _shuffled(count, most, self.config.permute, keys)
        sizes = begins.diff(dim=1).gather(1, order)
        after = sizes.cumsum(1)
        moved = begins.gather(1, order) - (after - sizes)  # how far each sentence came
        slots = torch.zeros(len(text), text.shape[1] + 1, dtype=torch.long, device=text.device)
        slots = slots.scatter_(1, after[:, :-1], 1)[:, :-1].cumsum(1)
        return place + moved.gather(1, slots)

    def _infill(self, text: Tensor, size: Tensor, starts: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Spans of words become one mask each; spans of none are put in."""
        width, begins = text.shape[1], _places(starts, size)
        words = starts.sum(1, keepdim=True)
        spans, inserts = self._lengths(_share(words, self.config.infill), keys)
        word, _ = _pick(keys, "denoise.begin", words, spans.shape[1], max(1, int(words.max())))
        begin = torch.where(spans > 0, begins.gather(1, word), width)
        end = torch.where(spans > 0, begins.gather(1, (word + spans).clamp(max=width)), width)
        inside = torch.zeros(len(text), width + 2, dtype=torch.long, device=text.device)
        inside.scatter_add_(1, begin + 1, torch.ones_like(begin)).scatter_add_(1, end, -torch.ones_like(end))
        keep = (inside.cumsum(1)[:, :width] == 0) & (torch.arange(width, device=text.device)[None, :] < size[:, None])
        masks = self._masks(keys, "denoise.infill", begin)
        text = F.pad(text, (0, 1)).scatter_(1, begin, masks)[:, :width]
        text, left = _compact(text, keep)
        return self._insert(text, left, torch.minimum(inserts, size - left), keys)

    def _lengths(self, budget: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Lengths of the spans with words, 0 behind the last, and how many have none. Shape: (B, 1) -> (B, J), (B,)."""
        tries = (2 * budget / self.config.mean).ceil().long() + 16  # hardly ever too few; then the last fills up
        luck = chance.uniform_tensor(keys, "denoise.length", int(tries.max()))
        drawn = torch.searchsorted(self.law.to(luck.device), luck, right=True)
        drawn = torch.where(torch.arange(drawn.shape[1], device=luck.device)[None, :] < tries - 1, drawn, budget)
        before = drawn.cumsum(1) - drawn
        used = before < budget
        drawn = torch.where(used, torch.minimum(drawn, budget - before), 0)
        spans, count = _compact(drawn, drawn > 0)
        return spans[:, : max(1, int(count.max()))], (used & (drawn == 0)).sum(1)

    def _insert(self, text: Tensor, size: Tensor, count: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """So many masks at random places."""
        most = int(count.max())
        if most == 0:
            return text, size
        width, size = text.shape[1], size + count
        at, _ = _pick(keys, "denoise.insert", size[:, None], most, width)
        number = torch.arange(most, device=text.device)[None, :]
        at = torch.where(number < count[:, None], at, width)
        new = torch.zeros(len(text), width + 1, dtype=torch.long, device=text.device).scatter_(1, at, 1)
        origin = torch.arange(width + 1, device=text.device)[None, :] - new.cumsum(1)
        random = number < _share(count, self.config.random)[:, None]
        tokens = torch.where(random, self._drawn(keys, "denoise.insert.random", at), self.vocab.roles["mask"])
        return text.gather(1, origin.clamp_(min=0)).scatter_(1, at, tokens)[:, :width], size

    def _mask(self, text: Tensor, size: Tensor, keys: Tensor) -> Tensor:
        at = self._tokens(size, self.config.mask, keys, "denoise.mask", text.shape[1])
        return F.pad(text, (0, 1)).scatter_(1, at, self._masks(keys, "denoise.mask.as", at))[:, :-1]

    def _delete(self, text: Tensor, size: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        width = text.shape[1]
        at = self._tokens(size, self.config.delete, keys, "denoise.delete", width)
        real = torch.arange(width + 1, device=text.device)[None, :] < size[:, None]
        return _compact(text, real.scatter(1, at, False)[:, :width])

    def _tokens(self, size: Tensor, share: float, keys: Tensor, name: str, width: int) -> Tensor:
        """The places of a share of the tokens, `width` behind the last. (B, J)"""
        count = _share(size, share)[:, None]
        at, number = _pick(keys, name, size[:, None], max(1, int(count.max())), width)
        return torch.where(number < count, at, width)

    def _rotate(self, text: Tensor, size: Tensor, keys: Tensor) -> Tensor:
        luck = chance.uniform_tensor(keys, "denoise.rotate", 2)
        first = (luck[:, 1] * (size + 1)).long() * (luck[:, 0] < self.config.rotate)
        place = torch.arange(text.shape[1], device=text.device)[None, :]
        turned = (place + first[:, None]) % size.clamp(min=1)[:, None]
        return text.gather(1, torch.where(place < size[:, None], turned, place))

    def _masks(self, keys: Tensor, name: str, at: Tensor) -> Tensor:
        """What masks at these places look like: some are random tokens."""
        random = chance.uniform_at(keys, name, at) < self.config.random
        return torch.where(random, self._drawn(keys, f"{name}.random", at), self.vocab.roles["mask"])

    def _drawn(self, keys: Tensor, name: str, at: Tensor) -> Tensor:
        return (chance.uniform_at(keys, name, at) * self.vocab.size).long()


def poisson(mean: float) -> list[float]:
    """The law of the lengths 0, 1, 2 ..., cut off as in fairseq where it falls below 1e-7, and made whole."""
    law = [math.exp(-mean)]
    while len(law) < 128 and (law[-1] >= 1e-7 or len(law) <= mean):
        law.append(law[-1] * mean / len(law))
    return [share / sum(law) for share in law]


def _share(count: Tensor, share: float) -> Tensor:
    """ceil(share * count), where the product's rounding makes no difference."""
    return (count.double() * share - 1e-9).ceil().long().clamp(min=0)


def _pick(keys: Tensor, name: str, count: Tensor, most: int, width: int) -> tuple[Tensor, Tensor]:
    """Different numbers below the count, in random order, then others; and their places in it. Shape: (B, 1) -> (B, most)."""
    number = torch.arange(width, device=keys.device)[None, :]
    luck = torch.where(number < count, chance.uniform_tensor(keys, name, width), 2.0)
    return luck.topk(most, dim=1, largest=False).indices, number[:, :most]


def _compact(values: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
    """The kept values of each row, moved together to its front, zeros behind them; and how many. (B, L), (B,)"""
    width, number = values.shape[1], keep.cumsum(1)
    at = torch.where(keep, number - 1, width)
    return torch.zeros_like(F.pad(values, (0, 1))).scatter_(1, at, values)[:, :width], number[:, -1]


def _places(starts: Tensor, size: Tensor) -> Tensor:
    """Where the first, second ... word begins; behind the last one the end of the text. Shape: (B, L) -> (B, L+1)."""
    width = starts.shape[1]
    at = torch.where(starts, starts.cumsum(1) - 1, width + 1)
    found = size[:, None].expand(-1, width + 2).contiguous()
    return found.scatter_(1, at, torch.arange(width, device=starts.device).expand_as(at))[:, : width + 1]


def _shuffled(count: Tensor, most: int, share: float, keys: Tensor) -> Tensor:
    """A share of the numbers below the count change places at random; the others stay. Shape: (B, 1) -> (B, most)."""
    number = torch.arange(most, device=keys.device).expand(len(count), -1)
    moving = _share(count, share)
    first = torch.where(number < count, chance.uniform_tensor(keys, "denoise.permute", most), 2.0).argsort(dim=1)
    chosen = torch.zeros_like(number).scatter(1, first, (number < moving).long()) > 0
    places = torch.where(chosen, number, most).argsort(dim=1, stable=True)  # the chosen ones, from left to right
    return number.scatter(1, places, torch.where(number < moving, first, places))


def _word_starts(batch: Batch) -> Tensor:
    """The first piece of a word, and specials; of what is too long for a word all pieces. (B, L)"""
    words = batch.words
    assert words is not None
    sizes = torch.zeros_like(words).scatter_add(1, words, torch.ones_like(words)).gather(1, words)
    return (words != F.pad(words[:, :-1], (1, 0), value=-1)) | (words == 0) | (sizes > LONGEST)
