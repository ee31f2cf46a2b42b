"""The words in context that lie nearest to one word in context (Peters et al. 2018, table 4).

    score(a, b) = cosine(v_a, v_b),  v the mean of a layer's states at the tokens of a word

All words of the texts are looked at, whatever they are: near ones mean the same there, or do the same in their sentences.
Relations: `senses` compares the occurrences of one word; these share a common part, which it takes away first.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sesame.backbones import Backbone
from sesame.backbones.fast import FastEncoder
from sesame.data.plain_words import WORD
from sesame.errors import SesameError
from sesame.explain.occurrences import Occurrence, contextual, pattern_of, quick, tokens_of
from sesame.explain.senses import unit
from sesame.text import Tokenizer

LAYERS = "sum-last-4"  # as `sesame neighbours` reads
HELD = 4096  # words whose vectors are held at a time
_WORD = re.compile(WORD)


@dataclass(frozen=True)
class Neighbor:
    occurrence: Occurrence
    line: int  # which of the texts, from 1
    cosine: float


def occurrence(text: str, word: str, at: int = 1) -> Occurrence:
    """The word in the text; `at` says which of several, from 1."""
    spans = [hit.span() for hit in pattern_of(word).finditer(text)]
    if not spans:
        raise SesameError(f"the word {word!r} does not stand in the text; write it as it stands there")
    if not 1 <= at <= len(spans):
        raise SesameError(f"at is {at}, but {word!r} stands {len(spans)} times in the text; choose from 1 on")
    return Occurrence(text, *spans[at - 1])


def near_words(
    backbone: Backbone,
    tokenizer: Tokenizer,
    asked: Occurrence,
    texts: Sequence[str],
    layers: str = LAYERS,
    count: int = 10,
    reader: Backbone | FastEncoder | None = None,
) -> list[Neighbor]:
    """The nearest words of the texts, the nearest first; the word itself is none of them. `reader`: as for `contextual`."""
    reader = reader or quick(backbone)
    words = [one for number, text in enumerate(texts, 1) for one in _words(backbone, tokenizer, text, number)]
    words = [(one, number) for one, number in words if one != asked]
    if not words:
        raise SesameError("the texts to look among hold no other word of the model; give more of them")
    vector = unit(contextual(backbone, tokenizer, [asked], layers, reader=reader), center=False)[0]
    cosines = np.concatenate(
        [
            unit(contextual(backbone, tokenizer, [one for one, _ in part], layers, reader=reader), center=False)
            @ vector
            for part in (words[begin : begin + HELD] for begin in range(0, len(words), HELD))
        ]
    )
    order = np.argsort(-cosines, kind="stable")[:count]
    return [Neighbor(words[row][0], words[row][1], min(float(cosines[row]), 1.0)) for row in order.tolist()]


def _words(backbone: Backbone, tokenizer: Tokenizer, text: str, number: int) -> list[tuple[Occurrence, int]]:
    """All words of a text that are tokens of the model."""
    whole = tokenizer.encode(text, special=True, literal=True)
    if backbone.longest is not None and len(whole.ids) > backbone.longest:
        raise SesameError(f"line {number} has {len(whole.ids)} tokens, the model takes {backbone.longest}; split it")
    found = [Occurrence(text, *hit.span()) for hit in _WORD.finditer(text)]
    return [(one, number) for one in found if tokens_of(one, whole)]
