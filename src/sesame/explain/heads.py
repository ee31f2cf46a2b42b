"""What each attention head is worth: drop one, measure again (Michel, Levy & Neubig 2019, https://arxiv.org/abs/1905.10650).

A head is dropped by making its part of the concatenated heads 0, just before W_O, which is the same as making its columns of
W_O 0. What is measured is one score of one text, or a task's metric on labelled rows.

Unusual: a shared layer (ALBERT) is dropped at one depth only, by counting its calls. Heads that stand in for each other look
useless one by one: the changes do not add up.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from sesame.backbones import Backbone
from sesame.checkpoint.folder import Parts
from sesame.data.examples import Example
from sesame.errors import SesameError
from sesame.evaluate.scoring import gold_of, interval, main_score, said_of, score
from sesame.progress import Bar
from sesame.tasks import Task
from sesame.tasks.answer import answer, logits_of
from sesame.tasks.predict import window_length
from sesame.tasks.windows import Inputs


@dataclass(frozen=True)
class Layer:
    """The attention of one depth: a module with `heads` and `out`, and which of its calls in a pass this is."""

    name: str
    attention: nn.Module
    call: int

    @property
    def heads(self) -> int:
        return int(self.attention.heads)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Ablation:
    name: str  # of what was measured
    whole: float  # with all heads
    layers: list[str]
    without: npt.NDArray[np.float64]  # (layers, heads): what is left without this head; NaN where there is none
    rows: int = 0  # of the labelled data
    between: tuple[float, float] | None = None  # 95 % of `whole` when rows are drawn again

    @property
    def change(self) -> npt.NDArray[np.float64]:
        found: npt.NDArray[np.float64] = self.without - self.whole
        return found


def layers_of(backbone: Backbone) -> list[Layer]:
    """All attention of a model, bottom to top; a decoder's looks at itself and at the source are two."""
    found: list[Layer] = []
    calls: dict[nn.Module, int] = {}
    encoders = len(getattr(getattr(backbone, "encoder", None), "blocks", ())) if backbone.answers else 0
    for number, block in enumerate(getattr(backbone, "blocks", ())):
        for part, what in (("attention", ""), ("cross", " to the source")):
            attention = getattr(block, part, None)
            if not isinstance(attention, nn.Module) or not hasattr(attention, "heads") or not hasattr(attention, "out"):
                continue
            side = "" if not backbone.answers else "encoder " if number < encoders else "decoder "
            place = number + 1 - (encoders if side == "decoder " else 0)
            found.append(Layer(f"{side}{place}{what}", attention, calls.setdefault(attention, 0)))
            calls[attention] += 1
    if not found:
        raise SesameError("this model has no attention heads to drop; take a Transformer")
    return found


@contextmanager
def without(backbone: Backbone, layer: Layer, head: int) -> Iterator[None]:
    """The backbone with one head dropped."""
    seen = [0]

    def begin(module: nn.Module, given: object) -> None:
        seen[0] = 0

    def cut(module: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        seen[0] += 1
        if seen[0] - 1 != layer.call:
            return None
        x = given[0].clone(memory_format=torch.contiguous_format)
        x.view(*x.shape[:-1], layer.heads, -1)[..., head, :] = 0.0
        return (x,)

    out = layer.attention.out
    assert isinstance(out, nn.Module)
    hooks = [backbone.register_forward_pre_hook(begin), out.register_forward_pre_hook(cut)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def ablate(backbone: Backbone, name: str, measure: Callable[[], float], shown: Bar | None = None) -> Ablation:
    """Measure with all heads, then without each."""
    layers = layers_of(backbone)
    whole = measure()
    left = np.full((len(layers), max(layer.heads for layer in layers)), np.nan)
    for row, layer in enumerate(layers):
        for head in range(layer.heads):
            with without(backbone, layer, head):
                left[row, head] = measure()
            if shown is not None:
                shown.advance(1)
    return Ablation(name, whole, [layer.name for layer in layers], left)


def ablate_on(parts: Parts, task: Task, examples: Sequence[Example], shown: Bar | None = None) -> Ablation:
    """The task's main metric on labelled rows, without each head."""
    assert parts.tokenizer is not None
    inputs = Inputs(
        parts.tokenizer, window_length(task, parts.backbone), task.config.overlap, parts.backbone.segment_kinds
    )
    items, gold, metric = task.items(examples, inputs), gold_of(task.config, examples), main_score(task.config)

    def said() -> list[object]:
        return said_of(task.config, answer(task, examples, items, logits_of(task, parts.backbone, items, inputs.pad)))

    between = interval(task.config, metric, gold, said())
    found = ablate(parts.backbone, metric, lambda: score(task.config, gold, said())[metric], shown)
    return Ablation(metric, found.whole, found.layers, found.without, len(examples), between)
