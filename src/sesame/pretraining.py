"""From raw text to a pre-trained model: what `sesame pretrain` does, room by room.

    recipe -> tokenizer -> store -> packers -> model -> the loop, stage by stage -> final folder

The run's folder decides everything on a restart: whatever is there and whole is taken, the rest is made.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from sesame import chance
from sesame.backbones import Encoder, EncoderConfig
from sesame.checkpoint.cards import card
from sesame.checkpoint.folder import Parts, check_fit, load_parts
from sesame.checkpoint.run import Run
from sesame.config import build as build_config
from sesame.data.batch import Batch
from sesame.data.build import build_store
from sesame.data.cache import cache_folder
from sesame.data.counts import count_table
from sesame.data.loader import Loader
from sesame.data.order import locate
from sesame.data.pack import Packer, Part, Specials, hold_out
from sesame.data.readers import corpus_files
from sesame.data.vocabulary import tokenizer_from
from sesame.errors import SesameError
from sesame.extension import extend
from sesame.files import whole_file, whole_folder
from sesame.nn.attention.core import chosen_core
from sesame.objectives import MaskedLMHead, Term, Vocab
from sesame.objectives import build as build_objectives
from sesame.objectives.mlm import MaskedLM
from sesame.objectives.model import Model
from sesame.one_pass import PROBE, planned_steps, seconds_each
from sesame.progress import Bar, bar, say
from sesame.recipe import Recipe, Stage, resolve
from sesame.text import Tokenizer
from sesame.train.events import Events
from sesame.train.held_out import held_out
from sesame.train.loop import Clock, Hooks, fit
from sesame.train.optim import build_optimizer
from sesame.train.precision import Machine, Precision, choose_machine
from sesame.train.state import State

HELD_OUT = chance.key(0x4556414C)  # the chance of held-out examples: the same in every run
COUNTED = 2.5  # vectors from counts are so much longer than random ones; docs/log.md


@dataclass(frozen=True)
class Wishes:
    """What the user asked for."""

    recipe: str
    text: Sequence[str]
    out: Path
    size: str | None = None
    start: str | None = None
    tokenizer: str | None = None
    valid: Sequence[str] = ()
    steps: int | None = None
    budget: float | None = None  # seconds
    seed: int = 0
    settings: Sequence[str] = ()
    device: str = "auto"
    precision: Precision = "auto"
    save_minutes: float = 5.0
    save_steps: int = 0
    compile: bool | None = None  # None: on a GPU
    field: str = "text"
    extend: int = 0  # new words for the vocabulary of the start model
    one_pass: bool = False  # over the text, instead of steps or a budget; see `one_pass.py`


def pretrain(wishes: Wishes) -> Path:
    """Run to the end, or go on where an earlier call stopped; gives the folder of the finished model."""
    began = time.monotonic()
    machine = choose_machine(wishes.device, wishes.precision)
    recipe = resolve(
        wishes.recipe,
        size=wishes.size,
        budget=wishes.budget is not None,
        device=machine.device.type,
        settings=wishes.settings,
    )
    if wishes.start is not None and wishes.size is not None:
        raise SesameError("--start brings a model of its own size; leave --size out")
    if wishes.extend and wishes.start is None:
        raise SesameError(
            "--extend adds words to a model that exists; name it with --start MODEL, or leave --extend out: "
            "a new model gets a vocabulary made from your text"
        )
    if wishes.steps is not None:
        recipe = replace(recipe, steps=wishes.steps)
    files = corpus_files(wishes.text)
    identity = _identity(recipe, wishes, files)
    with Run.claim(wishes.out, identity) as run:
        if (run.final / "config.json").is_file():
            say(f"{run.final}: this run is finished already; nothing to do")
            return run.final
        job = _Job(wishes, recipe, machine, run, began)
        job.prepare(files)
        job.train()
    return run.final


def _identity(recipe: Recipe, wishes: Wishes, files: list[Path]) -> dict[str, Any]:
    run: dict[str, Any] = {"text": [str(file.resolve()) for file in files], "seed": wishes.seed, "field": wishes.field}
    for key in ("start", "tokenizer", "budget", "extend", "one_pass"):
        if getattr(wishes, key) not in (None, 0, False):
            run[key] = getattr(wishes, key)
    if wishes.valid:
        run["valid"] = [str(Path(file).resolve()) for file in wishes.valid]
    return {**recipe.to_dict(), "run": run}


class _Job:
    """One process's work on a run. `prepare` makes the parts, `train` runs the stages."""

    tokenizer: Tokenizer
    model: Model
    train_part: Part
    valid_part: Part
    held_out: list[Batch]
    clock: Clock
    overhead: float  # seconds spent before the first step

    def __init__(self, wishes: Wishes, recipe: Recipe, machine: Machine, run: Run, began: float) -> None:
        self.wishes, self.recipe, self.machine, self.run, self.began = wishes, recipe, machine, run, began
        self.state = State()
        self.untouched: dict[str, nn.Module] = {}  # heads of the start model that no objective trains: a pooler
        self.last_save = time.monotonic()
        self.next_look = 0.0
        self.shown = 0.0  # progress on the bar
        self.reserve = 3.0  # seconds kept for the last evaluation and save; measured as we go

    # ---- parts -----------------------------------------------------------------------------------------------------

    def prepare(self, files: list[Path]) -> None:
        started = load_parts(self.wishes.start) if self.wishes.start else None
        self.tokenizer = self._tokenizer(started, files)
        if started is not None and self.wishes.extend:
            kept = self.run.folder / "tokenizer"
            started, self.tokenizer = extend(
                started, self.tokenizer, files, self.wishes.field, self.wishes.extend, kept
            )
        cache = cache_folder()
        store = build_store(files, self.tokenizer, cache, field=self.wishes.field)
        if self.wishes.valid:
            held = build_store(corpus_files(self.wishes.valid), self.tokenizer, cache, field=self.wishes.field)
            self.train_part, self.valid_part = hold_out(store, 0, 0.0)[0], hold_out(held, 0, 0.0)[0]
        else:
            self.train_part, self.valid_part = hold_out(store, self.wishes.seed)
        self.run.bind([part.store.path.name for part in (self.train_part, self.valid_part)])
        torch.manual_seed(chance.key(self.wishes.seed) >> 1)
        self.model = self._model(started).to(self.machine.device)
        self.optimizer = build_optimizer(self.model, self.recipe.optimizer)
        self.call = self._compiled()
        self._resume()
        if self.wishes.one_pass:
            self.recipe = replace(self.recipe, steps=self._one_pass(next(iter(self.recipe.stages.values()))))
        self._describe()

    def _tokenizer(self, started: Parts | None, files: list[Path]) -> Tokenizer:
        kept = self.run.folder / "tokenizer"
        if self.wishes.tokenizer:
            tokenizer = Tokenizer.load(self.wishes.tokenizer)
            if started is not None:
                check_fit(tokenizer, started.backbone.vocab, self.wishes.tokenizer)
            return tokenizer
        if started is not None:
            if started.tokenizer is None:
                raise SesameError(f"{self.wishes.start}: has no tokenizer; name one with --tokenizer")
            return started.tokenizer
        if (kept / "tokenizer.json").is_file():
            return Tokenizer.load(kept)
        wanted = self.recipe.tokenizer
        tokenizer = tokenizer_from(
            files, self.wishes.field, wanted.kind, wanted.size, wanted.lowercase, wanted.strip_accents
        )
        with whole_folder(kept) as folder:
            tokenizer.save(folder)
        return tokenizer

    def _model(self, started: Parts | None) -> Model:
        settings = {key: value for key, value in self.recipe.backbone.items() if key != "kind"}
        if started is None:
            config = build_config(EncoderConfig, {**settings, "vocab": len(self.tokenizer)}, "backbone")
            backbone = Encoder(config)
            if self.recipe.table == "counts" and self.run.latest() is None:
                self._count(backbone)
        else:
            backbone = started.backbone
            longest = max(stage.length for stage in self.recipe.stages.values())
            if longest > backbone.config.max_length:
                raise SesameError(
                    f"{self.wishes.start}: takes {backbone.config.max_length} tokens; a stage has {longest}"
                )
        vocab = Vocab(len(self.tokenizer), self.tokenizer.ids())
        objective = build_objectives(self.recipe.objectives, backbone, vocab)
        if started is not None:
            for part in objective.all():
                head = started.heads.get("mlm")
                if isinstance(part, MaskedLM) and isinstance(head, MaskedLMHead):
                    part.head = head  # as it is: its table may be its own
            trained = objective.heads()
            for name, head in trained.items():
                if name in started.heads:
                    head.load_state_dict(started.heads[name].state_dict())
            owned = {name for task in started.tasks.values() for name in task.heads()}
            self.untouched = {name: head for name, head in started.heads.items() if name not in {*trained, *owned}}
        return Model(backbone, objective)

    @torch.no_grad()
    def _count(self, backbone: Encoder) -> None:
        """Start the token table from counts; tokens that the text does not hold keep their random start."""
        rows = backbone.embeddings.tokens.weight
        kept = self.run.folder / "table.npy"
        if kept.is_file():
            found = np.load(kept)
        else:
            began = time.monotonic()
            found = count_table(self.train_part, backbone.vocab, rows.shape[1], COUNTED * backbone.config.init)
            with whole_file(kept) as handle:
                np.save(handle, found)
            say(f"the token table starts from counts of neighbours, {time.monotonic() - began:.0f} s")
        table = torch.from_numpy(found)
        seen = table.abs().sum(1) > 0
        rows[: len(table)][seen] = table[seen]

    def _one_pass(self, stage: Stage) -> int:
        """Steps of one pass over the text, decided once."""
        packer = self._packer(self.train_part, stage)

        def measure() -> float:
            rows = locate(0, min(PROBE, len(packer)), len(packer), 0)[1]
            batch = self.model.objective.corrupt(packer.draw(rows, chance.keys(HELD_OUT, rows)))
            return seconds_each(self.model, batch, self.machine)

        on_cpu = self.machine.device.type == "cpu"
        return planned_steps(self.run.folder / "plan.json", len(packer), stage.batch, measure if on_cpu else None)

    def _compiled(self) -> Callable[[Batch], list[Term]]:
        wanted = self.wishes.compile
        if wanted is None:
            wanted = self.machine.device.type == "cuda" and find_spec("triton") is not None
        return torch.compile(self.model, dynamic=False) if wanted else self.model

    def _resume(self) -> None:
        folder = self.run.latest()
        if folder is None:
            self.run.cut_all_metrics()
            return
        saved = load_parts(folder, tokenizer=False)
        with torch.no_grad():
            ours = self._parts().state()
            for name, tensor in saved.state().items():
                ours[name].copy_(tensor)
        self.state = self.run.restore(folder, self.model, self.optimizer)
        say(f"going on from step {self.state.step}")

    def _describe(self) -> None:
        """What will happen, said once."""
        count = sum(p.numel() for p in self.model.backbone.parameters())
        core = chosen_core(self.machine.device, self.model.backbone.config.attention_dropout)
        length = f"{self.wishes.budget / 60:g} minutes" if self.wishes.budget else f"{self.recipe.steps:,} steps"
        say(
            f"{self.recipe.name}: {count / 1e6:.1f} M parameters, {len(self.tokenizer):,} pieces, "
            f"{self.train_part.tokens() / 1e6:.2f} M tokens to train on, {self.valid_part.tokens():,} held out; "
            f"{length} on {self.machine.device.type} in {self.machine.precision}, attention: {core}"
        )

    # ---- stages ----------------------------------------------------------------------------------------------------

    def train(self) -> None:
        stages = list(self.recipe.stages.values())
        total = sum(stage.share for stage in stages)
        self.held_out = self._held_out_batches(stages[0])
        self.overhead = time.monotonic() - self.began
        events = Events(self.run.folder / "events", self.state.step)
        with bar("pretrain", 1.0) as shown, events:
            done = 0.0
            for number, stage in enumerate(stages):
                done += stage.share / total
                if number < self.state.stage:
                    continue
                if number > self.state.stage:
                    self.state.stage, self.state.stage_step = number, 0
                self.clock = self._clock(1.0 if number == len(stages) - 1 else done)
                self._stage(stage, self.clock, shown, events)
            figures = self._look(self.state, events)
        self._finish(figures)

    def _clock(self, last: float) -> Clock:
        budget = None
        if self.wishes.budget is not None:
            budget = max(self.wishes.budget - self.overhead - self.reserve, 1.0)
        return Clock(self.recipe.steps, budget, time.monotonic(), self.state.elapsed, last)

    def _stage(self, stage: Stage, clock: Clock, shown: Bar, events: Events) -> None:
        packer = self._packer(self.train_part, stage)
        static = max((getattr(config, "static", 0) for config in self.recipe.objectives.values()), default=0)
        micro = stage.micro or self._micro(stage)
        loader = Loader(
            packer, stage.batch, min(micro, stage.batch), self.wishes.seed, self.model.objective.corrupt, static
        )
        offset = self.state.step - self.state.stage_step
        if self.state.held_out and not self.next_look:  # resumed: the last look is still good
            self.next_look = clock.progress(self.state.step) + self.recipe.evaluation.every

        def window(state: State, figures: dict[str, Any]) -> None:
            now = min(clock.progress(state.step), 1.0)
            shown.note(_note(figures, state))
            shown.advance(max(now - self.shown, 0.0))
            self.shown = max(now, self.shown)
            line = {
                "step": state.step,
                "stage": state.stage,
                "seconds": round(state.elapsed, 2),
                "tokens": state.tokens,
            }
            self.run.log({**line, **figures})
            events.add(state.step, figures)

        def evaluate(state: State) -> None:
            self._look(state, events)
            self.next_look = clock.progress(state.step) + self.recipe.evaluation.every

        def skipped(state: State, step: int, why: str) -> None:
            sources = loader.sources(state.stage_step - (state.step - step))
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
            lambda step: loader.load(step, min(clock.progress(offset + step), 1.0)),
            rate=self.recipe.optimizer.rate,
            schedule=self.recipe.schedule,
            clip=self.recipe.optimizer.clip,
            clock=clock,
            state=self.state,
            machine=self.machine,
            seed=self.wishes.seed,
            hooks=hooks,
            threads=1 if self.machine.device.type == "cpu" else 4,
        )

    def _packer(self, part: Part, stage: Stage) -> Packer:
        specials = Specials(self.tokenizer.id("cls"), self.tokenizer.id("sep"), self.tokenizer.id("pad"))
        return Packer(
            part, stage.packing, stage.length, specials, short=stage.short, words=self.model.objective.needs_words
        )

    def _micro(self, stage: Stage) -> int:
        """Sequences at a time: what stays in the cache of a CPU, what fits into the memory of a GPU."""
        if self.machine.device.type == "cpu":
            return max(1, 4096 // stage.length)
        config = self.model.backbone.config
        each = config.depth * config.width * 40 + config.vocab * 2  # bytes a token, in bf16 with the head on 15 %
        free, _ = torch.cuda.mem_get_info(self.machine.device)
        return max(1, int(free * 0.5 / each) // stage.length)

    # ---- between the steps -----------------------------------------------------------------------------------------

    def _look(self, state: State, events: Events) -> dict[str, float]:
        """The loss on held-out text: always the same examples with the same masks, at the first stage's length."""
        if not self.held_out:
            return {}
        began = time.monotonic()
        state.held_out = held_out(self.model, self.model, self.held_out, self.machine)
        self.run.log({"step": state.step, "seconds": round(state.elapsed, 2), "held_out": state.held_out})
        events.add(state.step, state.held_out, "held_out/")
        self._keep(began)
        return state.held_out

    def _keep(self, began: float) -> None:
        """Keep as much time of the budget for the end as looking and saving were seen to take."""
        self.reserve = max(self.reserve, 2.0 + 2.0 * (time.monotonic() - began))
        if self.clock.budget is not None and self.wishes.budget is not None:
            self.clock.budget = max(self.wishes.budget - self.overhead - self.reserve, 1.0)

    def _held_out_batches(self, stage: Stage) -> list[Batch]:
        if self.valid_part.tokens() == 0 or (stage.packing == "pairs" and len(self.valid_part.documents) < 2):
            return []
        packer = self._packer(self.valid_part, stage)
        on_cpu = self.machine.device.type == "cpu"
        tokens = self.recipe.evaluation.tokens or (16_384 if on_cpu else 524_288)
        count = min(len(packer), max(1, tokens // stage.length))
        _, rows = locate(0, count, len(packer), 0)
        size = 32 if on_cpu else 256
        parts = [rows[start : start + size] for start in range(0, count, size)]
        return [self.model.objective.corrupt(packer.draw(part, chance.keys(HELD_OUT, part))) for part in parts]

    def _save_due(self, state: State) -> bool:
        if self.wishes.save_steps:
            return state.step % self.wishes.save_steps == 0
        return time.monotonic() - self.last_save >= self.wishes.save_minutes * 60

    def _save(self, state: State) -> None:
        began = time.monotonic()
        self.run.save(self._parts(), self.model, self.optimizer, state, self._card(state))
        self.last_save = time.monotonic()
        self._keep(began)

    def _finish(self, figures: dict[str, float]) -> None:
        if self.state.step and not self.state.tokens:
            raise SesameError(
                "every batch had to be left out: the training diverges from the start; lower optimizer.rate"
            )
        self.run.save_final(self._parts(), self._card(self.state))
        shown = ", ".join(f"{name} {value:.3f}" for name, value in figures.items())
        done = f"{self.state.step:,} steps and {self.state.tokens / 1e6:.1f} M tokens"
        say(f"{self.run.final}: done after {done}; held out: {shown or 'no text'}")

    def _parts(self) -> Parts:
        return Parts(self.model.backbone, {**self.untouched, **self.model.objective.heads()}, self.tokenizer)

    def _card(self, state: State) -> str:
        return card(self.recipe.name, self.recipe.paper, self.run.identity, state)


def _note(figures: dict[str, Any], state: State) -> str:
    rate = figures["tokens_per_second"]
    speed = f"{rate / 1e6:.2f} M" if rate >= 1e6 else f"{rate / 1e3:.1f} k"
    held = f" · held out {state.held_out['mlm']:.3f}" if "mlm" in state.held_out else ""
    return f"step {state.step} · loss {figures['loss']:.3f}{held} · {speed} tokens/s · {figures['padding']:.0%} padding"
