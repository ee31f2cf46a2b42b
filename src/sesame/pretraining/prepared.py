"""What trains: a run's model with its text and its optimizer, as they stood at the last checkpoint.

ingredients (preparation.py) -> model (start_model.py) -> examples -> device, weights and optimizer of the checkpoint
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from sesame import chance
from sesame.checkpoint.cards import card
from sesame.checkpoint.run import Run, in_shares
from sesame.checkpoint.speech import answer_frame
from sesame.data.batch import Batch
from sesame.data.order import locate
from sesame.data.unit_files import Units, hidden_whole, wanted_entities
from sesame.objectives import Term
from sesame.objectives.model import Model
from sesame.pretraining.examples import HELD_OUT, Examples
from sesame.pretraining.mixture import parts_of
from sesame.pretraining.one_pass import PROBE, planned_steps, seconds_each
from sesame.pretraining.preparation import Ingredients, gather_ingredients
from sesame.pretraining.start_model import model_at_start
from sesame.pretraining.telling import burden, plan
from sesame.pretraining.wishes import Wishes
from sesame.pretraining.written import Written
from sesame.progress import say
from sesame.recipe import Recipe
from sesame.train.compute import computing, replaying
from sesame.train.optim import Optimizer, build_optimizer
from sesame.train.precision import Machine
from sesame.train.shares import not_shared, shard, wants_shards
from sesame.train.state import State
from sesame.train.step import paces


@dataclass
class Prepared:
    """One process's parts of a run."""

    wishes: Wishes
    recipe: Recipe
    machine: Machine
    run: Run
    model: Model
    written: Written
    examples: Examples
    optimizer: Optimizer
    call: Callable[[Batch], list[Term]]  # the model as it computes
    born: bool  # here, not a model from elsewhere that goes on
    state: State

    def card(self, state: State) -> str:
        return card(self.recipe.name, self.recipe.paper, self.run.identity, state)


def prepare(wishes: Wishes, recipe: Recipe, machine: Machine, run: Run, files: list[Path]) -> Prepared:
    """Make the parts, or take what stands of them in the run and in the cache; ranks one after the other."""
    checkpoint = run.latest()
    with run.world.in_turn():
        found = gather_ingredients(wishes, recipe, run, files)
        family = recipe.family or ("" if found.started is None else found.started.family)
        model, untouched = model_at_start(found, wishes, recipe, run, fresh=checkpoint is None)
        written = Written(model, found.tokenizer, recipe, run.world, family, found.speech, untouched)
        examples = _examples(found, wishes, recipe, machine, model)
        if wishes.one_pass:
            recipe = replace(recipe, steps=_one_pass(examples, run))
    optimizer, call, state = _placed(written, wishes, recipe, machine, run, checkpoint)
    if other := written.other_family():
        say(other)
    say(plan(recipe, wishes, model, found.tokenizer, examples, machine, run.world))
    if heavy := burden(recipe, wishes, machine):
        say(heavy)
    born = found.started is None
    return Prepared(wishes, recipe, machine, run, model, written, examples, optimizer, call, born, state)


def _examples(found: Ingredients, wishes: Wishes, recipe: Recipe, machine: Machine, model: Model) -> Examples:
    units = Units(found.tokenizer, wanted_entities(wishes.entities, recipe.stages))
    for stage, part in product(recipe.stages.values(), (*parts_of(found.train), *parts_of(found.valid))):
        kind = hidden_whole(stage, model.objective.needs_words)
        units.starts(part.store, kind)  # now, not on the clock of a stage
    frame = answer_frame(found.tokenizer, found.speech) if "seq2seq" in recipe.objectives else None
    return Examples(recipe, found.tokenizer, found.train, found.valid, units, model, machine, wishes.seed, frame)


def _one_pass(examples: Examples, run: Run) -> int:
    """Steps of one pass over the text, decided once."""
    stage, model, machine = next(iter(examples.recipe.stages.values())), examples.model, examples.machine
    packers = examples.packers(examples.train, stage)
    packer = packers[0]

    def measure() -> float:
        rows = locate(0, min(PROBE, len(packer)), len(packer), 0)[1]
        batch = model.objective.corrupt(packer.draw(rows, chance.keys(HELD_OUT, rows)))
        return seconds_each(model, batch, machine)

    on_cpu = machine.device.type == "cpu"
    return planned_steps(run.folder / "plan.json", sum(map(len, packers)), stage.batch, measure if on_cpu else None)


def _placed(
    written: Written, wishes: Wishes, recipe: Recipe, machine: Machine, run: Run, checkpoint: Path | None
) -> tuple[Optimizer, Callable[[Batch], list[Term]], State]:
    """Bring the model to its device, whole or in shares, as it was at the checkpoint."""
    model, world, state = written.model, run.world, State()
    if checkpoint is not None and not in_shares(checkpoint):
        written.take(checkpoint)
    sharded = wants_shards(wishes.parallel, model, machine, world)
    if sharded:
        if world.first:
            written.before_sharding()
        shard(model, machine, world, wishes.compile)
    else:
        model.to(machine.device)
    optimizer = build_optimizer(model, recipe.optimizer, paces(model))
    if checkpoint is None:
        run.cut_all_metrics()
    else:
        state = run.restore(checkpoint, model, optimizer)
        say(f"going on from step {state.step}")
    world.same_weights(not_shared(model))
    run.keep_best = recipe.evaluation.best
    if sharded:
        return optimizer, model, state
    if any(stage.packing == "answers" for stage in recipe.stages.values()):  # more shapes than are worth compiling
        return optimizer, replaying(model, machine), state
    return optimizer, computing(model, machine, wishes.compile), state
