"""The one training loop.

    for every step: load its micro-batches; loss = sum over terms of weight * total / count; clip; step

`count` is taken over all micro-batches of the step before the first backward pass, so accumulation equals the big batch.
Dropout is seeded by (seed, step, micro-batch), so nothing about randomness has to be saved. Losses are read from the device
every few steps only; if one of them is broken, weights fall back to the last good moment and that batch is left out.

Of many ranks each does this with its share of the examples; `count` and gradients are summed over all of them, and what
depends on a clock or a signal is decided once for all, so that every rank takes the same steps.
"""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import nn

from sesame import chance
from sesame.data.batch import Batch
from sesame.data.loader import Prefetcher
from sesame.errors import SesameError
from sesame.train.guard import Guard, check_skipped
from sesame.train.optim import Optimizer
from sesame.train.parallel import ALONE, World
from sesame.train.precision import Machine
from sesame.train.queue import Queue
from sesame.train.replay import Replay
from sesame.train.schedule import Schedule
from sesame.train.state import Snapshot, State
from sesame.train.step import Model, Name, Told, count_targets, one_step

WINDOW = 10  # steps between two looks at the losses
LATE = 1e-3  # seconds of waiting for a batch, after which the loaders are too few
RANKS_APART = 1 << 20  # more micro-batches than a step ever has: every rank's dropout is its own


class Interrupted(SesameError):
    """The user or the system asked to stop; everything is saved."""

    def __init__(self, asked: str, step: int) -> None:
        super().__init__(f"stopped by {asked} at step {step}; everything is saved, run the same command again to go on")
        self.exit_code = 128 + signal.Signals[asked]  # what a shell reports for a process that ended so


@dataclass
class Clock:
    """When a stage ends, and how far the whole run is: by steps, or by seconds of a budget."""

    steps: int | None = None  # of the whole run
    budget: float | None = None  # seconds of the whole run
    started: float = 0.0  # time.monotonic() at which `elapsed` was `before`
    before: float = 0.0
    last: float = 1.0  # share of the run at which this stage ends

    def elapsed(self) -> float:
        return self.before + time.monotonic() - self.started

    def progress(self, step: int) -> float:
        if self.budget is not None:
            return self.elapsed() / self.budget
        assert self.steps is not None
        return (step + 0.5) / self.steps

    def done(self, step: int) -> bool:
        if self.budget is not None:  # one step at least: a model without any would pass for a trained one
            return step > 0 and self.elapsed() >= self.budget * self.last
        assert self.steps is not None
        return step >= round(self.steps * self.last)


ALIKE = ("norm", "count")  # of what a step tells: the same on every rank


@dataclass
class Window:
    """What happened since the last look, still on the device."""

    steps: list[int] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    places: int = 0  # tokens and padding
    rate: float = 0.0
    waited: float = 0.0  # seconds, for data, with nothing else to do
    started: float = field(default_factory=time.monotonic)

    def read(self, world: World = ALONE) -> "Seen":
        """All of it in one transfer, over all ranks."""
        names = [name for one in self.told for name in one.names]
        values = torch.cat([one.values for one in self.told]).cpu()
        mine = torch.tensor([kind not in ALIKE for kind, _ in names])
        summed = world.sum(torch.cat([values[mine], torch.tensor([self.places], dtype=torch.float64)]))
        values[mine] = summed[:-1]
        found: dict[Name, list[float]] = {}
        for name, value in zip(names, values.tolist(), strict=True):
            found.setdefault(name, []).append(value)
        sums = {name: sum(each) for name, each in found.items()}
        terms = [name for kind, name in found if kind == "total"]
        means = {name: sums["total", name] / max(1.0, sums["count", name]) for name in terms}
        means |= {name: sums["part", name] / max(1.0, sums["of", name]) for kind, name in found if kind == "part"}
        return Seen(found["loss", ""], found["norm", ""], int(sums["tokens", ""]), int(summed[-1]), means)


class Seen(NamedTuple):
    """A window as read from the device."""

    losses: list[float]
    norms: list[float]
    tokens: int
    places: int
    means: dict[str, float]  # of each term, and the figures of its health


@dataclass
class Hooks:
    """What the loop tells the outside; all calls happen between two steps."""

    before: Callable[[float], None] = lambda progress: None  # each step: gradual unfreezing
    window: Callable[[State, dict[str, Any]], None] = lambda state, figures: None
    save: Callable[[State], None] = lambda state: None
    evaluate: Callable[[State], None] = lambda state: None
    skipped: Callable[[State, int, str], None] = lambda state, step, why: None
    save_due: Callable[[State], bool] = lambda state: False
    evaluate_due: Callable[[State], bool] = lambda state: False


def fit(
    model: nn.Module,
    call: Model,
    optimizer: Optimizer,
    load: Callable[[int], list[Batch]],
    *,
    rate: float,
    schedule: Schedule,
    clip: float,
    clock: Clock,
    state: State,
    machine: Machine,
    seed: int,
    hooks: Hooks,
    threads: int = 1,
    spikes: bool = True,
    world: World = ALONE,
) -> State:
    """Train one stage to its end. `call` is the model as it is run (perhaps compiled), `load` gives a step's batches.

    `spikes`: undo a step whose loss jumps; a loss that is no number is undone always. `world`: the ranks that train
    together; `load` gives the share of this one.
    """
    guard = Guard(state.history, spikes)
    snapshot = Snapshot(model, optimizer, state)
    fetcher = Prefetcher(load, machine.device, state.stage_step, threads=threads)
    stop, queue = _Stop(), Queue(machine.device)
    window, first = Window(), state.step
    model.train()
    try:
        with stop:
            now = _decide(world, clock, state, hooks, stop)
            while not now.done:
                if state.step not in state.skipped:
                    asked = time.monotonic()
                    batches = fetcher.get(state.stage_step)
                    waited = queue.idle_since(asked)
                    if waited > LATE and state.step > first:
                        fetcher.hurry()
                    window.waited += waited
                    factor = schedule.factor(now.progress, state.step)
                    hooks.before(now.progress)
                    optimizer.set_rate(rate * factor)
                    key = chance.key(seed, state.step)
                    take_step(model, call, optimizer, batches, clip, machine, key, window, world)
                    queue.mark()
                    window.steps.append(state.step)
                    window.rate = rate * factor
                state.step += 1
                state.stage_step += 1
                now = _decide(world, clock, state, hooks, stop)
                if state.step % WINDOW == 0 or now.stop or now.done or now.save:
                    state = _look(window, guard, snapshot, state, hooks, clock, world)
                    guard.history = state.history
                    window = Window()
                    if now.stop:
                        hooks.save(state)
                        raise Interrupted(signal.Signals(now.stop).name, state.step)
                    _between(model, state, hooks, _decide(world, clock, state, hooks, stop))
                    snapshot.take(state)  # with what was seen just now: going back must not forget a look
                    now = _decide(world, clock, state, hooks, stop)
        return state
    finally:
        fetcher.close()


class Now(NamedTuple):
    """What is to be done at this moment, alike on all ranks."""

    done: bool
    save: bool
    evaluate: bool
    stop: int  # the number of a signal that asked for it, or 0
    progress: float


def _decide(world: World, clock: Clock, state: State, hooks: Hooks, stop: "_Stop") -> Now:
    """Rank 0 reads the clock for all; any rank may have been asked to stop."""
    asked = float(signal.Signals[stop.asked]) if stop.asked else 0.0
    wishes = [0.0, 0.0, 0.0, asked, 0.0]
    if world.first:
        due = hooks.save_due(state), hooks.evaluate_due(state)
        wishes = [float(clock.done(state.step)), *map(float, due), asked, clock.progress(state.step)]
    done, save, evaluate, asked, progress = world.agree(wishes)
    return Now(bool(done), bool(save), bool(evaluate), int(asked), progress)


def take_step(
    model: nn.Module,
    call: Model,
    optimizer: Optimizer,
    batches: list[Batch],
    clip: float,
    machine: Machine,
    seed: int,
    window: Window,
    world: World = ALONE,
) -> None:
    """One optimiser step over all micro-batches of all ranks, noted in `window`."""
    seeds = [chance.key(seed, number + world.rank * RANKS_APART) >> 1 for number in range(len(batches))]
    if isinstance(call, Replay) and len(batches) == 1 and world is ALONE:
        told = call.step(optimizer, batches[0], clip, machine, seeds[0])
    else:
        counts = world.sum_by_name(count_targets(batches))
        told = one_step(model, call, optimizer, batches, counts, clip, machine, seeds, world)
    window.told.append(told)
    window.places += sum(batch.ids.numel() for batch in batches)


def _look(
    window: Window, guard: Guard, snapshot: Snapshot, state: State, hooks: Hooks, clock: Clock, world: World
) -> State:
    """Read the losses of the window; undo it if one of them is broken."""
    state.elapsed = clock.elapsed()
    if not window.steps:
        return state
    seen = window.read(world)
    for step, loss, norm in zip(window.steps, seen.losses, seen.norms, strict=True):
        why = guard.trouble(loss, norm)
        if why is not None:
            skipped = [*state.skipped, step]
            check_skipped(skipped)
            hooks.skipped(state, step, why)
            state = snapshot.restore()
            state.skipped = skipped
            return state
    state.tokens += seen.tokens
    seconds = time.monotonic() - window.started
    figures = {
        "loss": sum(seen.losses) / len(seen.losses),
        **seen.means,
        "norm": sum(seen.norms) / len(seen.norms),
        "rate": window.rate,
        "tokens_per_second": seen.tokens / max(seconds, 1e-9),
        "padding": 1 - seen.tokens / seen.places,
        "wait": window.waited / max(seconds, 1e-9),
    }
    hooks.window(state, figures)
    return state


def _between(model: nn.Module, state: State, hooks: Hooks, now: Now) -> None:
    if now.evaluate:
        hooks.evaluate(state)
        model.train()
    if now.save:
        hooks.save(state)


class _Stop:
    """Ctrl-C and SIGTERM become a wish that the loop grants after the step in hand; a second Ctrl-C stops at once."""

    def __init__(self) -> None:
        self.asked = ""

    def __enter__(self) -> "_Stop":
        self.old: dict[int, Any] = {}
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                self.old[number] = signal.signal(number, self._ask)
        except ValueError:  # not the main thread: the caller keeps its own handlers
            self.old = {}
        return self

    def _ask(self, number: int, frame: Any) -> None:
        if self.asked and number == signal.SIGINT:
            before = self.old.get(number)
            if callable(before):  # the command's says so, and removes what is half-written
                before(number, frame)
            raise KeyboardInterrupt
        self.asked = signal.Signals(number).name

    def __exit__(self, *_: object) -> None:
        for number, handler in self.old.items():
            signal.signal(number, handler)
