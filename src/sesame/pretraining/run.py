"""From raw text to a pre-trained model: what `sesame pretrain` does, room by room.

    wishes (wishes.py) -> recipe -> tokenizer, stores (preparation.py) -> model, examples, optimizer (prepared.py)
    -> the loop, stage by stage (training.py) -> final folder

The run's folder decides everything on a restart: whatever is there and whole is taken, the rest is made. Under `torchrun` all
processes walk through here together, see `train/parallel.py`; the number of them may change from one start to the next.
"""

from pathlib import Path
from typing import get_args

from sesame.checkpoint.run import Run
from sesame.data.loader import STAIRS
from sesame.errors import SesameError
from sesame.pretraining.inputs import files_of, sums_of
from sesame.pretraining.mixture import check_mixture, text_files, texts_of_finished
from sesame.pretraining.prepared import Prepared, prepare
from sesame.pretraining.telling import ending
from sesame.pretraining.timing import Timing
from sesame.pretraining.training import Training
from sesame.pretraining.wishes import Wishes, chosen_recipe, identity_of
from sesame.progress import say
from sesame.train.parallel import Parallel, World, join, share_of
from sesame.train.precision import choose_machine
from sesame.train.state import State


def pretrain(wishes: Wishes) -> Path:
    """Run to the end, or go on where an earlier call stopped; gives the folder of the finished model."""
    with join(wishes.device) as world:
        return _pretrain(wishes, world)


def _pretrain(wishes: Wishes, world: World) -> Path:
    timing = Timing(wishes.budget)
    if wishes.parallel not in get_args(Parallel):
        raise SesameError(f"--parallel {wishes.parallel}: must be one of {', '.join(get_args(Parallel))}")
    machine = choose_machine(wishes.device, wishes.precision)
    recipe = chosen_recipe(wishes, machine)
    try:
        check_mixture(wishes, recipe)
        files = text_files(wishes.text)
    except SesameError:
        files = texts_of_finished(wishes)
        if not files:
            raise
    identity = identity_of(recipe, wishes, files)
    for name, stage in recipe.stages.items():
        if not stage.tokens:  # else it may play no part, see `Examples.share`
            share_of(stage.batch, world, f"stages.{name}.batch", STAIRS if stage.ramp else 1)
    with Run.claim(wishes.out, identity, world) as run:
        run.bind_files(sums_of(files_of(wishes, files)) if world.first else {})
        if (run.final / "config.json").is_file():
            say(f"{run.final}: this run is finished already; nothing to do")
            return run.final
        run.keep = max(run.keep, wishes.keep)
        parts = prepare(wishes, recipe, machine, run, files)
        _finish(parts, Training(parts, timing).train())
    return run.final


def _finish(parts: Prepared, state: State) -> None:
    if state.step and not state.tokens:
        raise SesameError("every batch had to be left out: the training diverges from the start; lower optimizer.rate")
    written = parts.written.whole()
    parts.run.save_final(written.pop(""), parts.card(state), written)
    say(ending(parts.run.final, state))
