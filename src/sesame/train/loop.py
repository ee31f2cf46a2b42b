"""The one training loop.

    for every step: load its micro-batches; loss = sum over terms of weight * total / count; clip; step

`count` is taken over all micro-batches of the step before the first backward pass, so accumulation equals the big batch.
Dropout is seeded by (seed, step, micro-batch), so nothing about randomness has to be saved. Losses are read from the device
every few steps only; if one of them is broken, weights fall back to the last good moment and that batch is left out.
"""

import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from sesame import chance
from sesame.data.batch import Batch
from sesame.data.loader import Prefetcher
from sesame.errors import SesameError
from sesame.objectives.base import Term
from sesame.train.guard import Guard, check_skipped
from sesame.train.optim import Optimizer
from sesame.train.precision import Machine
from sesame.train.schedule import Schedule
from sesame.train.state import Snapshot, State

WINDOW = 10  # steps between two looks at the losses

Model = Callable[[Batch], list[Term]]


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
        if self.budget is not None:
            return self.elapsed() >= self.budget * self.last
        assert self.steps is not None
        return step >= round(self.steps * self.last)


@dataclass
class Window:
    """What happened since the last look, still on the device."""

    steps: list[int] = field(default_factory=list)
    losses: list[Tensor] = field(default_factory=list)
    norms: list[Tensor] = field(default_factory=list)
    totals: dict[str, Tensor] = field(default_factory=dict)
    counts: dict[str, Tensor] = field(default_factory=dict)
    tokens: list[Tensor] = field(default_factory=list)  # real ones
    places: int = 0  # tokens and padding
    rate: float = 0.0
    started: float = field(default_factory=time.monotonic)

    def read(self) -> tuple[list[float], list[float], int]:
        """Losses, gradient norms and the number of tokens, in one transfer."""
        tokens = torch.stack(self.tokens).sum()
        values = torch.stack([*(x.double() for x in (*self.losses, *self.norms)), tokens.double()]).tolist()
        count = len(self.losses)
        return values[:count], values[count : 2 * count], int(values[-1])

    def means(self) -> dict[str, float]:
        return {name: float(self.totals[name]) / max(1.0, float(self.counts[name])) for name in self.totals}


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
) -> State:
    """Train one stage to its end. `call` is the model as it is run (perhaps compiled), `load` gives a step's batches.

    `spikes`: undo a step whose loss jumps; a loss that is no number is undone always.
    """
    guard = Guard(state.history, spikes)
    snapshot = Snapshot(model, optimizer, state)
    fetcher = Prefetcher(load, machine.device, state.stage_step, threads=threads)
    stop = _Stop()
    window = Window()
    model.train()
    try:
        with stop:
            while not clock.done(state.step):
                if state.step not in state.skipped:
                    batches = fetcher.get(state.stage_step)
                    progress = clock.progress(state.step)
                    factor = schedule.factor(progress, state.step)
                    hooks.before(progress)
                    optimizer.set_rate(rate * factor)
                    take_step(model, call, optimizer, batches, clip, machine, chance.key(seed, state.step), window)
                    window.steps.append(state.step)
                    window.rate = rate * factor
                state.step += 1
                state.stage_step += 1
                if state.step % WINDOW == 0 or stop.asked or clock.done(state.step) or hooks.save_due(state):
                    state = _look(window, guard, snapshot, state, hooks, clock)
                    guard.history = state.history
                    window = Window()
                    snapshot.take(state)
                    if stop.asked:
                        hooks.save(state)
                        raise Interrupted(stop.asked, state.step)
                    _between(model, state, hooks)
        return state
    finally:
        fetcher.close()


def take_step(
    model: nn.Module,
    call: Model,
    optimizer: Optimizer,
    batches: list[Batch],
    clip: float,
    machine: Machine,
    seed: int,
    window: Window,
) -> None:
    """One optimiser step over all micro-batches."""
    optimizer.zero_grad()
    counts = count_targets(batches)
    loss = torch.zeros((), device=machine.device)
    for number, batch in enumerate(batches):
        torch.manual_seed(chance.key(seed, number) >> 1)
        with machine.autocast():
            terms = call(batch)
        part = step_loss(terms, counts)
        part.backward()  # type: ignore[no-untyped-call]
        loss += part.detach()
        for term in terms:
            window.totals[term.name] = window.totals.get(term.name, 0) + term.total.detach().float()
        window.tokens.append(batch.lengths.sum())
        window.places += batch.ids.numel()
    norm = nn.utils.clip_grad_norm_(model.parameters(), clip or float("inf"))
    optimizer.step()
    for name, count in counts.items():
        window.counts[name] = window.counts.get(name, 0) + count
    window.losses.append(loss)
    window.norms.append(norm.float())


def count_targets(batches: Iterable[Batch]) -> dict[str, Tensor]:
    """Targets of the whole step, by name: what the sums are divided by."""
    counts: dict[str, Tensor] = {}
    for batch in batches:
        for name, targets in batch.targets.items():
            counts[name] = counts.get(name, 0) + targets.count()
    return counts


def step_loss(terms: list[Term], counts: dict[str, Tensor]) -> Tensor:
    """This micro-batch's share of the step's loss."""
    parts = [term.weight * term.total / counts[term.name].clamp(min=1) for term in terms]
    return torch.stack(parts).sum()


def _look(window: Window, guard: Guard, snapshot: Snapshot, state: State, hooks: Hooks, clock: Clock) -> State:
    """Read the losses of the window; undo it if one of them is broken."""
    state.elapsed = clock.elapsed()
    if not window.steps:
        return state
    losses, norms, tokens = window.read()
    for step, loss, norm in zip(window.steps, losses, norms, strict=True):
        why = guard.trouble(loss, norm)
        if why is not None:
            skipped = [*state.skipped, step]
            check_skipped(skipped)
            hooks.skipped(state, step, why)
            state = snapshot.restore()
            state.skipped = skipped
            return state
    state.tokens += tokens
    seconds = time.monotonic() - window.started
    figures = {
        "loss": sum(losses) / len(losses),
        **window.means(),
        "norm": sum(norms) / len(norms),
        "rate": window.rate,
        "tokens_per_second": tokens / max(seconds, 1e-9),
        "padding": 1 - tokens / window.places,
    }
    hooks.window(state, figures)
    return state


def _between(model: nn.Module, state: State, hooks: Hooks) -> None:
    if hooks.evaluate_due(state):
        hooks.evaluate(state)
        model.train()
    if hooks.save_due(state):
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
            raise KeyboardInterrupt
        self.asked = signal.Signals(number).name

    def __exit__(self, *_: object) -> None:
        for number, handler in self.old.items():
            signal.signal(number, handler)
