"""From a body to what the batcher takes: the right model and task, sizes within the limits, tokens counted.

What can be known of a text before it is computed is said here, so that a batch seldom fails.

Batches must not change an answer. Two things in the library depend on what else is in a call: a draw depends on a prompt's
number, and the room for a continuation on the longest prompt. So draws, and prompts that come near the end of what their
model reads, are computed alone. So is what looks inside a model, for it takes long by itself.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sesame.backbones.flops import multiply_adds
from sesame.backbones.work import Work
from sesame.errors import SesameError
from sesame.explain.near_words import occurrence
from sesame.generate import Settings
from sesame.serve.answers import COMPUTE
from sesame.serve.bodies import (
    Body,
    Gaps,
    Look,
    Near,
    Options,
    PairTexts,
    Question,
    Rows,
    Sides,
    Source,
    Speech,
    TaskTexts,
)
from sesame.serve.limits import Limits
from sesame.serve.models import Served
from sesame.tasks.fill import mark_masks


class TooMuch(SesameError):
    """More than the server takes on."""


@dataclass(frozen=True)
class Ask:
    what: str
    inputs: list[Any]
    options: tuple[tuple[str, Any], ...]
    tokens: int
    alone: bool = False

    @property
    def key(self) -> Hashable:
        return None if self.alone else (self.what, self.options)


def choose(models: Mapping[str, Served], name: str | None) -> Served | None:
    """The model that is meant; None: there is none of this name."""
    if name is None and len(models) > 1:
        raise SesameError(f"several models are served ({', '.join(models)}); name one as model")
    return models.get(name) if name is not None else next(iter(models.values()), None)


def ask(what: str, body: Body, served: Served, limits: Limits) -> Ask:
    if what not in served.can:
        raise SesameError(f"{served.name} cannot do {what}; it can do {', '.join(served.can)}")
    inputs, texts = body.inputs(), body.read()
    _check_texts(texts, limits, len(body.texts) if isinstance(body, Near) else len(texts))
    counts = _counts(served, texts, limits)
    options, alone = _options(what, body, served, limits), False
    if isinstance(body, Gaps):
        _check_gaps(served, inputs, counts)
    elif isinstance(body, Look):
        alone = True
        if counts[0] > limits.maps:
            raise TooMuch(f"the text has {counts[0]} tokens; attention is shown for {limits.maps} at most")
    elif isinstance(body, Near):
        alone = True
        occurrence(body.text, body.word, body.at)  # says if there is none
    elif isinstance(body, Rows):
        alone = True
        _check_work(served, counts, limits)
    elif isinstance(body, Speech):
        settings = body.settings()
        most, longest = int(settings.get("most", Settings.most)), served.loaded.parts.backbone.longest
        near = what == "generate" and longest is not None and max(counts) + most > longest
        alone = near or "sample" in settings
    return Ask("embed" if what == "similarity" else what, inputs, options, sum(counts), alone)


def compute(served: Served, asks: Sequence[Ask]) -> list[list[Any]]:
    """The answers of requests with one key, by one call of the library."""
    first = asks[0]
    flat = [each for ask in asks for each in ask.inputs]
    found = iter(COMPUTE[first.what](served.loaded, flat, **dict(first.options)))
    return [[next(found) for _ in ask.inputs] for ask in asks]


def _check_texts(inputs: Sequence[Any], limits: Limits, count: int) -> None:
    if count > limits.texts:
        raise TooMuch(f"{count} texts are more than the {limits.texts} of one request; send several requests")
    for number, each in enumerate(inputs, 1):
        for text in each if isinstance(each, tuple) else (each,):
            if text is not None and len(text) > limits.characters:
                raise TooMuch(
                    f"text {number} has {len(text)} characters, more than {limits.characters}; send it in parts"
                )
            if text is not None and not _whole(text):
                raise SesameError(
                    f"text {number} holds half of a surrogate pair, which is no character; send both halves"
                )


def _whole(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _counts(served: Served, inputs: Sequence[Any], limits: Limits) -> list[int]:
    """Tokens of each input, those of a pair added."""
    texts = [each if isinstance(each, str) else " ".join(text for text in each if text is not None) for each in inputs]
    counts = served.lengths(texts)
    endless = served.loaded.parts.backbone.longest is None
    for number, count in enumerate(counts, 1):
        if not count:
            raise SesameError(f"text {number} holds no token of the model; give it some text")
        if endless and count > limits.long:
            raise TooMuch(f"text {number} has {count} tokens, more than {limits.long}; send it in parts")
    if sum(counts) > limits.tokens:
        raise TooMuch(f"{sum(counts)} tokens are more than the {limits.tokens} of one request; send several requests")
    return counts


def _check_work(served: Served, counts: Sequence[int], limits: Limits) -> None:
    """Rows are padded to the longest of their batch, so all to the longest is the most that they cost."""
    longest = max(counts)
    backbone = served.backbone
    each = multiply_adds(backbone.config, Work(min(longest, backbone.longest or longest)))
    most = int(limits.work / each)
    if len(counts) * longest > most:
        raise TooMuch(
            f"{len(counts)} rows of up to {longest} tokens are {len(counts) * longest:,} places, more than the {most:,} that "
            "this model is probed with; send fewer or shorter rows"
        )


def _options(what: str, body: Body, served: Served, limits: Limits) -> tuple[tuple[str, Any], ...]:
    """The keywords of the function in `COMPUTE`."""
    if isinstance(body, Look):
        return (("layer", body.layer), ("head", body.head), ("numbers", limits.numbers))
    if isinstance(body, Near):
        depth = served.backbone.depth
        if body.layer is not None and body.layer > depth:
            raise SesameError(f"layer is {body.layer}, but the model has 0 (the embeddings) to {depth}")
        return (("layer", body.layer), ("top", body.top))
    if isinstance(body, Options):
        return (("task", served.task("choice", body.task)),)
    if isinstance(body, Gaps):
        return (("top", body.top),)
    if isinstance(body, Question):
        return (("task", served.task("qa", body.task)), ("best", body.best))
    if isinstance(body, Speech):
        settings = body.settings()
        if settings.get("most", 0) > limits.new:
            raise TooMuch(f"max_tokens is {settings['most']}; {limits.new} are the most here")
        settings.setdefault("most", min(Settings.most, limits.new))
        Settings(**({"beams": 5} if what == "translate" else {}) | settings)  # says what does not go together
        aligned = isinstance(body, Source) and body.alignment
        chosen = tuple(sorted(settings.items()))
        return (("settings", chosen), ("alternatives", body.alternatives), ("alignment", aligned))
    if isinstance(body, PairTexts) and what == "nsp":
        if body.pair is None and body.pairs is None:
            raise SesameError("next-sentence prediction asks about pairs of texts; give pair or pairs too")
        return ()
    if isinstance(body, TaskTexts):
        task = served.task(what, body.task)
        paired = served.loaded.parts.tasks[task].config.pair
        if paired and isinstance(body, PairTexts) and body.pair is None and body.pairs is None:
            raise SesameError(f"the task {task} was trained on pairs of texts; give pair or pairs too")
        return (("task", task),)
    return ()


def _check_gaps(served: Served, texts: Sequence[str], counts: Sequence[int]) -> None:
    tokenizer, limit = served.loaded.tokenizer, served.loaded.limit
    for number, (text, count) in enumerate(zip(texts, counts, strict=True), 1):
        if tokenizer.roles["mask"] not in mark_masks(text, tokenizer):
            raise SesameError(f"text {number} has no gap; write [MASK] where a word is wanted")
        if count > limit:
            raise SesameError(f"text {number} has {count} tokens, the model takes {limit}; shorten it")


def similarities(body: Sides, answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The cosine of every text of `a` with every one of `b`."""
    import numpy as np

    vectors = np.array([answer["vector"] for answer in answers])
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.maximum(lengths, 1e-12)
    count = len(body.sides()[0])
    return {"matrix": (unit[:count] @ unit[count:].T).tolist()}
