"""What a run says of itself: its plan before the first step, its log, a note beside the bar, and its end."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sesame.checkpoint.run import Run
from sesame.nn.attention.core import chosen_core
from sesame.objectives.model import Model
from sesame.pretraining.examples import Examples
from sesame.pretraining.wishes import Wishes
from sesame.progress import duration, many_steps
from sesame.recipe import Recipe, how_scaled
from sesame.text import Tokenizer
from sesame.train.accounting import note as speed_note
from sesame.train.events import Events
from sesame.train.health import note as health_note
from sesame.train.parallel import World
from sesame.train.precision import Machine
from sesame.train.shares import is_sharded
from sesame.train.state import State

PATIENT = 100_000  # tokens of a step that a CPU reads in seconds
FIRST_LOSS = ("mlm", "plm", "clm", "forward", "seq2seq", "span", "denoise", "mass")  # that a run has, for the note


def plan(
    recipe: Recipe,
    wishes: Wishes,
    model: Model,
    tokenizer: Tokenizer,
    examples: Examples,
    machine: Machine,
    world: World,
) -> str:
    """What will happen."""
    count, whole = (sum(p.numel() for p in part.parameters()) for part in (model.backbone, model))
    size, trained = f"{count / 1e6:.1f} M", f"{whole / 1e6:.1f} M"
    heads = f" ({trained} with all that is trained)" if trained != size else ""
    rate = getattr(model.backbone.config, "attention_dropout", None)  # recurrent models have attention of their own
    core = "" if rate is None else f", attention: {chosen_core(machine.device, rate)}"
    length = duration(wishes.budget) if wishes.budget else many_steps(recipe.steps)
    scaled = f"; {how_scaled(recipe, wishes.scale_lr)}" if wishes.scale_lr else ""
    share = "a share of" if is_sharded(model) else "all"
    processes = f"; {world.ranks} processes, {share} weights on each" if world.ranks > 1 else ""
    return (
        f"{recipe.name}: {size} parameters{heads}, {len(tokenizer):,} pieces, "
        f"{examples.train.tokens() / 1e6:.2f} M tokens to train on, {examples.valid.tokens():,} held out; "
        f"{length} on {machine.device.type} in {machine.precision}{core}{scaled}{processes}"
    )


def burden(recipe: Recipe, wishes: Wishes, machine: Machine) -> str:
    """What to say of steps that a CPU needs minutes for: published batches are for clusters. Empty: nothing."""
    reads = {name: stage.tokens or stage.batch * stage.length for name, stage in recipe.stages.items() if stage.share}
    name = max(reads, key=reads.__getitem__)
    if machine.device.type != "cpu" or wishes.budget or wishes.one_pass or reads[name] <= PATIENT:
        return ""
    few = "tokens=2048" if recipe.stages[name].tokens else "batch=16"
    return (
        f"a step of stage {name} reads {reads[name]:,} tokens, as published, which takes a CPU long; with --budget a recipe "
        f"has batches that suit it, or take fewer, such as --set stages.{name}.{few}"
    )


class Log:
    """The lines of `metrics.jsonl`, and the same for TensorBoard; rank 0 writes them."""

    def __init__(self, run: Run, events: Events | None) -> None:
        self.run, self.events = run, events

    def add(self, line: dict[str, Any], figures: dict[str, Any], prefix: str) -> None:
        """A line with its step; `figures` are those of it that make curves."""
        self.run.log(line)
        if self.events is not None:
            self.events.add(line["step"], figures, prefix)


@contextmanager
def opened_log(run: Run, step: int) -> Iterator[Log]:
    if not run.world.first:
        yield Log(run, None)
        return
    with Events(run.folder / "events", step) as events:
        yield Log(run, events)


def note(figures: dict[str, Any], state: State) -> str:
    """Beside the bar."""
    looked = [state.held_out[name] for name in FIRST_LOSS if name in state.held_out]
    held = f" · held out {looked[0]:.3f}" if looked else ""
    health = health_note(figures)
    parts = f"{health} · " if health else ""
    return f"step {state.step} · loss {figures['loss']:.3f}{held} · {parts}{speed_note(figures)}"


def ending(final: Path, state: State) -> str:
    """What was reached."""
    figures = state.held_out
    shown = ", ".join(f"{name} {value:.3f}" for name, value in figures.items())
    sides = [f"{math.exp(figures[name]):.1f} {name}" for name in ("forward", "backward") if name in figures]  # ELMo
    shown += f"; perplexity {', '.join(sides)}" if sides else ""
    tokens = f"{state.tokens / 1e6:.1f} M" if state.tokens >= 1e5 else f"{state.tokens:,}"
    done = f"{many_steps(state.step)} and {tokens} tokens"
    return f"{final}: done after {done}; held out: {shown or 'no text'}"
