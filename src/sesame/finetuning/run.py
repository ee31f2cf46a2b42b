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

import json
import math
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from sesame import chance
from sesame.checkpoint.cards import task_card
from sesame.checkpoint.folder import Parts, load_parts
from sesame.checkpoint.hf import FAMILIES
from sesame.checkpoint.run import Run
from sesame.data.split import alike
from sesame.errors import SesameError
from sesame.evaluate.baselines import baselines
from sesame.evaluate.results import collect, tune
from sesame.evaluate.scoring import collapsed, figure, gold_of, said_of, score
from sesame.files import read_json, write_json, write_whole
from sesame.finetuning.adaptation import adapt, adaptable, text_of
from sesame.finetuning.framing import open_start
from sesame.finetuning.multitask import Asked, Subject, card_of_all, of_task
from sesame.finetuning.one_seed import SeedRun, keep, steps_of
from sesame.finetuning.transfer import Transfer, fitted, in_family, resolve_transfer, task_config
from sesame.finetuning.wishes import Wishes, content, identity_of
from sesame.pretraining.inputs import files_of_model, sums_of
from sesame.progress import bar, say
from sesame.tasks import Task
from sesame.tasks.predict import ENDLESS
from sesame.train.parallel import World, join
from sesame.train.precision import Machine, choose_machine

FEW = 10_000  # below so many examples one seed says little
SEEDS = 5
FEW_STEPS = 20  # in so few a model hardly leaves its start
TRIES = 3  # trainings of a seed that collapses


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
        _Job(wishes, asked, transfer, machine, run).run_all()
    return run.final


class _Job:
    """One process's work on a fine-tuning."""

    def __init__(self, wishes: Wishes, asked: Sequence[Asked], transfer: Transfer, machine: Machine, run: Run) -> None:
        self.wishes, self.transfer, self.machine, self.run = wishes, transfer, machine, run
        self.world = run.world
        self.subjects = {one.name: Subject(one, wishes.seed) for one in asked}
        self.first = self.subjects[asked[0].name]
        self.several = len(asked) > 1
        self.start = wishes.model  # what the seeds start from
        self.adaptable = True  # by --text
        self.notes: list[str] = []

    def run_all(self) -> None:
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
        plain = {}
        if self.world.first:
            plain = {name: self._baselines(subject) for name, subject in self.subjects.items()}
        fewest = min(len(subject.parts["train"]) for subject in self.subjects.values())
        seeds = self.wishes.seeds or (SEEDS if fewest < FEW else 1)
        self.lessons = {name: subject.lesson for name, subject in self.subjects.items()}
        if self.transfer.adapt.strategy == "frozen":
            keep(self.start, self.lessons, self.machine, self.transfer.task.frame)
        self._share(seeds)
        if not self.world.first:
            return
        found = [self._seed(self.wishes.seed + number, number, seeds) for number in range(seeds)]
        self._note_collapses(found)
        best = self._best(found)
        say(f"best on validation: seed {found[best]['seed']}")
        self._finish(found, best, plain)

    def _share(self, seeds: int) -> None:
        """Train the seeds of this rank, and wait for those of the others, whose results then stand in their folders."""
        if self.world.ranks == 1:
            return
        if seeds < self.world.ranks:
            say(f"{self.world.ranks} processes, but {seeds} seeds: one process trains one seed, the others wait")
        for number in range(self.world.rank, seeds, self.world.ranks):
            self._seed(self.wishes.seed + number, number, seeds)
        self.world.wait()

    def _note(self, sentence: str) -> None:
        say(sentence)
        self.notes.append(sentence)

    def _note_collapses(self, found: Sequence[dict[str, Any]]) -> None:
        steps = steps_of(self.transfer, self.lessons)
        brief = f"train longer than {steps:,} step{'s' if steps > 1 else ''} (--epochs)"
        remedy = brief if steps < FEW_STEPS else "lower the rate or give more labels"
        for result in found:
            if result["collapsed"]:
                self._note(f"seed {result['seed']} collapsed to one answer {result['attempts']} times; {remedy}")
            elif result["attempts"] > 1:
                self._note(f"seed {result['seed']} collapsed to one answer; it was trained again with other chance")

    def _beside(self, subject: Subject, file: str) -> Path:
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
            f"{count / 1e6:.1f} M parameters, {steps:,} steps of {self.transfer.batch} "
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
        self._note(
            f"the model was first adapted to unlabelled text: {', '.join(Path(name).name for name in wishes.text)}"
        )

    # ---- baselines and seeds -------------------------------------------------------------------------------------

    def _baselines(self, subject: Subject) -> dict[str, Any]:
        """Answers of simple methods, and their scores."""
        if not self.wishes.baselines:
            return {}
        kept = self._beside(subject, "baselines.json")
        if kept.is_file():
            return dict(read_json(kept))
        found: dict[str, Any] = {}
        for part in subject.splits():
            gold = gold_of(subject.config, subject.parts[part])
            for name, said in baselines(subject.kind, subject.parts["train"], subject.parts[part]).items():
                entry = found.setdefault(name, {"scores": {}, "said": {}})
                entry["scores"][part], entry["said"][part] = score(subject.config, gold, said), said
        for name, entry in found.items():
            say(f"baseline {name}: {_shown(entry['scores'], subject.metric)}")
        write_json(kept, found)
        return found

    def _seed(self, seed: int, number: int, seeds: int) -> dict[str, Any]:
        """Train one seed, or take what it reached before; one that collapses is trained again with other chance."""
        folder = self.run.folder / f"seed-{seed}"
        if (folder / "result.json").is_file():
            found = dict(read_json(folder / "result.json"))
            if number % self.world.ranks:  # another process trained it, in silence
                self._tell(found)
            return found
        began = time.monotonic()
        for attempt in range(TRIES):
            place = folder if attempt == 0 else folder / f"again-{attempt}"
            found = self._attempt(seed, attempt, place, f"seed {number + 1} of {seeds}")
            if not found["collapsed"]:
                break
            if attempt + 1 < TRIES:
                say(f"seed {seed} collapsed to one answer; training it again with other chance")
        found |= {
            "seconds": round(time.monotonic() - began, 1),
            "attempts": attempt + 1,
            "folder": str(place.relative_to(self.run.folder)),
        }
        self._tell(found)
        write_json(folder / "result.json", found)
        return found

    def _tell(self, found: dict[str, Any]) -> None:
        """What a seed reached."""
        for name, subject in self.subjects.items():
            reached = _shown(of_task(found, name)["scores"], subject.metric)
            say(f"seed {found['seed']}: {f'{name}: ' if self.several else ''}{reached}")

    def _attempt(self, seed: int, attempt: int, folder: Path, shown_as: str) -> dict[str, Any]:
        key = chance.key(seed, attempt) >> 1 if attempt else seed
        run = SeedRun(
            self.start, self.lessons, self.transfer, self.machine, key,
            save_minutes=self.wishes.save_minutes, save_steps=self.wishes.save_steps,
        )  # fmt: skip
        identity = {**self.run.identity, "attempt": {"seed": seed, "number": attempt}}
        with Run.claim(folder, identity) as inner, bar(shown_as, run.steps()) as shown:
            done = (inner.final / "config.json").is_file()
            trained = load_parts(inner.final) if done else run.train(inner, self._look, shown)
            trained.to(self.machine.device)
            tasks = {name: self._reached(subject, trained) for name, subject in self.subjects.items()}
            inner.save_final(trained, "")
            shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        return {
            "seed": seed,
            "scores": tasks[self.first.name]["scores"],
            "collapsed": any(task["collapsed"] for task in tasks.values()),
            **_curves(folder / "metrics.jsonl"),
            **({"tasks": tasks} if self.several else {}),
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
        return {name: subject.look(tasks[name], backbone, self.machine) for name, subject in self.subjects.items()}

    def _best(self, found: Sequence[dict[str, Any]]) -> int:
        """By the mean of the tasks' main scores on validation data."""

        def worth(result: dict[str, Any]) -> float:
            each = [subject.worth(of_task(result, name)["scores"]) for name, subject in self.subjects.items()]
            return sum(each) / len(each)

        usable = [n for n, result in enumerate(found) if not result["collapsed"]] or list(range(len(found)))
        return max(usable, key=lambda n: (worth(found[n]), -n))

    # ---- the end -------------------------------------------------------------------------------------------------

    def _finish(self, found: list[dict[str, Any]], best: int, plain: dict[str, dict[str, Any]]) -> None:
        """Calibrate and save the best seed, then write down all that was seen."""
        from sesame.evaluate.report import write_report

        parts = load_parts(self.run.folder / found[best]["folder"] / "final")
        parts.to(self.machine.device)
        all_results = {}
        for name, subject in self.subjects.items():
            results = self._results(subject, parts, [of_task(seed, name) for seed in found], best, plain[name])
            lines = [json.dumps(line, ensure_ascii=False) for line in results.pop("predictions")]
            write_whole(self._beside(subject, "predictions.jsonl"), "\n".join(lines) + "\n")
            all_results[name] = _plain(results)
        main = all_results[self.first.name]
        if self.several:
            main["data"]["notes"] += self._others(all_results)
        write_json(self.run.folder / "results.json", main | ({"tasks": dict(all_results)} if self.several else {}))
        for name, results in all_results.items():
            write_report(results, self._beside(self.subjects[name], "report.html"))
        parts.tasks = {name: parts.tasks[name] for name in self.subjects}
        card = task_card(self.run.identity, main) + (card_of_all(all_results) if self.several else "")
        self.run.save_final(parts, card)
        for name, results in all_results.items():
            for line in results["summary"]:
                say(f"{f'{name}: ' if self.several else ''}{line}")
        say(f"{self.run.folder / 'report.html'}: the report; {self.run.final}: the model")

    def _results(
        self, subject: Subject, parts: Parts, seeds: list[dict[str, Any]], best: int, plain: dict[str, Any]
    ) -> dict[str, Any]:
        """Everything that was seen of one task; its calibration goes into the model."""
        task = parts.tasks[subject.name]
        results = collect(
            subject.config, subject.metric, subject.parts, subject.items, task, subject.logits(parts), seeds, best, plain,
            adapted=bool(self.wishes.text), adaptable=self.adaptable,
        )  # fmt: skip
        train = Path(subject.asked.train).name
        results |= {
            "title": f"{subject.name}: {train}",
            "model": Path(self.wishes.model).name,
            "strategy": self.transfer.name,
            "created": date.today().isoformat(),
            "settings": self.transfer.to_dict(),
        }
        results["data"] |= {"train": train, "notes": [*subject.notes, *self.notes]}
        task.config = replace(task.config, **results["tuned"])
        return results

    def _others(self, results: dict[str, dict[str, Any]]) -> list[str]:
        """Sentences for the first task's report on where the others' are."""
        found = []
        for name, subject in self.subjects.items():
            if subject is not self.first:
                scores = {part: values[subject.metric]["mean"] for part, values in results[name]["scores"].items()}
                shown = ", ".join(
                    f"{part} {subject.metric} {figure(subject.metric, mean)}" for part, mean in scores.items()
                )
                found.append(f"taught together with {name}: {shown}; see {self._beside(subject, 'report.html').name}")
        return found


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


def _shown(scores: dict[str, dict[str, float]], metric: str) -> str:
    return ", ".join(
        f"{part} {metric} {figure(metric, values.get(metric, math.nan))}" for part, values in scores.items()
    )


def _plain(value: Any) -> Any:
    """As JSON can hold it: no NaN."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
