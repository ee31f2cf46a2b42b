"""Texts to texts: sources are answered, prompts are continued, in batches of similar length.

A source or prompt that does not fit is never cut in silence: sources lose their end and are counted, a prompt that leaves no
room for a continuation is refused, an answer that is cut at the greatest length is told.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch

from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.generate import Settings, Speaker, generate
from sesame.progress import Bar, say
from sesame.text import Tokenizer
from sesame.text.template import around

TEXTS, ON_A_GPU = 32, 128  # at a time; there a step takes as long for few as for many


@dataclass(frozen=True)
class Voice:
    """What a model must be told before it speaks, and how it ends."""

    end: tuple[int, ...]  # tokens that end a text
    start: tuple[int, ...] = ()  # what a decoder reads before it answers; (): it continues the text itself
    first: tuple[int, ...] = ()  # tokens that every answer begins with (mBART: the language)
    before: tuple[int, ...] = ()  # tokens before a prompt
    reverse: bool = False  # sources are read from their end, as in training
    last: int | None = None  # what `Settings.force_end` forces, where it is not the one token of `end`
    plain: bool = False  # runs of white space in a source are one space, as in training

    def read(self, text: str) -> str:
        """A source as the model knows sources."""
        return " ".join(text.split()) if self.plain else text


@dataclass(frozen=True)
class Said:
    text: str
    score: float  # log-probability under the penalties: what ranks hypotheses
    logprob: float
    ended: bool  # False: cut at the greatest length
    ids: list[int]


def speak(
    speaker: Speaker,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    voice: Voice,
    settings: Settings,
    longest: int | None,
    device: torch.device,
    *,
    batch: int | None = None,
    shown: Bar | None = None,
    places: Sequence[str] | None = None,
) -> list[list[Said]]:
    """For each text `settings.best` answers or continuations, the best first; `places`: where they come from."""
    inputs = inputs_of(tokenizer, texts, voice, longest, places)
    batch = batch or (ON_A_GPU if device.type == "cuda" else TEXTS)
    found: list[list[Said]] = [[] for _ in texts]
    for rows in _groups([len(ids) for ids in inputs], [_room(ids, voice, settings, longest) for ids in inputs], batch):
        given = _batch([inputs[row] for row in rows], tokenizer.id("pad") if tokenizer.has("pad") else 0, voice, device)
        given = replace(given, keys=torch.tensor(rows, device=device))
        most = _room(inputs[rows[0]], voice, settings, longest)
        asked = replace(settings, most=most, fewest=min(settings.fewest, most - 1))
        prefix = [list(voice.first)] * len(rows) if voice.first else None
        said = (
            given if given.outputs is None else Batch(given.outputs, torch.full_like(given.lengths, len(voice.start)))
        )
        hypotheses_of = generate(speaker, given, asked, voice.end, prefix=prefix, before=said, last=voice.last)
        for row, hypotheses in zip(rows, hypotheses_of, strict=True):
            prompt = [] if voice.start else inputs[row]
            found[row] = [
                Said(_text(tokenizer, prompt, h.ids), h.score, h.logprob, h.end is not None, h.ids) for h in hypotheses
            ]
        if shown is not None:
            shown.advance(len(rows))
    return found


def tell_cut(answers: Sequence[Said], most: int) -> None:
    """Answers that had no room for their end are told; BART's end is forced upon the last token."""
    cut = [len(said.ids) + said.ended for said in answers if not said.ended or len(said.ids) + 1 >= most]
    if cut:
        say(
            f"{len(cut):,} of {len(answers):,} answers do not end within {max(cut)} tokens and are cut; --most allows more, "
            "as far as the model takes them"
        )


def _text(tokenizer: Tokenizer, prompt: list[int], ids: list[int]) -> str:
    """What follows the prompt: whether a space stands between them, only both together tell."""
    return tokenizer.decode([*prompt, *ids]).removeprefix(tokenizer.decode(prompt)) if prompt else tokenizer.decode(ids)


def inputs_of(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    voice: Voice,
    longest: int | None,
    places: Sequence[str] | None = None,
    quiet: bool = False,
) -> list[list[int]]:
    """Ids as the model reads them; of what does not fit, people are told the places, by default the texts' numbers, unless
    they were told before (`quiet`)."""
    answers = bool(voice.start)
    places = places or [f"{'text' if answers else 'prompt'} {number}" for number in range(1, len(texts) + 1)]
    inputs = [
        encoding.ids for encoding in tokenizer.encode_batch(list(map(voice.read, texts)), special=answers, literal=True)
    ]
    if not answers:
        inputs = [[*voice.before, *ids] for ids in inputs]
    for place, ids in zip(places, inputs, strict=True):
        if not ids:
            raise SesameError(f"{place}: holds no token of the model; give it some text")
    if longest is not None and answers:
        long = [place for place, ids in zip(places, inputs, strict=True) if len(ids) > longest]
        if long and not quiet:
            where = _together(long[:5]) + (" ..." if len(long) > 5 else "")
            say(
                f"{len(long)} of {len(texts)} sources have more than {longest} tokens; their ends are not read: {where}"
            )
        back = len(around(tokenizer)[1])
        inputs = [ids if len(ids) <= longest else [*ids[: longest - back], *ids[len(ids) - back :]] for ids in inputs]
    elif longest is not None:
        for place, ids in zip(places, inputs, strict=True):
            if len(ids) >= longest:
                raise SesameError(
                    f"{place}: has {len(ids)} tokens and the model takes {longest}; shorten it to leave room"
                )
    return [turned(ids, *map(len, around(tokenizer))) for ids in inputs] if voice.reverse else inputs


def _together(places: Sequence[str]) -> str:
    """Places of one file name it once: "test.en:3, 9"."""
    front = places[0].rstrip("0123456789")
    same = all(place.startswith(front) and place[len(front) :].isdecimal() for place in places)
    return front + ", ".join(place[len(front) :] for place in places) if same else ", ".join(places)


def turned(ids: list[int], front: int, back: int) -> list[int]:
    """From its end; the tokens around it stay where they are."""
    end = len(ids) - back
    return [*ids[:front], *reversed(ids[front:end]), *ids[end:]]


def _room(ids: Sequence[int], voice: Voice, settings: Settings, longest: int | None) -> int:
    """New tokens at most: a prompt stands in the way of what follows it."""
    return settings.most if longest is None else min(settings.most, longest - len(voice.start or ids))


def _groups(sizes: Sequence[int], rooms: Sequence[int], most: int) -> Iterator[list[int]]:
    """Numbers of texts that are computed together: long ones first, so that a lack of memory shows at once.

    All have as much room, for a short prompt's text must not end where that of a long one has to.
    """
    order = sorted(range(len(sizes)), key=lambda number: -sizes[number])
    for _, alike in groupby(order, key=lambda number: rooms[number]):
        rows = list(alike)
        for begin in range(0, len(rows), most):
            yield rows[begin : begin + most]


def _batch(rows: Sequence[Sequence[int]], pad: int, voice: Voice, device: torch.device) -> Batch:
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.full((len(rows), int(lengths.max())), pad)
    for place, row in enumerate(rows):
        ids[place, : len(row)] = torch.tensor(row)
    outputs = torch.tensor([voice.start] * len(rows)) if voice.start else None
    full = bool((lengths == ids.shape[1]).all())
    return Batch(ids, lengths, outputs=outputs, full=full).to(device)
