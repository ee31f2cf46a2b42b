"""The same training with several seeds: each in its folder, again with other chance if it collapses; which is the best."""

import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sesame import chance
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.run import Run
from sesame.data.split import alike
from sesame.evaluate.results import tune
from sesame.evaluate.scoring import collapsed, gold_of, said_of, score
from sesame.files import read_json, write_json
from sesame.finetuning.course import Course
from sesame.finetuning.multitask import Subject, of_task
from sesame.finetuning.one_seed import SeedRun, steps_of
from sesame.finetuning.outcome import shown_scores
from sesame.progress import bar, say
from sesame.tasks import Task

FEW_STEPS = 20  # in so few a model hardly leaves its start
TRIES = 3  # trainings of a seed that collapses


class Seeds:
    """So many seeds of a course."""

    def __init__(self, course: Course, count: int) -> None:
        self.course, self.count = course, count

    def all(self) -> list[dict[str, Any]]:
        """What each of them reached; the first process asks, after all have trained their share."""
        found = [self._seed(number) for number in range(self.count)]
        self._note_collapses(found)
        return found

    def share(self) -> None:
        """Train the seeds of this rank, and wait for those of the others, whose results then stand in their folders."""
        if self.course.world.ranks == 1:
            return
        if self.count < self.course.world.ranks:
            say(
                f"{self.course.world.ranks} processes, but {self.count} seeds: one process trains one seed, the others wait"
            )
        for number in range(self.course.world.rank, self.count, self.course.world.ranks):
            self._seed(number)
        self.course.world.wait()

    def best(self, found: Sequence[dict[str, Any]]) -> int:
        """By the mean of the tasks' main scores on validation data."""

        def worth(result: dict[str, Any]) -> float:
            each = [subject.worth(of_task(result, name)["scores"]) for name, subject in self.course.subjects.items()]
            return sum(each) / len(each)

        usable = [n for n, result in enumerate(found) if not result["collapsed"]] or list(range(len(found)))
        return max(usable, key=lambda n: (worth(found[n]), -n))

    def _note_collapses(self, found: Sequence[dict[str, Any]]) -> None:
        steps = steps_of(self.course.transfer, self.course.lessons)
        brief = f"train longer than {steps:,} step{'s' if steps > 1 else ''} (--epochs)"
        remedy = brief if steps < FEW_STEPS else "lower the rate or give more labels"
        for result in found:
            if result["collapsed"]:
                self.course.note(f"seed {result['seed']} collapsed to one answer {result['attempts']} times; {remedy}")
            elif result["attempts"] > 1:
                self.course.note(
                    f"seed {result['seed']} collapsed to one answer; it was trained again with other chance"
                )

    def _seed(self, number: int) -> dict[str, Any]:
        """Train one seed, or take what it reached before; one that collapses is trained again with other chance."""
        seed = self.course.wishes.seed + number
        folder = self.course.run.folder / f"seed-{seed}"
        if (folder / "result.json").is_file():
            found = dict(read_json(folder / "result.json"))
            if number % self.course.world.ranks:  # another process trained it, in silence
                self._tell(found)
            return found
        began = time.monotonic()
        for attempt in range(TRIES):
            place = folder if attempt == 0 else folder / f"again-{attempt}"
            found = self._attempt(seed, attempt, place, f"seed {seed} ({number + 1} of {self.count})")
            if not found["collapsed"]:
                break
            if attempt + 1 < TRIES:
                say(f"seed {seed} collapsed to one answer; training it again with other chance")
        found |= {
            "seconds": round(time.monotonic() - began, 1),
            "attempts": attempt + 1,
            "folder": str(place.relative_to(self.course.run.folder)),
        }
        self._tell(found)
        write_json(folder / "result.json", found)
        return found

    def _tell(self, found: dict[str, Any]) -> None:
        """What a seed reached."""
        for name, subject in self.course.subjects.items():
            reached = shown_scores(of_task(found, name)["scores"], subject.metric)
            say(f"seed {found['seed']}: {f'{name}: ' if self.course.several else ''}{reached}")

    def _attempt(self, seed: int, attempt: int, folder: Path, shown_as: str) -> dict[str, Any]:
        key = chance.key(seed, attempt) >> 1 if attempt else seed
        run = SeedRun(
            self.course.start, self.course.lessons, self.course.transfer, self.course.machine, key,
            save_minutes=self.course.wishes.save_minutes, save_steps=self.course.wishes.save_steps,
        )  # fmt: skip
        identity = {**self.course.run.identity, "attempt": {"seed": seed, "number": attempt}}
        with Run.claim(folder, identity) as inner, bar(shown_as, run.steps()) as shown:
            done = (inner.final / "config.json").is_file()
            trained = load_parts(inner.final) if done else run.train(inner, self._look, shown)
            trained.to(self.course.machine.device)
            tasks = {name: self._reached(subject, trained) for name, subject in self.course.subjects.items()}
            inner.save_final(trained, "")
            shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        return {
            "seed": seed,
            "scores": tasks[self.course.first.name]["scores"],
            "collapsed": any(task["collapsed"] for task in tasks.values()),
            **_curves(folder / "metrics.jsonl"),
            **({"tasks": tasks} if self.course.several else {}),
        }

    def _reached(self, subject: Subject, trained: Parts) -> dict[str, Any]:
        """The scores of one task as its seed will answer, tuned on validation data, and whether it failed to train."""
        config, task, logits = subject.config, trained.tasks[subject.name], subject.logits(trained)
        gold = {part: gold_of(config, subject.parts[part]) for part in logits}
        untuned = said_of(config, subject.answers(task, "valid", logits["valid"]))
        tuned = tune(config, subject.parts["valid"], subject.items["valid"], task, logits["valid"])
        task.config = replace(task.config, **tuned)
        said = {part: said_of(config, subject.answers(task, part, logits[part])) for part in logits}
        return {
            "scores": {part: score(config, gold[part], said[part]) for part in gold},
            "collapsed": collapsed(config, gold["valid"], untuned) and not alike(subject.parts["valid"], config.kind),
        }

    def _look(self, tasks: dict[str, Task], backbone: Any) -> dict[str, float]:
        """The main score of each task on some of the validation examples."""
        return {
            name: subject.look(tasks[name], backbone, self.course.machine)
            for name, subject in self.course.subjects.items()
        }


def _curves(metrics: Path) -> dict[str, Any]:
    lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()] if metrics.is_file() else []
    return {
        "loss": [[line["step"], line["loss"]] for line in lines if "loss" in line],
        "curve": [[line["step"], line["valid"]] for line in lines if "valid" in line],
        **({"curves": curves} if (curves := _each(lines)) else {}),
    }


def _each(lines: Sequence[dict[str, Any]]) -> dict[str, list[list[float]]]:
    """The learning curve of each of several tasks."""
    found: dict[str, list[list[float]]] = {}
    for line in lines:
        for name, value in line.get("each", {}).items():
            found.setdefault(name, []).append([line["step"], value])
    return found
