"""Where a word stands in texts, and the vector that a model gives it there.

A contextual vector of an occurrence is the mean of a layer's states at the tokens of the word (Peters et al. 2018, section
5.3; Reif et al. 2019). Any encoder and any model that reads texts will do, ELMo's biLM too. Of a masked model it may be the
state at a mask in the word's place (`hide`): what the context says of the word, without the word, which is the same in all of
its senses. (After Amrami & Goldberg 2019, https://arxiv.org/abs/1905.12598, who compare the fills; figures: docs/vectors.md.)

Unusual: of a sentence that is too long for the model, the tokens around the word are read, as many on both sides. Words of
one sentence that fits share its reading.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch

from sesame.backbones import Backbone, Encoder
from sesame.backbones.encoder_half import EncoderHalf
from sesame.backbones.fast import FastEncoder
from sesame.data.plain_words import MARK
from sesame.data.readers import Document
from sesame.data.sentences import sentence_spans
from sesame.doctor.scripts import SPACELESS_RUN
from sesame.errors import SesameError
from sesame.progress import Bar
from sesame.tasks.embed import embed
from sesame.text import Encoding, Tokenizer
from sesame.text.template import around

Matrix = npt.NDArray[np.float32]
T = TypeVar("T")
GROUP = 256  # occurrences that are held with all their tokens at a time


@dataclass(frozen=True)
class Occurrence:
    """A word in a sentence; `start` and `end` are characters of the sentence."""

    text: str
    start: int
    end: int
    place: str = ""  # file and line

    @property
    def word(self) -> str:
        return self.text[self.start : self.end]


def pattern_of(word: str) -> re.Pattern[str]:
    """A whole word, small or capital; "play*" is all words that begin so. Where letters stand beside each other without
    spaces (Chinese, Thai), nothing tells where a word ends: there it is found wherever it is written."""
    stem = word.removesuffix("*")
    if not stem.strip():
        raise SesameError(f"the word {word!r}: holds no letter; give a word, or the beginning of one with * behind it")
    begin = "" if SPACELESS_RUN.match(stem) else rf"(?<!\w)(?<!{MARK})"
    if SPACELESS_RUN.match(stem[-1]):
        end = rf"(?!{MARK})"  # a vowel or a tone of Thai: another syllable
    else:
        end = rf"(?:\w|{MARK})*" if stem != word else rf"(?!\w|{MARK})"
    return re.compile(f"{begin}{re.escape(stem)}{end}", re.IGNORECASE)


def find(word: str, documents: Iterable[Document], most: int | None = None) -> list[Occurrence]:
    """All occurrences of a word, small or capital; "play*" finds all words that begin so."""
    pattern = pattern_of(word)
    found: list[Occurrence] = []
    for document in documents:
        for start, end in sentence_spans(document.text):
            sentence = document.text[start:end]
            hits = list(pattern.finditer(sentence))
            place = f"{document.file}:{document.line + document.text.count(chr(10), 0, start)}" if hits else ""
            found += [Occurrence(sentence, *hit.span(), place) for hit in hits]
            if most is not None and len(found) >= most:
                return found[:most]
    return found


def contextual(
    backbone: Backbone,
    tokenizer: Tokenizer,
    occurrences: Sequence[Occurrence],
    layers: str = "sum-last-4",
    shown: Bar | None = None,
    reader: Backbone | FastEncoder | None = None,
    hide: bool = False,
) -> Matrix:
    """The vectors of occurrences (N, D), in the order given; a `reader` computes instead of the backbone."""
    if hide and not tokenizer.has("mask"):
        raise SesameError("--hide puts a mask in the place of the word, but this model has no mask token; leave it out")
    if hide and (not isinstance(backbone, Encoder | EncoderHalf) or getattr(backbone.config, "causal", False)):
        raise SesameError(
            "--hide puts a mask in the place of the word, and a model of this kind has never learnt from masks; leave it out"
        )
    room = backbone.longest or 1_000_000
    reader = reader or quick(backbone)
    found: list[Matrix] = []
    for begin in range(0, len(occurrences), GROUP):
        group = occurrences[begin : begin + GROUP]
        wholes = {
            text: tokenizer.encode(text, special=True, literal=True)
            for text in dict.fromkeys(one.text for one in group)
        }
        windows = [_window(tokenizer, one, wholes[one.text], room) for one in group]
        if hide:
            windows = [_hidden(encoding, rows, tokenizer.id("mask")) for encoding, rows in windows]
        inputs = {id(encoding): encoding for encoding, _ in windows}
        states = dict(zip(inputs, embed(reader, None, tokenizer, [*inputs.values()], layers, "none"), strict=True))
        found += [states[id(encoding)][rows].float().mean(0).numpy() for encoding, rows in windows]
        if shown is not None:
            shown.advance(len(group))
    return np.stack(found) if found else np.empty((0, backbone.width), np.float32)


def quick(backbone: Backbone) -> Backbone | FastEncoder:
    """On a CPU the packed encoder, where there is one; else the backbone itself. Without dropout, also where it just came
    from its folder: the packed encoder looks tokens up by the backbone's own table, whose dropout would be on."""
    backbone.eval()
    weight = next(backbone.parameters())
    if isinstance(backbone, Encoder) and weight.device.type == "cpu" and weight.dtype == torch.float32:
        return FastEncoder(backbone)
    return backbone


def tokens_of(one: Occurrence, whole: Encoding) -> list[int]:
    """Which tokens of its text are the word's."""
    return [at for at, (start, end) in enumerate(whole.offsets) if start < one.end and end > one.start]


def _window(tokenizer: Tokenizer, one: Occurrence, whole: Encoding, room: int) -> tuple[Encoding, list[int]]:
    """The input, and which of its tokens are the word's."""
    rows = tokens_of(one, whole)
    if not rows:
        raise SesameError(f"{one.place or one.text[:60]}: {one.word!r} is no token of the model; choose another word")
    if len(whole.ids) <= room:
        return whole, rows
    front, back = map(len, around(tokenizer))
    space = room - front - back
    begin = max(front, min((rows[0] + rows[-1] - space) // 2, len(whole.ids) - back - space))
    kept = [*range(front), *range(begin, begin + space), *range(len(whole.ids) - back, len(whole.ids))]
    cut = Encoding(
        [whole.ids[at] for at in kept],
        [whole.offsets[at] for at in kept],
        [whole.words[at] for at in kept],
        [whole.segments[at] for at in kept],
    )
    return cut, [place for place, at in enumerate(kept) if at in set(rows)]


def _hidden(whole: Encoding, rows: list[int], mask: int) -> tuple[Encoding, list[int]]:
    """The same input with one mask in the place of the word."""
    first, last = rows[0], rows[-1]

    def around(parts: list[T], here: T) -> list[T]:
        return [*parts[:first], here, *parts[last + 1 :]]

    span = (whole.offsets[first][0], whole.offsets[last][1])
    words, segments = around(whole.words, whole.words[first]), around(whole.segments, whole.segments[first])
    return Encoding(around(whole.ids, mask), around(whole.offsets, span), words, segments), [first]
