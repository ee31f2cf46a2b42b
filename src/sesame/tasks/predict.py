"""Examples to answers, through a trained task."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from sesame.backbones import Backbone
from sesame.backbones.fast import FastEncoder
from sesame.data.examples import Example
from sesame.errors import SesameError
from sesame.progress import bar, say
from sesame.tasks.answer import BEST, Engine, answer, logits_of
from sesame.tasks.base import Reply, Task
from sesame.tasks.windows import Inputs
from sesame.text import Tokenizer

ENDLESS = 512  # tokens of a window where the backbone has no limit


def predict(
    task: Task,
    backbone: Backbone,
    tokenizer: Tokenizer,
    examples: Sequence[Example],
    *,
    engine: FastEncoder | Engine | None = None,
    precision: torch.dtype | None = None,
    abstain: float = 0.0,
    best: int = BEST,
    progress: bool = False,
) -> list[Reply]:
    """One answer for each example; where the model is less sure than `abstain`, the answer is None and says so.

    Of several answers (entities, labels at once) those that are not sure enough are left out. Of the answers to a question
    the `best` are told, 20 at most. An `engine`, where one is given, computes instead of the backbone.
    """
    check_abstain(abstain)
    if abstain > 0 and task.config.kind == "regress":
        raise SesameError("a number comes without a probability, so there is nothing to abstain by; leave it out")
    for example in examples:
        _check(task, example)
    limit = window_length(task, backbone)
    inputs = Inputs(tokenizer, limit, task.config.overlap, backbone.segment_kinds)
    items = task.items([replace(example, label=None) for example in examples], inputs)  # labels may be of any kind
    long = sum(len(set(item.slots)) < len(item.windows) for item in items)
    if long:
        say(f"{long:,} of {len(items):,} texts are longer than {limit} tokens: read in overlapping windows")
    if inputs.shortened:
        say(f"{inputs.shortened:,} texts had to be shortened to fit beside the other one")
    with bar("predict", len(items), "texts") as shown:
        logits = logits_of(
            task, engine or backbone, items, inputs.pad, precision, shown if progress else None, alike=True
        )
    return [withheld(reply, abstain) for reply in answer(task, examples, items, logits, best)]


def window_length(task: Task, backbone: Backbone) -> int:
    return task.config.length or backbone.longest or ENDLESS


def _check(task: Task, example: Example) -> None:
    if task.config.kind == "qa" and example.pair is None:
        raise SesameError(f"{example.place}: a question needs its context; give both")
    if task.config.kind == "choice" and len(example.options) < 2:
        raise SesameError(f"{example.place}: a choice needs at least two options")
    if task.config.kind in ("classify", "regress") and task.config.pair and example.pair is None:
        raise SesameError(f"{example.place}: this model was trained on pairs of texts; give two")


def check_abstain(abstain: float) -> None:
    if not 0 <= abstain <= 1:
        raise SesameError(f"abstain is {abstain}; it is a probability, from 0 to 1")


def withheld(reply: Reply, abstain: float) -> Reply:
    """An answer that is not sure enough is not given; its probabilities stay."""
    if abstain <= 0:
        return reply
    if "entities" in reply:
        return reply | {"entities": [entity for entity in reply["entities"] if entity["probability"] >= abstain]}
    if "labels" in reply:
        return reply | {"labels": [name for name in reply["labels"] if reply["probabilities"][name] >= abstain]}
    sure = max(reply["probabilities"]) if "choice" in reply else reply["probability"]
    if sure >= abstain:
        return reply
    return reply | {key: None for key in ("label", "choice", "option", "answer") if key in reply} | {"abstained": True}
