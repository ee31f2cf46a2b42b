"""What a fine-tuning teaches, and to whom: the tasks with their rows, encoded for the model that the seeds start from."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sesame.checkpoint.hf import FAMILIES
from sesame.checkpoint.run import Run
from sesame.errors import SesameError
from sesame.finetuning.adaptation import adapt, adaptable
from sesame.finetuning.framing import open_start
from sesame.finetuning.multitask import Asked, Subject
from sesame.finetuning.one_seed import steps_of
from sesame.finetuning.transfer import Transfer, fitted, in_family, task_config
from sesame.finetuning.wishes import Wishes
from sesame.progress import many_steps, say
from sesame.tasks.predict import ENDLESS
from sesame.train.precision import Machine


class Course:
    """One process's view of a fine-tuning; `prepare` reads the rows and, with --text, adapts the model first."""

    def __init__(self, wishes: Wishes, asked: Sequence[Asked], transfer: Transfer, machine: Machine, run: Run) -> None:
        self.wishes, self.transfer, self.machine, self.run = wishes, transfer, machine, run
        self.world = run.world
        self.subjects = {one.name: Subject(one, wishes.seed) for one in asked}
        self.first = self.subjects[asked[0].name]
        self.several = len(asked) > 1
        self.start = wishes.model  # what the seeds start from
        self.adaptable = True  # by --text
        self.notes: list[str] = []

    def prepare(self) -> None:
        for subject in self.subjects.values():
            subject.read()
        noted = {name: len(subject.notes) for name, subject in self.subjects.items()}
        self._encode()
        if self.wishes.text:
            self._adapt()
            if self.wishes.extend:  # other ids than those that the check above gave
                for name, subject in self.subjects.items():
                    del subject.notes[noted[name] :]
                self._encode()
        self.lessons = {name: subject.lesson for name, subject in self.subjects.items()}

    def note(self, sentence: str) -> None:
        """Say it now and in the report."""
        say(sentence)
        self.notes.append(sentence)

    def beside(self, subject: Subject, file: str) -> Path:
        """A file of the run for one task: the first one has the plain name."""
        name = Path(file)
        return self.run.folder / (file if subject is self.first else f"{name.stem}-{subject.name}{name.suffix}")

    def _encode(self) -> None:
        start = open_start(self.start, self.transfer.task.frame)
        if start.tokenizer is None:
            raise SesameError(
                f"{self.wishes.model}: has no tokenizer; put tokenizer.json or vocab.txt beside the weights"
            )
        self.adaptable = adaptable(start)
        longest, encoder, family = start.backbone.longest, start.backbone.config, FAMILIES.get(start.family)
        frozen = self.transfer.adapt.strategy == "frozen"
        free = self.transfer.task.pooling == "auto" and "pooler" not in start.heads
        for subject in self.subjects.values():
            config = fitted(task_config(subject.kind, subject.parts["train"], self.transfer), encoder, free)
            if free and start.family == "xlnet" and config.pooling == "mean":
                say("the mean of all states is read; transformers' class reads [CLS]: --set task.pooling=pooler")
            config = in_family(config, encoder, family, frozen)
            limit = config.length or longest or ENDLESS
            limit = min(limit, longest or limit)
            subject.encode(replace(config, length=limit), start.backbone, start.tokenizer)
        count = sum(p.numel() for p in start.backbone.parameters())
        steps = steps_of(self.transfer, {name: subject.lesson for name, subject in self.subjects.items()})
        taught = [f"{name} on {len(one.parts['train']):,} examples" for name, one in self.subjects.items()]
        say(
            f"{', '.join(taught)}, strategy {self.transfer.name}: "
            f"{count / 1e6:.1f} M parameters, {many_steps(steps)} of {self.transfer.batch} "
            f"on {self.machine.device.type} in {self.machine.precision}"
        )

    def _adapt(self) -> None:
        """Go on with pre-training on unlabelled text; all that may be wrong with the task was found before."""
        wishes = self.wishes
        rows = [row for subject in self.subjects.values() for row in subject.parts["train"]]
        adapted = adapt(
            self.run.folder, wishes.model, wishes.text, rows, wishes.columns.get("text"),
            budget=wishes.text_budget, steps=wishes.text_steps, extend=wishes.extend, seed=wishes.seed,
            device=wishes.device, precision=wishes.precision, save_minutes=wishes.save_minutes, save_steps=wishes.save_steps,
        )  # fmt: skip
        self.start = str(adapted)
        self.note(
            f"the model was first adapted to unlabelled text: {', '.join(Path(name).name for name in wishes.text)}"
        )
