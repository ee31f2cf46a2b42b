"""Labels in, a model out whose score carries its uncertainty.

    read, split, look at the data -> baselines -> the same training with several seeds -> scores with intervals -> report

    OUT/recipe.toml  results.json  report.html  predictions.jsonl
    OUT/adapted/     with --text: the pre-training that goes on first, see `adaptation.py`
    OUT/seed-N/      a run each (checkpoints only while it trains), result.json
    OUT/final/       the seed that is best on the validation data

Scores of the test data are computed, but nothing is ever chosen by them.

Under `torchrun` each process trains seeds of its own, and the first one writes the report. Batches of a fine-tuning are
small, so sharing one of them would mostly wait; seeds need no word between them, and each gets the same weights as in a
run of one process, whatever their number. Adapting to unlabelled text is a pre-training, which all processes share.
"""

from pathlib import Path

from sesame.checkpoint.loading import check_there
from sesame.checkpoint.run import Run
from sesame.errors import SesameError
from sesame.finetuning.adaptation import text_of
from sesame.finetuning.course import Course
from sesame.finetuning.one_seed import keep
from sesame.finetuning.outcome import simple_answers, write_down
from sesame.finetuning.seeds import Seeds
from sesame.finetuning.transfer import resolve_transfer
from sesame.finetuning.wishes import Wishes, content, identity_of
from sesame.pretraining.inputs import files_of_model, sums_of
from sesame.progress import say
from sesame.train.parallel import World, join
from sesame.train.precision import choose_machine

FEW = 10_000  # below so many examples one seed says little
SEEDS = 5


def finetune(wishes: Wishes) -> Path:
    """Teach a model a task; gives the folder of the best seed."""
    with join(wishes.device) as world:
        return _finetune(wishes, world)


def _finetune(wishes: Wishes, world: World) -> Path:
    transfer = resolve_transfer(wishes.strategy, wishes.settings)
    asked = wishes.asked()
    files = [Path(file) for one in asked for file in one.files().values()]
    identity = identity_of(wishes, asked[1:], transfer)
    if not wishes.text and (wishes.extend or wishes.text_budget is not None or wishes.text_steps is not None):
        raise SesameError("--extend, --text-budget and --text-steps are about unlabelled text; name it with --text")
    machine = choose_machine(wishes.device, wishes.precision)
    with Run.claim(wishes.out, identity, world) as run:
        read = [*files_of_model(wishes.model), *text_of(wishes.text)]
        run.bind_files(sums_of(read) if world.first else {})
        done = (run.final / "config.json").is_file()
        if not done or all(file.is_file() for file in files):  # a finished run may outlive its files
            run.bind([content(file) for file in files])
        if done:
            say(f"{run.final}: this run is finished already; nothing to do")
            return run.final
        check_there(Path(wishes.model))
        _teach(Course(wishes, asked, transfer, machine, run))
    return run.final


def _teach(course: Course) -> None:
    course.prepare()
    plain = {}
    if course.world.first:
        plain = {name: simple_answers(course, subject) for name, subject in course.subjects.items()}
    fewest = min(len(subject.parts["train"]) for subject in course.subjects.values())
    if course.transfer.adapt.strategy == "frozen":
        keep(course.start, course.lessons, course.machine, course.transfer.task.frame)
    seeds = Seeds(course, course.wishes.seeds or (SEEDS if fewest < FEW else 1))
    seeds.share()
    if not course.world.first:
        return
    found = seeds.all()
    best = seeds.best(found)
    say(f"best on validation: seed {found[best]['seed']}")
    write_down(course, found, best, plain)
