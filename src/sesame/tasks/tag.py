"""Tag every word of a text: named entities, parts of speech.

Paper: Devlin et al. 2018, section 5.3 (CoNLL-2003). A linear layer and a softmax on the state of each word's first piece;
other pieces carry no label.
Targets: by the task's name, a tag (B, L) at the first piece of each word, IGNORE elsewhere.
Unusual: words are found in the pieces by character offsets, so any tokenizer will do and answers point into the original
text; a long text is tagged in windows, each word by the window that sees most around it.
"""

import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from sesame.backbones import Backbone
from sesame.data.batch import IGNORE, Batch, Targets
from sesame.data.examples import Example
from sesame.errors import SesameError
from sesame.tasks.base import Item, Reply, Task, TaskConfig
from sesame.tasks.windows import Inputs

_JOINERS = "\u200c\u200d"  # between letters of some scripts, and between the parts of an emoji


class Tag(Task):
    kind: ClassVar[str] = "tag"

    def __init__(self, name: str, config: TaskConfig, backbone: Backbone, dropout: float) -> None:
        super().__init__(name, config, backbone, len(config.labels), dropout)
        self.index = {label: number for number, label in enumerate(config.labels)}

    def items(self, examples: Sequence[Example], inputs: Inputs) -> list[Item]:
        found = []
        for example, text in zip(examples, inputs.encode([example.text for example in examples]), strict=True):
            words = words_of(example)
            places = first_pieces(text.offsets, words)
            labels = [] if example.label is None else [self._class(tag, example.place) for tag in example.label]
            windows = inputs.single(text)
            by_place: dict[int | None, list[int]] = defaultdict(list)
            for number, place in enumerate(places):
                by_place[place].append(number)
            spots: list[list[tuple[int, int]]] = []  # for each window: (place in the window, word)
            for window in windows:
                shift = window.first - window.body.start
                spots.append([(at, word) for at in window.own for word in by_place.get(at + shift, ())])
            found.append(Item(tuple(windows), (0,) * len(windows), labels or None, {"spots": spots, "words": words}))
        return found

    def _class(self, tag: str, place: str) -> int:
        if tag not in self.index:
            known = ", ".join(self.config.labels[:12])
            raise SesameError(f"{place}: the tag {tag!r} is not among those trained on ({known})")
        return self.index[tag]

    def training_items(self, items: Sequence[Item]) -> list[Item]:
        """Each window is drawn by itself."""
        return [
            Item((window,), (0,), item.label, {"spots": [spots]})
            for item in items
            for window, spots in zip(item.windows, item.extra["spots"], strict=True)
        ]

    def targets(self, items: Sequence[Item], width: int) -> Targets:
        rows = [(item.label, spots) for item in items for spots in item.extra["spots"]]
        labels = torch.full((len(rows), width), IGNORE)
        for row, (tags, spots) in enumerate(rows):
            for at, word in (
                reversed(spots) if tags is not None else ()
            ):  # of words that share a piece the first one counts
                labels[row, at] = tags[word]
        return Targets(labels)

    def logits(self, features: Tensor, batch: Batch) -> Tensor:
        """Shape: (B, L, tags)."""
        return self.out(self.dropout(self.standard(self.choice(features))))  # type: ignore[no-any-return]

    def loss(self, logits: Tensor, targets: Targets) -> Tensor:
        return F.cross_entropy(logits.flatten(0, 1), targets.labels.flatten(), reduction="sum")

    def read(self, logits: Tensor, item: Item, example: Example) -> Reply:
        words = item.extra["words"]
        tags, chances = ["O"] * len(words), [1.0] * len(words)
        scores = (logits / self.config.temperature).softmax(-1).cpu()
        for row, spots in enumerate(item.extra["spots"]):
            before = None
            for at, word in spots:
                best = int(scores[row, at].argmax())
                tag = self.config.labels[best]
                goes_on = at == before and tag.startswith("B-")  # one piece of two words is one entity
                tags[word], chances[word] = f"I-{tag[2:]}" if goes_on else tag, float(scores[row, at, best])
                before = at
        spans = [[start, end] for start, end in words]
        return {"tags": tags, "words": spans, "entities": entities(example.text, words, tags, chances)}


def words_of(example: Example) -> list[tuple[int, int]]:
    """The words that the file names; in a plain text runs of letters and digits, and single signs, with their marks."""
    if example.words:
        return list(example.words)
    found: list[tuple[int, int]] = []
    before = " "  # what the character before was, see `_kind`; a mark is as what it stands on
    for at, letter in enumerate(example.text):
        kind = _kind(letter)
        if kind != " " != before and (kind in "mj" or before == "j" or before == kind == "a"):
            found[-1] = (found[-1][0], at + 1)
            kind = before if kind == "m" else kind
        elif kind != " ":
            found.append((at, at + 1))
        before = kind
    return found


def _kind(letter: str) -> str:
    """A letter or digit "a", a joiner "j", a mark "m", a space " ", any other sign "s"."""
    if letter.isalnum() or letter == "_":
        return "a"
    if letter.isspace():
        return " "
    if letter in _JOINERS:
        return "j"
    return "m" if unicodedata.category(letter)[0] == "M" else "s"


def first_pieces(offsets: Sequence[tuple[int, int]], words: Sequence[tuple[int, int]]) -> list[int | None]:
    """For each word the first piece that overlaps it; None where the tokenizer dropped the word."""
    found: list[int | None] = []
    piece = 0
    for start, end in words:
        while piece < len(offsets) and offsets[piece][1] <= start:
            piece += 1
        at = piece
        while at < len(offsets) and offsets[at][0] == offsets[at][1]:
            at += 1
        found.append(at if at < len(offsets) and offsets[at][0] < end else None)
    return found


def entities(
    text: str, words: Sequence[tuple[int, int]], tags: Sequence[str], chances: Sequence[float]
) -> list[dict[str, Any]]:
    """Runs of IOB2 tags as spans of the text; the probability is that of the least certain word."""
    found: list[dict[str, Any]] = []
    before = "O"
    for (start, end), tag, chance in zip(words, tags, chances, strict=True):
        prefix, _, label = tag.partition("-")
        goes_on = prefix == "I" and before != "O" and before.partition("-")[2] == label
        if tag == "O":
            pass
        elif goes_on:
            last = found[-1]
            last["end"], last["text"] = end, text[last["start"] : end]
            last["probability"] = min(last["probability"], chance)
        else:
            name = label or tag  # a tag without a prefix (parts of speech) is an entity of one word
            found.append({"start": start, "end": end, "label": name, "text": text[start:end], "probability": chance})
        before = tag
    return found
