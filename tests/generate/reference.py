"""The definitions, spelled out for one source: every text there is, and a beam search that never stops early."""

import itertools
import math
from collections.abc import Iterator

import torch

from sesame.generate import Settings
from tests.generate.speakers import Toy

Text = tuple[int, ...]  # with the end token where it ends


def logprobs(toy: Toy, first: int, said: Text, settings: Settings, end: int) -> list[float]:
    """Of each next token, minus infinity where it is forbidden."""
    table: list[float] = toy.logits(first, said).log_softmax(0).tolist()
    size = settings.no_repeat
    grams = {said[at : at + size] for at in range(len(said) - size + 1)} if size else set()
    for id in range(toy.vocab):
        repeats = bool(size) and len(said) + 1 >= size and (*said[len(said) - size + 1 :], id) in grams
        if repeats or (id == end and len(said) < settings.fewest):
            table[id] = -math.inf
    return table


def score(toy: Toy, first: int, length: int, text: Text, logprob: float, settings: Settings) -> float:
    divisor = len(text) if settings.penalty == "plain" else (5 + len(text)) / 6
    value = logprob / divisor**settings.alpha
    if settings.coverage:
        seen = [0.0] * length
        state = first * 577 % toy.STATES
        for id in text:
            looked = toy.looks[first, state][:length]
            seen = [old + new for old, new in zip(seen, (looked / looked.sum()).tolist(), strict=True)]
            state = (state * 131 + id * 5 + 3) % toy.STATES
        value += settings.coverage * sum(math.log(min(max(one, 1e-6), 1)) for one in seen)
    return value


def every_text(vocab: int, most: int, end: int) -> Iterator[Text]:
    others = [id for id in range(vocab) if id != end]
    for length in range(most):
        yield from ((*some, end) for some in itertools.product(others, repeat=length))
    yield from itertools.product(others, repeat=most)


def exhaustive(toy: Toy, source: list[int], settings: Settings, end: int) -> list[tuple[float, Text]]:
    """All texts, the best first."""
    found = []
    for text in every_text(toy.vocab, settings.most, end):
        steps = [logprobs(toy, source[0], text[:at], settings, end)[id] for at, id in enumerate(text)]
        if -math.inf not in steps:
            found.append((score(toy, source[0], len(source), text, sum(steps), settings), text))
    return sorted(found, reverse=True)


def patient_beam(toy: Toy, source: list[int], settings: Settings, end: int) -> list[tuple[float, Text]]:
    """Up to the greatest length, whatever is finished."""
    running: list[tuple[float, Text]] = [(0.0, ())]
    finished: list[tuple[float, Text]] = []
    for step in range(1, settings.most + 1):
        found = [
            (logprob + more, (*said, id))
            for logprob, said in running
            for id, more in enumerate(logprobs(toy, source[0], said, settings, end))
            if more > -math.inf
        ]
        found.sort(reverse=True)
        for logprob, text in found[: settings.beams]:
            if text[-1] == end or step == settings.most:
                finished.append((score(toy, source[0], len(source), text, logprob, settings), text))
        running = [one for one in found if one[1][-1] != end][: settings.beams]
    return sorted(finished, reverse=True)[: settings.best]


def close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)


def table_of(toy: Toy, first: int, said: Text) -> torch.Tensor:
    return toy.logits(first, said).softmax(0)
