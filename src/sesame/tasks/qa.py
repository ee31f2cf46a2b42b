"""Answer a question by a span of its context (SQuAD 1.1 and 2.0).

Paper: Devlin et al. 2018, sections 4.2 and 4.3. Two vectors S and E give every place i the chance to start or end the answer:
    P(i starts) = softmax_i(S · h_i);  score(i, j) = S · h_i + E · h_j, j >= i;  no answer: s_null = S · h_[CLS] + E · h_[CLS]
"No answer" is given when s_null exceeds the best span by more than a threshold tuned on validation data.
Targets: "start" and "end" places (B, 2); a window without the answer points at [CLS].
Unusual: a long context is read in windows. A span's place is compared across windows by its score, its probability is over
the best spans of all windows; answers are spans of characters of the original text, with the combining marks of their last
letter, which many tokenizers compose or strip.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from sesame.backbones import Backbone
from sesame.data.batch import IGNORE, Batch, Targets
from sesame.data.examples import Example
from sesame.tasks.base import Item, Reply, Task, TaskConfig
from sesame.tasks.windows import Inputs, Window
from sesame.text import Encoding

BEST = 20  # starts and ends that are combined in each window
LONGEST = 30  # words of an answer are few: 30 pieces, as in the authors' code


class Answerer(Task):
    kind: ClassVar[str] = "qa"

    def __init__(self, name: str, config: TaskConfig, backbone: Backbone, dropout: float) -> None:
        super().__init__(name, config, backbone, 2, 0.0)  # the authors' head has no dropout of its own

    def items(self, examples: Sequence[Example], inputs: Inputs) -> list[Item]:
        questions = inputs.encode([example.pair or "" for example in examples])
        contexts = inputs.encode([example.text for example in examples])
        found = []
        for example, question, bare in zip(examples, questions, contexts, strict=True):
            context = _with_marks(bare, example.text)
            windows = inputs.pair(question, context, long=1)
            labels = None
            if example.label is not None:
                spans = [(answer.start, answer.start + len(answer.text)) for answer in example.label]
                span = _read(context, spans[0]) if spans else None
                labels = [_places(window, span) for window in windows]
            found.append(Item(tuple(windows), (0,) * len(windows), labels))
        return found

    def training_items(self, items: Sequence[Item]) -> list[Item]:
        """Each window is drawn by itself; those without the answer learn to say so."""
        return [
            Item((window,), (0,), [places])
            for item in items
            for window, places in zip(item.windows, item.label or [], strict=True)
        ]

    def targets(self, items: Sequence[Item], width: int) -> Targets:
        rows: list[tuple[int, int]] = []
        for item in items:
            rows += item.label if item.label is not None else [(IGNORE, IGNORE)] * len(item.windows)
        inside = [[window.body.start, window.body.stop] for item in items for window in item.windows]
        return Targets(torch.tensor(rows), at=torch.tensor(inside))

    def logits(self, features: Tensor, batch: Batch) -> Tensor:
        """Shape: (B, L, 2); -inf at padding."""
        found: Tensor = self.out(self.standard(self.choice(features)))
        real = torch.arange(found.shape[1], device=found.device)[None] < batch.lengths[:, None]
        return found.masked_fill(~real[..., None], -torch.inf)

    def loss(self, logits: Tensor, targets: Targets) -> Tensor:
        """Start and end count alike; each row has two targets."""
        return F.cross_entropy(logits.transpose(1, 2).flatten(0, 1), targets.labels.flatten(), reduction="sum")

    def read(self, logits: Tensor, item: Item, example: Example) -> Reply:
        """The best span over all windows, with its rivals: as many as the probability is shared among."""
        found: dict[tuple[int, int], float] = {}
        null = float("inf")
        for window, scores in zip(item.windows, logits, strict=True):
            null = min(null, float(scores[window.cls].sum()))
            for score, span in _spans(scores, window):
                found[span] = max(score, found.get(span, -float("inf")))
        ranked = sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))[:BEST]
        if not ranked:
            return {"answer": "", "start": 0, "end": 0, "probability": 1.0, "null_score": 0.0, "best": []}
        scores = torch.tensor([score for _, score in ranked] + ([null] if self.config.null else []))
        chances = (scores / self.config.temperature).softmax(0).tolist()
        best = [
            {"answer": example.text[start:end], "start": start, "end": end, "probability": chance}
            for ((start, end), _), chance in zip(ranked, chances, strict=False)
        ]
        above = null - ranked[0][1]
        reply: dict[str, Any] = {**best[0], "null_score": above, "best": best}
        if self.config.null:
            reply["no_answer"] = chances[-1]
            if above > self.config.threshold:
                reply |= {"answer": "", "start": 0, "end": 0, "probability": chances[-1]}
        return reply


def unheld(item: Item, example: Example) -> bool:
    """Whether there is an answer, but no window holds it whole: what is learnt is that there is none."""
    windows = zip(item.windows, item.label or (), strict=True)
    return bool(example.label) and all(places == (window.cls, window.cls) for window, places in windows)


def untold(item: Item) -> bool:
    """Whether its answer is longer than any that is ever told."""
    return any(last - first >= LONGEST for first, last in item.label or ())


def _with_marks(pieces: Encoding, text: str) -> Encoding:
    """Each piece with the combining marks behind it that no piece stands for: "cafe" is no answer where "café" is."""
    if text.isascii():
        return pieces
    offsets = []
    following = [*(start for start, _ in pieces.offsets[1:]), len(text)]
    for (start, end), stop in zip(pieces.offsets, following, strict=False):
        while start < end < stop and unicodedata.category(text[end])[0] == "M":
            end += 1
        offsets.append((start, end))
    return replace(pieces, offsets=offsets)


def _read(pieces: Encoding, span: tuple[int, int]) -> tuple[int, int] | None:
    """A span without the characters at its ends that the tokenizer drops, such as marks of direction: no window has them."""
    inside = [(start, end) for start, end in pieces.offsets if end > span[0] and start < span[1]]
    return (max(span[0], inside[0][0]), min(span[1], inside[-1][1])) if inside else None


def _places(window: Window, span: tuple[int, int] | None) -> tuple[int, int]:
    """First and last piece of a span of characters; twice the place of [CLS], if the window does not hold it whole."""
    none = window.cls, window.cls
    if span is None:
        return none
    inside = [at for at in window.body if window.offsets[at][1] > span[0] and window.offsets[at][0] < span[1]]
    if not inside:
        return none
    cut = window.offsets[inside[0]][0] > span[0] or window.offsets[inside[-1]][1] < span[1]
    return none if cut else (inside[0], inside[-1])


def _spans(scores: Tensor, window: Window) -> list[tuple[float, tuple[int, int]]]:
    """The best spans of one window: their scores, and their characters."""
    body = scores[window.body.start : window.body.stop]
    if not len(body):
        return []
    starts, ends = (body[:, side].topk(min(BEST, len(body))) for side in (0, 1))
    found = []
    for start, a in zip(starts.indices.tolist(), starts.values.tolist(), strict=True):
        for end, b in zip(ends.indices.tolist(), ends.values.tolist(), strict=True):
            if start <= end < start + LONGEST:
                first, last = window.offsets[window.body.start + start], window.offsets[window.body.start + end]
                if last[1] > first[0]:
                    found.append((a + b, (first[0], last[1])))
    return found
