"""One training of one seed: from a start model to a task's weights in a folder, resumable at any moment."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sesame import chance
from sesame.backbones import Backbone, Encoded
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.run import Run
from sesame.checkpoint.tasks import share_pooler
from sesame.data.batch import Batch
from sesame.finetuning.framing import Frame, open_start
from sesame.finetuning.transfer import Transfer
from sesame.objectives.base import Term, Together
from sesame.objectives.model import Model
from sesame.progress import Bar, say
from sesame.tasks import Item, Task, TaskConfig, build_task
from sesame.tasks.answer import logits_of
from sesame.tasks.layers import MIX
from sesame.tasks.loader import ItemLoader, ManyLoader, keep_features
from sesame.train.adapt import prepare, unfreeze
from sesame.train.compute import replaying
from sesame.train.loop import Clock, Hooks, fit
from sesame.train.optim import build_optimizer
from sesame.train.precision import Machine
from sesame.train.state import State

CPU_TOKENS, GPU_TOKENS = 4096, 131_072  # places of a micro-batch
KEEP_BYTES = 3_000_000_000  # features of a frozen backbone are kept in memory up to so much
LOOKS = 8  # validation scores on the learning curve ...
LOOKING = 0.2  # ... as long as they take no more than this share of the time


@dataclass
class Lesson:
    """A task with its data, encoded once for all seeds."""

    config: TaskConfig
    train: list[Item]  # as the loader draws them
    valid: list[Item]
    pad: int
    features: list[Tensor] = field(default_factory=list)  # of each training window, if the backbone is frozen
    numbers: dict[int, int] = field(default_factory=dict)
    center: tuple[Tensor, Tensor] | None = None  # mean and spread of the features


def steps_of(transfer: Transfer, lessons: Mapping[str, Lesson]) -> int:
    """Small sets and many classes take more epochs."""
    classes = [len(lesson.config.labels) for lesson in lessons.values() if lesson.config.kind == "classify"]
    return transfer.steps(sum(len(lesson.train) for lesson in lessons.values()), max(classes, default=0))


Look = Callable[[dict[str, Task], Backbone], dict[str, float]]
"""A validation score of each task, as the model stands."""


class Recalled(Backbone):
    """Stands in for a frozen backbone: gives the features that were computed once."""

    def __init__(self, lessons: dict[str, Lesson]) -> None:
        super().__init__()
        self.lessons = lessons

    def forward(self, batch: Batch, only: Tensor | None = None, maps: bool = False) -> Encoded:
        (name,) = batch.targets
        assert batch.keys is not None
        return Encoded(batch, (), kept=keep_features(self.lessons[name].features, batch.keys, batch.ids.device))


@dataclass
class SeedRun:
    """Settings of one training; `train` gives the parts to save."""

    start: str
    lessons: dict[str, Lesson]
    transfer: Transfer
    machine: Machine
    seed: int
    save_minutes: float = 5.0
    save_steps: int = 0

    def train(self, run: Run, look: Look, shown: Bar) -> Parts:
        """Train to the end, going on from the run's last checkpoint if there is one."""
        parts = self._parts()
        model = Model(parts.backbone, Together(parts.tasks)).to(self.machine.device)
        scales = prepare(model, self.transfer.adapt)
        optimizer = build_optimizer(model, self.transfer.optimizer, scales)
        state = State()
        folder = run.latest()
        if folder is None:
            run.cut_all_metrics()
        else:
            self._restore(parts, folder)
            state = run.restore(folder, model, optimizer)
            say(f"{run.folder.name}: going on from step {state.step}")
        steps = self.steps()
        self.last_save, every = time.monotonic(), max(1, steps // LOOKS)
        hooks = self._hooks(run, model, parts, optimizer, look, shown, every)
        load = self._loader(parts.tasks, steps).load
        fit(
            model,
            self._call(model),
            optimizer,
            load,
            rate=self.transfer.rate(parts.backbone.width),
            schedule=self.transfer.schedule,
            clip=self.transfer.optimizer.clip,
            clock=Clock(steps, None, time.monotonic(), state.elapsed),
            state=state,
            machine=self.machine,
            seed=self.seed,
            hooks=hooks,
            threads=1 if self.machine.device.type == "cpu" else 2,
            spikes=False,
        )
        optimizer.take_means()
        model.requires_grad_(True)
        model.eval()
        for task in parts.tasks.values():
            task.settle()
        return parts

    def steps(self) -> int:
        return steps_of(self.transfer, self.lessons)

    def _parts(self) -> Parts:
        """The start model with fresh heads; a pooler that was pre-trained is taken over."""
        parts = open_start(self.start, self.transfer.task.frame)
        torch.manual_seed(chance.key(self.seed, 7) >> 1)
        dropout = self.transfer.task.dropout
        if dropout < 0:
            dropout = parts.backbone.config.dropout
        else:
            parts.backbone.drop(dropout)
        tasks = {
            name: build_task(name, lesson.config, parts.backbone, dropout) for name, lesson in self.lessons.items()
        }
        for name, task in tasks.items():
            task.center = self.lessons[name].center
        share_pooler(tasks)
        heads = {name: head for task in tasks.values() for name, head in task.heads().items()}
        known = parts.heads.get("pooler")
        if known is not None and "pooler" in heads and heads["pooler"].weight.shape == known.weight.shape:
            heads["pooler"].load_state_dict(known.state_dict())
        return Parts(parts.backbone, heads, parts.tokenizer, tasks=tasks, family=parts.family)

    @staticmethod
    @torch.no_grad()
    def _restore(parts: Parts, folder: Path) -> None:
        ours = parts.state()
        for name, tensor in load_parts(folder, tokenizer=False).state().items():
            if name in ours:
                ours[name].copy_(tensor)

    def _call(self, model: Model) -> Callable[[Batch], list[Term]]:
        if self.transfer.adapt.strategy != "frozen":
            return replaying(model, self.machine)
        if not any(lesson.features for lesson in self.lessons.values()):
            return model
        recalled = Recalled(self.lessons)
        # A task whose features were too many to keep comes without keys: its batches go through the backbone.
        return lambda batch: model.objective(model.backbone if batch.keys is None else recalled, batch)

    def _loader(self, tasks: dict[str, Task], steps: int) -> ItemLoader | ManyLoader:
        tokens = CPU_TOKENS if self.machine.device.type == "cpu" else GPU_TOKENS
        seed = chance.key(self.seed, 8) >> 1
        unpad = self.machine.shadow and self.transfer.adapt.strategy != "frozen"
        loaders = [
            ItemLoader(tasks[name], lesson.train, lesson.pad, self.transfer.batch, seed, tokens, lesson.numbers, unpad)
            for name, lesson in self.lessons.items()
        ]
        return loaders[0] if len(loaders) == 1 else ManyLoader(loaders, steps, seed, self.transfer.alpha)

    def _hooks(self, run: Run, model: Model, parts: Parts, optimizer: Any, look: Look, shown: Bar, every: int) -> Hooks:
        seen = {"step": 0}
        began, looking = time.monotonic(), [0.0]

        def window(state: State, figures: dict[str, Any]) -> None:
            shown.note(f"step {state.step} · loss {figures['loss']:.3f}")
            shown.advance(state.step - seen["step"])
            seen["step"] = state.step
            run.log({"step": state.step, "seconds": round(state.elapsed, 2), **figures})

        def evaluate(state: State) -> None:
            asked = time.monotonic()
            found = look(parts.tasks, parts.backbone)
            looking[0] += time.monotonic() - asked
            each = {"each": found} if len(found) > 1 else {}
            run.log({"step": state.step, "valid": sum(found.values()) / len(found), **each})
            model.train()

        def save(state: State) -> None:
            run.save(parts, model, optimizer, state, "")
            self.last_save = time.monotonic()

        def save_due(state: State) -> bool:
            if self.save_steps:
                return state.step % self.save_steps == 0
            return time.monotonic() - self.last_save >= self.save_minutes * 60

        def skipped(state: State, step: int, why: str) -> None:
            say(f"step {step}: {why}; going back and leaving this batch out")
            run.log({"step": state.step, "skipped": step, "why": why})

        def before(progress: float) -> None:
            unfreeze(model, self.transfer.adapt, progress)

        gradual = {"before": before} if self.transfer.adapt.strategy == "gradual" else {}

        def due(state: State) -> bool:
            return state.step % every < 10 and looking[0] <= LOOKING * (time.monotonic() - began)

        return Hooks(
            window=window, save=save, evaluate=evaluate, skipped=skipped, save_due=save_due, evaluate_due=due, **gradual
        )


@torch.no_grad()
def keep(start: str, lessons: dict[str, Lesson], machine: Machine, frame: Frame = "auto") -> None:
    """Compute the features of all training windows once, for the heads of all seeds; too many are computed as they come."""
    parts = open_start(start, frame)
    backbone = parts.backbone.to(machine.device).eval()
    for name, lesson in lessons.items():
        task = build_task(name, lesson.config, backbone)
        windows = {id(window): window for item in lesson.train for window in item.windows}
        size = task.choice.width * 4 * (parts.backbone.depth + 1 if lesson.config.layers == "mix" else 1)
        places = sum(len(w.ids) for w in windows.values()) if lesson.config.kind in ("tag", "qa") else len(windows)
        kept = places * size <= KEEP_BYTES
        if not kept:
            say(f"{name}: features of {places:,} places are too many to keep; computing them as they come")
        found: list[Tensor] = [torch.empty(0)] * len(windows)
        sums = _Sums()
        for number, part in _features(task, backbone, lesson, list(windows.values()), machine):
            sums.add(part)
            if kept:
                found[number] = part
        if lesson.config.layers != MIX:
            lesson.center = sums.center()
        if kept:
            lesson.features, lesson.numbers = found, {key: number for number, key in enumerate(windows)}


def _features(
    task: Task, backbone: Backbone, lesson: Lesson, windows: Sequence[Any], machine: Machine
) -> Iterator[tuple[int, Tensor]]:
    """The features of each window, with its number, the shortest windows first."""
    order = sorted(range(len(windows)), key=lambda number: len(windows[number].ids))
    tokens = 2 * CPU_TOKENS if machine.device.type == "cpu" else GPU_TOKENS
    start = 0
    while start < len(order):
        stop = start + max(1, min(len(order) - start, tokens // len(windows[order[start]].ids)))
        while (stop - start) * len(windows[order[stop - 1]].ids) > tokens and stop > start + 1:
            stop -= 1
        chosen = order[start:stop]
        items = [replace(_BARE, windows=(windows[number],), slots=(0,), extra={"spots": [[]]}) for number in chosen]
        batch = task.collate(items, lesson.pad).to(machine.device)
        with machine.autocast():
            features = task.features(backbone(batch, task.looks_at(batch)))
        if features.dtype == torch.bfloat16:
            features = features.float()
        for row, number in enumerate(chosen):
            part = features[:, row]
            yield number, (part[:, : len(windows[number].ids)] if part.ndim == 3 else part).clone()
        start = stop


class _Sums:
    """Mean and spread of each column over all windows (and places). A column that never changes keeps its scale."""

    def __init__(self) -> None:
        self.count, self.total, self.square = 0, torch.zeros(()), torch.zeros(())
        self.dtype = torch.float32

    def add(self, features: Tensor) -> None:
        rows = features.flatten(0, -2).double()
        self.count, self.dtype = self.count + len(rows), features.dtype
        self.total, self.square = self.total.to(rows) + rows.sum(0), self.square.to(rows) + rows.square().sum(0)

    def center(self) -> tuple[Tensor, Tensor]:
        mean = self.total / self.count
        variance = self.square / self.count - mean.square()
        spread = torch.where(variance > 1e-12, variance.clamp(min=0).sqrt(), 1.0)
        return mean.to(self.dtype), spread.to(self.dtype)


_BARE = Item(())


def predict(
    task: Task, backbone: Backbone, items: Sequence[Item], pad: int, machine: Machine | None = None
) -> list[Tensor]:
    """As `sesame predict` will, in 32 bits; with a machine as it trains, which is quicker."""
    fewer = machine is not None and machine.precision == "bf16"
    return logits_of(task, backbone, items, pad, torch.bfloat16 if fewer else None)
