"""Items to logits, in batches of similar length; in a frozen model also to the features that a head is trained on."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from sesame.backbones import Backbone
from sesame.backbones.fast import FastEncoder
from sesame.data.batch import Batch
from sesame.data.examples import Example
from sesame.nn.steady import Steady
from sesame.progress import Bar
from sesame.tasks.base import Item, Reply, Task
from sesame.tasks.streams import even, side_by_side

TOKENS = 8192  # places of a batch: enough to fill two cores, little enough to stay in memory
BEST = 5  # answers to a question that are told where nobody says how many


class Engine(Protocol):
    """Backbone and head in one, computed elsewhere: a padded batch on the CPU to the head's numbers."""

    def logits(self, batch: Batch) -> Tensor: ...


def logits_of(
    task: Task,
    backbone: Backbone | FastEncoder | Engine,
    items: Sequence[Item],
    pad: int,
    precision: torch.dtype | None = None,
    progress: Bar | None = None,
    alike: bool = False,
) -> list[Tensor]:
    """The logits of every item, on the CPU, in the order given; `precision` bfloat16 computes a `Backbone` in it.

    With `alike` a backbone on a CPU is given rows of one length at a time: padding would change the last bits.
    """
    found: list[Tensor] = [torch.empty(0)] * len(items)
    fast = isinstance(backbone, FastEncoder)
    device = next(backbone.parameters()).device if isinstance(backbone, Backbone) else torch.device("cpu")
    tokens = TOKENS if device.type == "cpu" else 16 * TOKENS

    def work(group: list[int]) -> None:
        chosen = [items[i] for i in group]
        batch = task.collate(chosen, pad).to(device)
        with torch.no_grad(), torch.autocast(device.type, precision or torch.bfloat16, enabled=precision is not None):
            logits = _logits(task, backbone, batch, tokens).float().cpu()
        for index, part in zip(group, task.split(logits, chosen), strict=True):
            found[index] = part
        if progress is not None:
            progress.advance(len(group))

    modules = [module for module in (task, backbone) if isinstance(module, torch.nn.Module)]
    training = [module.training for module in modules]
    for module in modules:
        module.eval()
    if fast:
        side_by_side(work, even([item.tokens for item in items]))
    else:
        for group in _groups(items, tokens, alike and device.type == "cpu" and isinstance(backbone, Backbone)):
            work(group)
    for module, before in zip(modules, training, strict=True):
        module.train(before)
    return found


def _logits(task: Task, backbone: Backbone | FastEncoder | Engine, batch: Batch, tokens: int) -> Tensor:
    if isinstance(backbone, FastEncoder):  # steady by itself
        last = task.config.layers == "last"
        features = [task.features(backbone(part, task.looks_at(part), last)) for part in _slices(batch, tokens)]
    elif isinstance(backbone, Backbone):
        with Steady():
            features = [task.features(backbone(part, task.looks_at(part))) for part in _slices(batch, tokens)]
    else:
        return backbone.logits(batch)
    with Steady():
        return task.logits(torch.cat(features, dim=1), batch)


def answer(
    task: Task, examples: Sequence[Example], items: Sequence[Item], logits: Sequence[Tensor], best: int = BEST
) -> list[Reply]:
    """Logits to answers; of those to a question the `best` are told."""
    replies = [task.read(*each) for each in zip(logits, items, examples, strict=True)]
    return [reply | {"best": reply["best"][:best]} if "best" in reply else reply for reply in replies]


def _groups(items: Sequence[Item], tokens: int, alike: bool = False) -> list[list[int]]:
    """Indices by length: a group's windows, padded to its longest, fill at most `tokens` places.

    With `alike` a group has one width, and padding in all of its items or in none.
    """
    groups: list[list[int]] = []
    sizes = [[len(window.ids) for window in item.windows] for item in items]
    shapes = [(max(each), min(each) < max(each)) for each in sizes]
    rows = 0
    for index in sorted(range(len(items)), key=shapes.__getitem__):
        more = len(sizes[index])
        fits = bool(groups) and (rows + more) * shapes[index][0] <= tokens
        if fits and not (alike and shapes[index] != shapes[groups[-1][0]]):
            groups[-1].append(index)
            rows += more
        else:
            groups.append([index])
            rows = more
    return groups


def _slices(batch: Batch, tokens: int) -> list[Batch]:
    """A batch that one very long text made too big, in parts of fewer rows; heads see it whole again."""
    most = max(1, tokens // batch.ids.shape[1])
    if batch.size <= most:
        return [batch]
    return [
        replace(
            batch,
            ids=batch.ids[start : start + most],
            lengths=batch.lengths[start : start + most],
            segments=None if batch.segments is None else batch.segments[start : start + most],
        )
        for start in range(0, batch.size, most)
    ]
