"""Long texts as windows that overlap, so that nothing is cut in silence.

    [CLS] t0 ............ t99 [SEP]
                    [CLS] t75 ............ t174 [SEP]

Every token is answered for by exactly one window, the one in which it stands farther from the edge: `own`. A text that fits
is one window, encoded as the tokenizer's template says.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sesame.errors import SesameError
from sesame.text import Encoding, Tokenizer


@dataclass(frozen=True)
class Window:
    """One input of the model. `offsets` are characters of the windowed text; specials and the other text have (0, 0)."""

    ids: list[int]
    segments: list[int]
    offsets: list[tuple[int, int]]
    body: range  # the places of the windowed text
    own: range  # those of them that this window answers for
    first: int = 0  # the token of the text at which the body starts
    cls: int = 0  # the place of the class token


@dataclass(frozen=True)
class _Template:
    """What the tokenizer puts around one text, or around and between two."""

    around: tuple[Sequence[int], ...]  # ids before, between, after
    segments: tuple[Sequence[int], ...]  # theirs
    inner: tuple[int, ...]  # the segment of each text


class Inputs:
    """Texts to windows, for one tokenizer and one length; `segments` is how many the model tells apart."""

    def __init__(self, tokenizer: Tokenizer, limit: int, overlap: float = 0.25, segments: int = 2) -> None:
        self.tokenizer, self.limit, self.overlap = tokenizer, limit, overlap
        self.pad = tokenizer.id("pad") if tokenizer.has("pad") else 0
        text = tokenizer.sample
        self.one = _template(tokenizer.encode(text, special=True), 1, segments)
        self.two = _template(tokenizer.encode_pair(text, text), 2, segments)
        self.cls_last = tokenizer.cls_last
        self.shortened = 0  # how many texts beside a windowed one had to be cut
        least = sum(map(len, self.two.around)) + 8
        if limit < least:
            raise SesameError(f"windows of {limit} tokens are too short; take at least {least}")

    def encode(self, texts: Sequence[str]) -> list[Encoding]:
        """Bare pieces; a "[SEP]" inside a text stays plain characters."""
        return self.tokenizer.encode_batch(list(texts), literal=True)

    def single(self, text: Encoding) -> list[Window]:
        room = self.limit - sum(map(len, self.one.around))
        return [self._join(self.one, [_part(text, span)], 0, own, span.start) for span, own in self._cuts(text, room)]

    def pair(self, a: Encoding, b: Encoding, long: int | None = None) -> list[Window]:
        """Windows over text number `long` (None: the longer one); the other stands whole in each of them.

        If the other leaves too little room, it is cut to half of it, or to what the windowed text leaves free if that is
        more, and this is counted.
        """
        texts = [a, b]
        room = self.limit - sum(map(len, self.two.around))
        if long is None:
            long = 0 if len(a.ids) > len(b.ids) else 1
        most = max(room // 2, room - len(texts[long].ids))
        if len(texts[1 - long].ids) > most:
            texts[1 - long] = _part(texts[1 - long], range(most))
            self.shortened += 1
        left = room - len(texts[1 - long].ids)
        found = []
        for span, own in self._cuts(texts[long], left):
            parts = [texts[0], texts[1]]
            parts[long] = _part(texts[long], span)
            found.append(self._join(self.two, parts, long, own, span.start))
        return found

    def _cuts(self, text: Encoding, room: int) -> list[tuple[range, range]]:
        """Spans of tokens, and of each the tokens that it answers for."""
        count = len(text.ids)
        if count <= room:
            return [(range(count), range(count))]
        shared = min(int(room * self.overlap), room - 1)
        starts = list(range(0, count - shared, room - shared))
        starts[-1] = max(0, count - room)  # the last one reaches back: a full window knows more than a short one
        ends = [min(start + room, count) for start in starts]
        borders = [0, *((starts[i + 1] + ends[i]) // 2 for i in range(len(starts) - 1)), count]
        return [
            (range(start, end), range(borders[i], borders[i + 1]))
            for i, (start, end) in enumerate(zip(starts, ends, strict=True))
        ]

    def _join(self, template: _Template, parts: Sequence[Encoding], long: int, own: range, first: int) -> Window:
        ids, segments = list(template.around[0]), list(template.segments[0])
        offsets = [(0, 0)] * len(ids)
        body = range(0)
        for number, part in enumerate(parts):
            if number == long:
                body = range(len(ids), len(ids) + len(part.ids))
            ids += part.ids
            segments += [template.inner[number]] * len(part.ids)
            offsets += part.offsets if number == long else [(0, 0)] * len(part.ids)
            ids += template.around[number + 1]
            segments += template.segments[number + 1]
            offsets += [(0, 0)] * len(template.around[number + 1])
        shift = body.start - first
        cls = len(ids) - 1 if self.cls_last else 0
        return Window(ids, segments, offsets, body, range(own.start + shift, own.stop + shift), first, cls)


def _template(encoding: Encoding, texts: int, kinds: int) -> _Template:
    """Read the template off the encoding of short texts: specials belong to no word."""
    around: list[list[int]] = [[]]
    segments: list[list[int]] = [[]]
    inner: list[int] = []
    inside = False
    for id, word, segment in zip(encoding.ids, encoding.words, encoding.segments, strict=True):
        if word is None:
            inside = False
            around[-1].append(id)
            segments[-1].append(segment)
        elif not inside or segment != inner[-1]:
            inside = True
            inner.append(segment)
            around.append([])
            segments.append([])
    while len(inner) < texts:  # a template without a token between two texts
        inner.append(inner[-1] if inner else 0)
        around.insert(1, [])
        segments.insert(1, [])
    last = max(kinds, 1) - 1
    told = tuple([min(segment, last) for segment in part] for part in segments)
    return _Template(tuple(around), told, tuple(min(segment, last) for segment in inner))


def _part(text: Encoding, span: range) -> Encoding:
    cut = slice(span.start, span.stop)
    return Encoding(text.ids[cut], text.offsets[cut], text.words[cut], text.segments[cut])
