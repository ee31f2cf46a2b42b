"""From raw text to a pre-trained model: what `sesame pretrain` does, room by room.

    wishes (wishes.py) -> recipe -> tokenizer -> store -> model (preparation.py) -> packers (examples.py)
    -> the loop, stage by stage -> final folder

The run's folder decides everything on a restart: whatever is there and whole is taken, the rest is made. Under `torchrun` all
processes walk through here together, see `train/parallel.py`; the number of them may change from one start to the next.
"""

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, get_args

import torch

from sesame import chance
from sesame.backbones import Backbone
from sesame.checkpoint.cards import card
from sesame.checkpoint.run import Run, in_shares
from sesame.checkpoint.speech import answer_frame
from sesame.data.batch import Batch
from sesame.data.loader import STAIRS
from sesame.data.order import locate
from sesame.data.unit_files import Units, hidden_whole, wanted_entities
from sesame.errors import SesameError
from sesame.files import read_json
from sesame.nn.embeddings import Embeddings, lengthened
from sesame.objectives import Term
from sesame.objectives.model import Model
from sesame.pretraining.best import check_measure, judge, passed_by
from sesame.pretraining.examples import HELD_OUT, Examples
from sesame.pretraining.mixture import Mixture, check_mixture, parts_of, text_files
from sesame.pretraining.one_pass import PROBE, planned_steps, seconds_each
from sesame.pretraining.preparation import gather_ingredients
from sesame.pretraining.telling import burden, ending, few_hidden, note, plan
from sesame.pretraining.wishes import Wishes, chosen_recipe, identity_of
from sesame.pretraining.written import Written
from sesame.progress import Bar, bar, say
from sesame.recipe import Recipe, Stage
from sesame.text import Tokenizer
from sesame.train.accounting import Account
from sesame.train.compute import computing, replaying
from sesame.train.events import Events
from sesame.train.health import Health, Look
from sesame.train.held_out import held_out
from sesame.train.loop import Clock, Hooks, fit
from sesame.train.optim import Optimizer, build_optimizer
from sesame.train.parallel import Parallel, World, join, share_of
from sesame.train.precision import Machine, choose_machine
from sesame.train.rehearsal import rehearse
from sesame.train.replay import Replay
from sesame.train.shadow import Shadow
from sesame.train.shares import as_share, fold, is_sharded, not_shared, shard, wants_shards, whole
from sesame.train.state import State
from sesame.train.step import paces

REHEARSED = 32  # steps whose shapes are compiled beforehand: batches without padding have one or two


def pretrain(wishes: Wishes) -> Path:
    """Run to the end, or go on where an earlier call stopped; gives the folder of the finished model."""
    with join(wishes.device) as world:
        return _pretrain(wishes, world)


def _pretrain(wishes: Wishes, world: World) -> Path:
    began = time.monotonic()
    if wishes.parallel not in get_args(Parallel):
        raise SesameError(f"--parallel {wishes.parallel}: must be one of {', '.join(get_args(Parallel))}")
    machine = choose_machine(wishes.device, wishes.precision)
    recipe = chosen_recipe(wishes, machine)
    check_mixture(wishes, recipe)
    files = text_files(wishes.text)
    identity = identity_of(recipe, wishes, files)
    for name, stage in recipe.stages.items():
        share_of(stage.batch, world, f"stages.{name}.batch", STAIRS if stage.ramp else 1)
    with Run.claim(wishes.out, identity, world) as run:
        if (run.final / "config.json").is_file():
            say(f"{run.final}: this run is finished already; nothing to do")
            return run.final
        run.keep = max(run.keep, wishes.keep)
        job = _Job(wishes, recipe, machine, run, began)
        job.prepare(files)
        job.train()
    return run.final


class _Job:
    """One process's work on a run. `prepare` makes the parts, `train` runs the stages."""

    tokenizer: Tokenizer
    model: Model
    written: Written
    optimizer: Optimizer
    call: Callable[[Batch], list[Term]]
    examples: Examples
    held_out: list[Batch]
    health: Health | None  # a watch over replaced-token detection
    clock: Clock
    events: Events  # rank 0 has them
    overhead: float  # seconds spent before the first step
    born: bool  # here, not a model from elsewhere that goes on

    def __init__(self, wishes: Wishes, recipe: Recipe, machine: Machine, run: Run, began: float) -> None:
        self.wishes, self.recipe, self.machine, self.run, self.began = wishes, recipe, machine, run, began
        self.world = run.world
        self.state = State()
        self.last_save = time.monotonic()
        self.next_look = 0.0
        self.shown = 0.0  # progress on the bar
        self.reserve = 3.0  # seconds kept for the last evaluation and save; measured as we go

    # ---- parts -----------------------------------------------------------------------------------------------------

    def prepare(self, files: list[Path]) -> None:
        checkpoint = self.run.latest()
        with self.world.in_turn():
            found = gather_ingredients(self.wishes, self.recipe, self.run, files)
            self.tokenizer = found.tokenizer
            self.born = found.started is None
            family = self.recipe.family or ("" if found.started is None else found.started.family)
            self.model, untouched = found.model(self.wishes, self.recipe, self.run, fresh=checkpoint is None)
            given = self.model, self.tokenizer, self.recipe, self.world
            self.written = Written(*given, family, found.speech, untouched)
            units = Units(self.tokenizer, wanted_entities(self.wishes.entities, self.recipe.stages))
            for stage, part in product(self.recipe.stages.values(), (*parts_of(found.train), *parts_of(found.valid))):
                kind = hidden_whole(stage, self.model.objective.needs_words)
                units.starts(part.store, kind)  # now, not on the clock of a stage
            self.examples = Examples(
                self.recipe,
                self.tokenizer,
                found.train,
                found.valid,
                units,
                self.model,
                self.machine,
                self.wishes.seed,
                answer_frame(self.tokenizer, found.speech) if "seq2seq" in self.recipe.objectives else None,
            )
            if self.wishes.one_pass:
                self.recipe = replace(self.recipe, steps=self._one_pass(next(iter(self.recipe.stages.values()))))
        self._place(checkpoint)
        say(plan(self.recipe, self.wishes, self.model, self.tokenizer, self.examples, self.machine, self.world))
        if heavy := burden(self.recipe, self.wishes, self.machine):
            say(heavy)

    def _one_pass(self, stage: Stage) -> int:
        """Steps of one pass over the text, decided once."""
        packers = self.examples.packers(self.examples.train, stage)
        packer = packers[0]

        def measure() -> float:
            rows = locate(0, min(PROBE, len(packer)), len(packer), 0)[1]
            batch = self.model.objective.corrupt(packer.draw(rows, chance.keys(HELD_OUT, rows)))
            return seconds_each(self.model, batch, self.machine)

        on_cpu = self.machine.device.type == "cpu"
        return planned_steps(
            self.run.folder / "plan.json", sum(map(len, packers)), stage.batch, measure if on_cpu else None
        )

    def _place(self, checkpoint: Path | None) -> None:
        """Bring the model to its device, whole or in shares, as it was at the checkpoint."""
        if checkpoint is not None and not in_shares(checkpoint):
            self.written.take(checkpoint)
        sharded = wants_shards(self.wishes.parallel, self.model, self.machine, self.world)
        if sharded:
            if self.world.first:
                self.written.before_sharding()
            shard(self.model, self.machine, self.world, self.wishes.compile)
        else:
            self.model.to(self.machine.device)
        self.optimizer = build_optimizer(self.model, self.recipe.optimizer, paces(self.model))
        if checkpoint is None:
            self.run.cut_all_metrics()
        else:
            self.state = self.run.restore(checkpoint, self.model, self.optimizer)
            say(f"going on from step {self.state.step}")
        self.world.same_weights(not_shared(self.model))
        self.run.keep_best = self.recipe.evaluation.best
        shapes_vary = any(stage.packing == "answers" for stage in self.recipe.stages.values())
        if sharded:
            self.call = self.model
        elif shapes_vary:  # more of them than are worth compiling
            self.call = replaying(self.model, self.machine)
        else:
            self.call = computing(self.model, self.machine, self.wishes.compile)

    # ---- stages ----------------------------------------------------------------------------------------------------

    def train(self) -> None:
        stages = list(self.recipe.stages.items())
        total = sum(stage.share for _, stage in stages)
        self.held_out = self.examples.held_out(stages[0][1])
        if self.recipe.evaluation.best:
            check_measure(self.recipe, bool(self.held_out), is_sharded(self.model))
        watched, settings = self.recipe.objectives.get("rtd"), (self.recipe.optimizer, self.recipe.schedule)
        self.health = None if watched is None else Health(watched, *settings, len(self.tokenizer))
        compiled = self.machine.device.type == "cuda" and self.wishes.compile is not False
        if self.wishes.rehearse or (self.wishes.budget and compiled):
            self._rehearse(stages)
        self.overhead = time.monotonic() - self.began
        with ExitStack() as stack:
            shown = stack.enter_context(bar("pretrain", 1.0))
            if self.world.first:
                self.events = stack.enter_context(Events(self.run.folder / "events", self.state.step))
            done = 0.0
            for number, (name, stage) in enumerate(stages):
                done += stage.share / total
                if number < self.state.stage:
                    continue
                if number > self.state.stage:
                    self._lengthen(stages[:number])
                    self.state.begin(number)
                self.clock = self._clock(1.0 if number == len(stages) - 1 else done)
                self._stage(name, stage, self.clock, shown)
            self.optimizer.take_means()
            self._lengthen(stages)
            last_is_best = self._look(self.state)
        if self.recipe.evaluation.best and not last_is_best:
            self._bring_back(stages)
        elif advice := passed_by(self.state, self.examples.train.tokens()):
            say(advice)
        self._finish()

    def _rehearse(self, stages: list[tuple[str, Stage]]) -> None:
        """All shapes of all stages once, as the first steps of a stage and of its stairs show them.

        With `--rehearse` the budget begins after it. Without, it is part of the budget, but not of the schedule: a compiler
        that works in the first step would take the warm-up away, one that works later the best of the rate.
        """
        for name, stage in stages:
            self._drop(stage)
            if stage.packing == "answers":  # shapes vary, nothing is compiled
                continue
            loader = self.examples.share(name, stage, self.world)
            stairs = [-(-stair * stage.ramp // STAIRS) for stair in range(1, STAIRS + 1)] if stage.ramp else []
            batches = (batch for step in (*range(REHEARSED), *stairs) for batch in loader.load(step, 0.0))
            shapes, seconds = rehearse(self.model, self.call, batches, self.machine)
            counted = "" if self.wishes.rehearse else "not "
            many = "1 shape" if shapes == 1 else f"{shapes} shapes"
            say(f"stage {name}: {many} compiled in {seconds:.0f} s, {counted}beside the budget")
        if self.wishes.ready is not None:
            self.wishes.ready()
        if self.wishes.rehearse:
            self.began = time.monotonic()

    def _lengthen(self, done: list[tuple[str, Stage]]) -> None:
        """Learned places that no row has reached yet take over those that rows have: noise would spoil longer rows.

        Ours: BERT's authors leave the noise, and have 100,000 steps at full length to learn the rest.
        """
        tables = [part.positions for part in self.model.modules() if isinstance(part, Embeddings) and self.born]
        with torch.no_grad():
            for places in (table.weight for table in tables if table is not None):
                places.copy_(as_share(lengthened(whole(places), max(stage.length for _, stage in done)), places))

    def _clock(self, last: float) -> Clock:
        budget = None
        if self.wishes.budget is not None:
            budget = max(self.wishes.budget - self.overhead - self.reserve, 1.0)
        return Clock(self.recipe.steps, budget, time.monotonic(), self.state.elapsed, last)

    def _stage(self, name: str, stage: Stage, clock: Clock, shown: Bar) -> None:
        self._drop(stage)
        loader = self.examples.share(name, stage, self.world)
        hides = hidden_whole(stage, self.model.objective.needs_words)
        whole = hides not in ("", "pieces") and self.state.stage_step == 0
        if whole and (few := few_hidden(name, hides, self.recipe, loader.load(0, 0.0))):
            say(few)
        work = self.examples.work(stage, loader)
        account = Account.of(self.model.backbone.config, work, self.machine, self.world.ranks)
        offset = self.state.step - self.state.stage_step
        if self.state.held_out and not self.next_look:  # resumed: the last look is still good
            self.next_look = clock.progress(self.state.step) + self.recipe.evaluation.every

        def window(state: State, figures: dict[str, Any]) -> None:
            figures = figures | account.figures(figures["tokens_per_second"])
            now = min(clock.progress(state.step), 1.0)
            shown.note(note(figures, state))
            shown.advance(max(now - self.shown, 0.0))
            self.shown = max(now, self.shown)
            line = {
                "step": state.step,
                "stage": state.stage,
                "seconds": round(state.elapsed, 2),
                "tokens": state.tokens,
            }
            self._log(state, {**line, **figures}, figures, "train/")
            if self.health is not None:
                self.health.check(state.step, clock.progress(state.step), figures, self.world.agree)

        def load(step: int) -> list[Batch]:
            batches = loader.load(step, min(clock.progress(offset + step), 1.0))
            return batches if self.health is None else self.health.frequencies.see(batches)

        def evaluate(state: State) -> None:
            if self._look(state) and self.recipe.evaluation.best:
                self._save(state)
            self.next_look = clock.progress(state.step) + self.recipe.evaluation.every

        def skipped(state: State, step: int, why: str) -> None:
            sources = replace(loader, rank=0, ranks=1).sources(state.stage_step - (state.step - step))
            say(
                f"step {step}: {why}; going back and leaving this batch out, its text is at {', '.join(sources[:3])} ..."
            )
            self.run.log({"step": state.step, "skipped": step, "why": why, "texts": sources})

        hooks = Hooks(
            window=window,
            save=lambda state: self._save(state),
            evaluate=evaluate,
            skipped=skipped,
            save_due=self._save_due,
            evaluate_due=lambda state: clock.progress(state.step) >= self.next_look and not clock.done(state.step),
        )
        self.state = fit(
            self.model,
            self.call,
            self.optimizer,
            load,
            rate=self.recipe.optimizer.rate,
            schedule=self.recipe.schedule,
            clip=self.recipe.optimizer.clip,
            clock=clock,
            state=self.state,
            machine=self.machine,
            seed=self.wishes.seed,
            hooks=hooks,
            threads=1 if self.machine.device.type == "cpu" else min(8, max(2, (os.cpu_count() or 1) // 2)),
            world=self.world,
            spikes=not isinstance(self.examples.train, Mixture),  # steps of several sources differ by nature
        )

    def _drop(self, stage: Stage) -> None:
        """The stage's dropout, in the model and in its copy that computes."""
        models = [self.model, self.call.copy] if isinstance(self.call, Shadow) else [self.model]
        for module in (module for model in models for module in model.modules()):
            if isinstance(module, Backbone):
                module.drop(None if stage.dropout < 0 else stage.dropout)
        if isinstance(self.call, Replay):
            self.call.forget()

    def _log(self, state: State, line: dict[str, Any], figures: dict[str, Any], prefix: str) -> None:
        if self.world.first:
            self.run.log(line)
            self.events.add(state.step, figures, prefix)

    # ---- between the steps -----------------------------------------------------------------------------------------

    def _look(self, state: State) -> bool:
        """The loss on held-out text: always the same examples with the same masks, at the first stage's length.

        Every rank looks at all of it: no slower than one looking while the others wait, and right for weights in shares.
        Tells whether the loss is the lowest so far.
        """
        if not self.held_out:
            return False
        began = time.monotonic()
        look = Look(self.model)
        state.held_out = held_out(self.model, look, self.held_out, self.machine) | look.figures()
        fold(self.model)
        line = {"step": state.step, "seconds": round(state.elapsed, 2), "held_out": state.held_out}
        self._log(state, line, state.held_out, "held_out/")
        self._keep(began)
        return bool(self.world.agree([float(judge(look, state, self.recipe))])[0])

    def _bring_back(self, stages: list[tuple[str, Stage]]) -> None:
        """The weights of the best look, and where the run stood then."""
        step = int(self.world.tell(f"{self.state.best['step']:.0f}"))
        best = self.run.find(step)
        if best is None:
            say(
                f"warning: the checkpoint of step {step:,}, the best, is damaged or gone; the finished model is the last one"
            )
            return
        self.written.take(best)
        ended, self.state = self.state, State.from_json(read_json(best / "train" / "state.json"))
        self._lengthen(stages[: self.state.stage + 1])
        say(f"held-out loss was lowest at step {step:,} of {ended.step:,}; the finished model is that one")

    def _keep(self, began: float) -> None:
        """Keep as much time of the budget for the end as looking and saving were seen to take."""
        self.reserve = max(self.reserve, 2.0 + 2.0 * (time.monotonic() - began))
        if self.clock.budget is not None and self.wishes.budget is not None:
            self.clock.budget = max(self.wishes.budget - self.overhead - self.reserve, 1.0)

    def _save_due(self, state: State) -> bool:
        if self.wishes.save_steps:
            return state.step % self.wishes.save_steps == 0
        return time.monotonic() - self.last_save >= self.wishes.save_minutes * 60

    def _save(self, state: State) -> None:
        began = time.monotonic()
        parts = self.written.parts()
        self.run.save(parts.pop(""), self.model, self.optimizer, state, self._card(state), parts)
        self.last_save = time.monotonic()
        self._keep(began)

    def _finish(self) -> None:
        if self.state.step and not self.state.tokens:
            raise SesameError(
                "every batch had to be left out: the training diverges from the start; lower optimizer.rate"
            )
        parts = self.written.whole()
        self.run.save_final(parts.pop(""), self._card(self.state), parts)
        say(ending(self.run.final, self.state))

    def _card(self, state: State) -> str:
        return card(self.recipe.name, self.recipe.paper, self.run.identity, state)
