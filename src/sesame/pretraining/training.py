"""The stages of a run one after the other, with what happens between their steps: the log, looks, checkpoints."""

import os
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from sesame.data.batch import Batch
from sesame.pretraining.best import bring_back, passed_by
from sesame.pretraining.looks import Looks
from sesame.pretraining.mixture import Mixture
from sesame.pretraining.prepared import Prepared
from sesame.pretraining.stages import drop, lengthen, rehearse_stages
from sesame.pretraining.telling import Log, note, opened_log
from sesame.pretraining.timing import Timing
from sesame.progress import Bar, bar, say
from sesame.recipe import Stage
from sesame.train.accounting import Account
from sesame.train.health import Health
from sesame.train.loop import Clock, Hooks, fit
from sesame.train.state import State


class Training:
    """One process's part of a run; `train` leaves the weights of the result in the model."""

    log: Log
    shown: Bar

    def __init__(self, parts: Prepared, timing: Timing) -> None:
        self.parts, self.timing, self.state = parts, timing, parts.state
        self.last_save = timing.began
        self.done = 0.0  # progress on the bar
        self.looks = Looks(parts, timing)
        watched, settings = parts.recipe.objectives.get("rtd"), (parts.recipe.optimizer, parts.recipe.schedule)
        vocab = len(parts.examples.tokenizer)
        self.health = None if watched is None else Health(watched, *settings, vocab)  # a watch over replaced tokens

    def train(self) -> State:
        """All stages; where the run then stands, or where the best look stood if that is wanted."""
        parts, recipe = self.parts, self.parts.recipe
        self._rehearse()
        self.timing.begin(self.state.elapsed)
        with ExitStack() as stack:
            self.shown = stack.enter_context(bar("pretrain", 1.0))
            self.log = stack.enter_context(opened_log(parts.run, self.state.step))
            self._stages()
            parts.optimizer.take_means()
            lengthen(parts, len(recipe.stages))
            last_is_best = self.looks.look(self.state, self.log)
        if recipe.evaluation.best and not last_is_best:
            return bring_back(parts, self.state)
        if advice := passed_by(self.state, parts.examples.train.tokens()):
            say(advice)
        return self.state

    def _rehearse(self) -> None:
        wishes = self.parts.wishes
        compiled = self.parts.machine.device.type == "cuda" and wishes.compile is not False
        if not wishes.rehearse and not (wishes.budget and compiled):
            return
        rehearse_stages(self.parts)
        if wishes.ready is not None:
            wishes.ready()
        if wishes.rehearse:
            self.timing.restart()

    def _stages(self) -> None:
        stages, done = list(self.parts.recipe.stages.items()), 0.0
        total = sum(stage.share for _, stage in stages)
        for number, (name, stage) in enumerate(stages):
            done += stage.share / total
            if number < self.state.stage:
                continue
            if number > self.state.stage:
                lengthen(self.parts, number)
                self.state.begin(number)
            last = 1.0 if number == len(stages) - 1 else done
            clock = self.timing.stage(self.parts.recipe.steps, self.state.elapsed, last)
            self.state = _Stage(self, name, stage, clock).train()

    def advance(self, progress: float) -> None:
        self.shown.advance(max(progress - self.done, 0.0))
        self.done = max(progress, self.done)

    def save_due(self, state: State) -> bool:
        if self.parts.wishes.save_steps:
            return state.step % self.parts.wishes.save_steps == 0
        return time.monotonic() - self.last_save >= self.parts.wishes.save_minutes * 60

    def save(self, state: State) -> None:
        began, parts = time.monotonic(), self.parts
        written = parts.written.parts()
        parts.run.save(written.pop(""), parts.model, parts.optimizer, state, parts.card(state), written)
        self.last_save = time.monotonic()
        self.timing.took(began)


class _Stage:
    """The steps of one stage, and what the loop tells of them."""

    def __init__(self, training: Training, name: str, stage: Stage, clock: Clock) -> None:
        self.training, self.clock, self.looks = training, clock, training.looks
        parts, state = training.parts, training.state
        drop(parts, stage)
        self.loader = parts.examples.share(name, stage, parts.run.world)
        work = parts.examples.work(stage, self.loader)
        self.account = Account.of(parts.model.backbone.config, work, parts.machine, parts.run.world.ranks)
        self.offset = state.step - state.stage_step
        if state.held_out and not self.looks.next:  # resumed: the last look is still good
            self.looks.looked(clock, state.step)

    def train(self) -> State:
        parts = self.training.parts
        hooks = Hooks(
            window=self._window,
            save=self.training.save,
            evaluate=self._evaluate,
            skipped=self._skipped,
            save_due=self.training.save_due,
            evaluate_due=lambda state: self.looks.due(self.clock, state.step),
        )
        return fit(
            parts.model,
            parts.call,
            parts.optimizer,
            self._load,
            rate=parts.recipe.optimizer.rate,
            schedule=parts.recipe.schedule,
            clip=parts.recipe.optimizer.clip,
            clock=self.clock,
            state=self.training.state,
            machine=parts.machine,
            seed=parts.wishes.seed,
            hooks=hooks,
            threads=1 if parts.machine.device.type == "cpu" else min(8, max(2, (os.cpu_count() or 1) // 2)),
            world=parts.run.world,
            spikes=not isinstance(parts.examples.train, Mixture),  # steps of several sources differ by nature
        )

    def _load(self, step: int) -> list[Batch]:
        batches = self.loader.load(step, min(self.clock.progress(self.offset + step), 1.0))
        health = self.training.health
        return batches if health is None else health.frequencies.see(batches)

    def _window(self, state: State, figures: dict[str, Any]) -> None:
        training = self.training
        figures = figures | self.account.figures(figures["tokens_per_second"])
        training.shown.note(note(figures, state))
        training.advance(min(self.clock.progress(state.step), 1.0))
        place = {"step": state.step, "stage": state.stage, "seconds": round(state.elapsed, 2), "tokens": state.tokens}
        training.log.add({**place, **figures}, figures, "train/")
        if training.health is not None:
            agree = training.parts.run.world.agree
            training.health.check(state.step, self.clock.progress(state.step), figures, agree)

    def _evaluate(self, state: State) -> None:
        if self.looks.look(state, self.training.log) and self.training.parts.recipe.evaluation.best:
            self.training.save(state)
        self.looks.looked(self.clock, state.step)

    def _skipped(self, state: State, step: int, why: str) -> None:
        texts = replace(self.loader, rank=0, ranks=1).sources(state.stage_step - (state.step - step))
        say(f"step {step}: {why}; going back and leaving this batch out, its text is at {', '.join(texts[:3])} ...")
        self.training.parts.run.log({"step": state.step, "skipped": step, "why": why, "texts": texts})
