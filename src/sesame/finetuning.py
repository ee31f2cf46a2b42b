"""Labels in, a model out whose score carries its uncertainty.

    read, split, look at the data -> baselines -> the same training with several seeds -> scores with intervals -> report

    OUT/recipe.toml  results.json  report.html  predictions.jsonl
    OUT/seed-N/      a run each (checkpoints only while it trains), result.json
    OUT/final/       the seed that is best on the validation data

Scores of the test data are computed, but nothing is ever chosen by them.
"""

import hashlib
import json
import math
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any, Literal

import torch

from sesame import chance
from sesame.checkpoint.cards import task_card
from sesame.checkpoint.folder import Parts, load_parts
from sesame.checkpoint.run import Run
from sesame.data.examples import Example
from sesame.data.labelled import read_labelled
from sesame.data.split import check_training, describe, stratified
from sesame.errors import SesameError
from sesame.evaluate.baselines import baselines
from sesame.evaluate.results import collect
from sesame.evaluate.scoring import LOWER_IS_BETTER, collapsed, gold_of, main_score, said_of, score
from sesame.files import read_json, write_json, write_whole
from sesame.one_seed import Lesson, SeedRun, keep, predict
from sesame.progress import bar, say
from sesame.tasks import Task, TaskConfig, build_task
from sesame.tasks.answer import answer
from sesame.tasks.windows import Inputs
from sesame.train.precision import Machine, Precision, choose_machine
from sesame.transfer import Transfer, resolve_transfer

FEW = 10_000  # below so many examples one seed says little
SEEDS = 5
TRIES = 3  # trainings of a seed that collapses
CURVE = 500  # validation examples of a point on the learning curve
SHARE = 0.1  # kept for validation when none is given


@dataclass(frozen=True)
class Wishes:
    """What the user asks of `sesame finetune`."""

    model: str
    task: Literal["classify", "regress", "tag", "qa", "choice"]
    train: str
    out: Path
    valid: str | None = None
    test: str | None = None
    strategy: str = "full"
    seeds: int | None = None  # None: 5 for small sets, 1 for large ones
    seed: int = 0  # the first one
    columns: dict[str, str] = field(default_factory=dict)
    multi: str | None = None  # what separates several labels in one cell
    metric: str | None = None  # decides which seed is best
    settings: Sequence[str] = ()
    baselines: bool = True
    device: str = "auto"
    precision: Precision = "auto"
    save_minutes: float = 5.0
    save_steps: int = 0
    name: str | None = None  # of the task in the checkpoint; by default its kind


def finetune(wishes: Wishes) -> Path:
    """Teach a model a task; gives the folder of the best seed."""
    transfer = resolve_transfer(wishes.strategy, wishes.settings)
    files = [Path(file) for file in (wishes.train, wishes.valid, wishes.test) if file]
    identity = _identity(wishes, transfer)
    machine = choose_machine(wishes.device, wishes.precision)
    with Run.claim(wishes.out, identity) as run:
        if (run.final / "config.json").is_file():
            say(f"{run.final}: this run is finished already; nothing to do")
            return run.final
        run.bind([_content(file) for file in files])
        _Job(wishes, transfer, machine, run).run_all()
    return run.final


def _identity(wishes: Wishes, transfer: Transfer) -> dict[str, Any]:
    kept = {"model": wishes.model, "task": wishes.task, "seed": wishes.seed, "columns": wishes.columns}
    for key in ("train", "valid", "test"):
        if getattr(wishes, key) is not None:
            kept[key] = str(Path(getattr(wishes, key)).resolve())
    for key in ("seeds", "metric", "multi", "name"):
        if getattr(wishes, key) is not None:
            kept[key] = getattr(wishes, key)
    return {"transfer": transfer.to_dict(), "run": kept}


def _content(file: Path) -> str:
    """A sum of the file, so that a run never goes on with other data."""
    if not file.is_file():
        raise SesameError(f"{file}: no such file; check the name")
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "blake2b").hexdigest()[:32]


class _Job:
    """One process's work on a fine-tuning."""

    config: TaskConfig
    parts: dict[str, list[Example]]  # "train", "valid", "test"

    def __init__(self, wishes: Wishes, transfer: Transfer, machine: Machine, run: Run) -> None:
        self.wishes, self.transfer, self.machine, self.run = wishes, transfer, machine, run
        self.name = wishes.name or wishes.task
        self.notes: list[str] = []

    def run_all(self) -> None:
        self._read()
        self._encode()
        plain = self._baselines()
        seeds = self.wishes.seeds or (SEEDS if len(self.parts["train"]) < FEW else 1)
        if self.transfer.adapt.strategy == "frozen":
            keep(self.wishes.model, {self.name: self.lesson}, self.machine)
        found = [self._seed(self.wishes.seed + number, number, seeds) for number in range(seeds)]
        best = self._best(found)
        say(f"best on validation: seed {found[best]['seed']}")
        self._finish(found, best, plain)

    # ---- data ----------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        wishes = self.wishes
        self.parts = {"train": self._file(wishes.train)}
        check_training(self.parts["train"], wishes.task)
        for part, file in (("valid", wishes.valid), ("test", wishes.test)):
            if file:
                self.parts[part] = self._file(file)
        if not wishes.valid:
            kept, held = stratified(self.parts["train"], SHARE, wishes.seed)
            everything = self.parts["train"]
            self.parts["train"], self.parts["valid"] = [everything[i] for i in kept], [everything[i] for i in held]
            self._note(
                f"no --valid: kept {len(held):,} of {len(everything):,} rows aside, stratified, seed {wishes.seed}"
            )
        for sentence in describe(self.parts["train"], self.parts["valid"], self.parts.get("test", []), wishes.task):
            self._note(sentence)

    def _file(self, file: str) -> list[Example]:
        found = read_labelled(file, self.wishes.task, self.wishes.columns, multi=self.wishes.multi)
        say(found.said)
        for warning in found.warnings:
            self._note(warning)
        return found.examples

    def _note(self, sentence: str) -> None:
        say(sentence)
        self.notes.append(sentence)

    def _encode(self) -> None:
        start = load_parts(self.wishes.model)
        if start.tokenizer is None:
            raise SesameError(
                f"{self.wishes.model}: has no tokenizer; put tokenizer.json or vocab.txt beside the weights"
            )
        self.config = task_config(self.wishes.task, self.parts["train"], self.transfer)
        self.metric = self.wishes.metric or main_score(self.config)
        limit = self.config.length or (
            512 if start.backbone.config.positions == "rotary" else start.backbone.config.max_length
        )
        if start.backbone.config.positions != "rotary":
            limit = min(limit, start.backbone.config.max_length)
        self.config = replace(self.config, length=limit)
        self.inputs = Inputs(start.tokenizer, limit, self.config.overlap)
        task = build_task(self.name, self.config, start.backbone)
        known = {part: self._known(part) for part in self.parts}
        self.items = {part: task.items(examples, self.inputs) for part, examples in known.items()}
        self.lesson = Lesson(
            self.config, task.training_items(self.items["train"]), self.items["valid"], self.inputs.pad
        )
        windows = sum(len(item.windows) for item in self.items["train"])
        long = sum(len(set(item.slots)) < len(item.windows) for item in self.items["train"])
        if long:
            self._note(
                f"{long:,} training texts are longer than {limit} tokens: read in {windows:,} overlapping windows in all"
            )
        if self.inputs.shortened:
            self._note(f"{self.inputs.shortened:,} texts beside a long one had to be shortened to half of a window")
        count = sum(p.numel() for p in start.backbone.parameters())
        steps = self.transfer.steps(len(self.lesson.train))
        say(
            f"{self.wishes.task} on {len(self.parts['train']):,} examples, strategy {self.transfer.name}: "
            f"{count / 1e6:.1f} M parameters, {steps:,} steps of {self.transfer.batch} "
            f"on {self.machine.device.type} in {self.machine.precision}"
        )

    def _known(self, part: str) -> list[Example]:
        """Labels that training has never seen cannot be given: such examples stay in, and count as wrong."""
        if part == "train" or self.wishes.task not in ("classify", "tag"):
            return self.parts[part]
        known = set(self.config.labels)

        def seen(label: Any) -> bool:
            return label in known if isinstance(label, str) else all(name in known for name in label)

        return [example if seen(example.label) else replace(example, label=None) for example in self.parts[part]]

    # ---- baselines and seeds -------------------------------------------------------------------------------------

    def _splits(self) -> list[str]:
        return [part for part in ("valid", "test") if part in self.parts]

    def _baselines(self) -> dict[str, Any]:
        """Answers of simple methods, and their scores."""
        if not self.wishes.baselines:
            return {}
        kept = self.run.folder / "baselines.json"
        if kept.is_file():
            return dict(read_json(kept))
        found: dict[str, Any] = {}
        for part in self._splits():
            gold = gold_of(self.config, self.parts[part])
            for name, said in baselines(self.wishes.task, self.parts["train"], self.parts[part]).items():
                entry = found.setdefault(name, {"scores": {}, "said": {}})
                entry["scores"][part], entry["said"][part] = score(self.config, gold, said), said
        for name, entry in found.items():
            say(f"baseline {name}: {_shown(entry['scores'], self.metric)}")
        write_json(kept, found)
        return found

    def _seed(self, seed: int, number: int, seeds: int) -> dict[str, Any]:
        """Train one seed, or take what it reached before; one that collapses is trained again with other chance."""
        folder = self.run.folder / f"seed-{seed}"
        if (folder / "result.json").is_file():
            return dict(read_json(folder / "result.json"))
        began = time.monotonic()
        for attempt in range(TRIES):
            place = folder if attempt == 0 else folder / f"again-{attempt}"
            found = self._attempt(seed, attempt, place, f"seed {number + 1} of {seeds}")
            if not found["collapsed"]:
                break
            if attempt + 1 < TRIES:
                self._note(f"seed {seed} collapsed to one answer; training it again with other chance")
        else:
            self._note(f"seed {seed} collapsed to one answer {TRIES} times; lower the rate or give more labels")
        found |= {
            "seconds": round(time.monotonic() - began, 1),
            "attempts": attempt + 1,
            "folder": str(place.relative_to(self.run.folder)),
        }
        say(f"seed {seed}: {_shown(found['scores'], self.metric)}")
        write_json(folder / "result.json", found)
        return found

    def _attempt(self, seed: int, attempt: int, folder: Path, shown_as: str) -> dict[str, Any]:
        key = chance.key(seed, attempt) >> 1 if attempt else seed
        run = SeedRun(
            self.wishes.model, {self.name: self.lesson}, self.transfer, self.machine, key,
            save_minutes=self.wishes.save_minutes, save_steps=self.wishes.save_steps,
        )  # fmt: skip
        identity = {**self.run.identity, "attempt": {"seed": seed, "number": attempt}}
        with Run.claim(folder, identity) as inner, bar(shown_as, run.steps()) as shown:
            done = (inner.final / "config.json").is_file()
            trained = load_parts(inner.final) if done else run.train(inner, self._look, shown)
            said = {part: self._answers(trained, part) for part in self._splits()}
            inner.save_final(trained, "")
            shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        scores = {
            part: score(self.config, gold_of(self.config, self.parts[part]), said_of(self.config, replies))
            for part, replies in said.items()
        }
        gold = gold_of(self.config, self.parts["valid"])
        return {
            "seed": seed,
            "scores": scores,
            "collapsed": collapsed(self.config, gold, said_of(self.config, said["valid"])),
            **_curves(folder / "metrics.jsonl"),
        }

    def _look(self, tasks: dict[str, Task], backbone: Any) -> float:
        """The main score on some of the validation examples."""
        task = tasks[self.name]
        items, examples = self.items["valid"][:CURVE], self.parts["valid"][:CURVE]
        replies = answer(task, examples, items, predict(task, backbone, items, self.inputs.pad, self.machine))
        return score(self.config, gold_of(self.config, examples), said_of(self.config, replies))[self.metric]

    def _answers(self, parts: Parts, part: str) -> list[dict[str, Any]]:
        task = parts.tasks[self.name]
        logits = predict(task, parts.backbone, self.items[part], self.inputs.pad, self.machine)
        return answer(task, self.parts[part], self.items[part], logits)

    def _best(self, found: Sequence[dict[str, Any]]) -> int:
        sign = -1.0 if self.metric in LOWER_IS_BETTER else 1.0
        for result in found:
            if self.metric not in result["scores"]["valid"]:
                known = ", ".join(result["scores"]["valid"])
                raise SesameError(f"--metric {self.metric}: this task is scored by {known}")
        usable = [n for n, result in enumerate(found) if not result["collapsed"]] or list(range(len(found)))
        return max(usable, key=lambda n: (sign * found[n]["scores"]["valid"][self.metric], -n))

    # ---- the end -------------------------------------------------------------------------------------------------

    def _finish(self, found: list[dict[str, Any]], best: int, plain: dict[str, Any]) -> None:
        """Calibrate and save the best seed, then write down all that was seen."""
        from sesame.evaluate.report import write_report

        parts = load_parts(self.run.folder / found[best]["folder"] / "final")
        parts.backbone.to(self.machine.device)
        task = parts.tasks[self.name].to(self.machine.device)
        logits = {
            part: predict(task, parts.backbone, self.items[part], self.inputs.pad, self.machine)
            for part in self._splits()
        }
        results = collect(self.config, self.metric, self.parts, self.items, task, logits, found, best, plain)
        results |= {
            "title": f"{self.wishes.task}: {Path(self.wishes.train).name}",
            "model": Path(self.wishes.model).name,
            "strategy": self.transfer.name,
            "created": date.today().isoformat(),
            "settings": self.transfer.to_dict(),
        }
        results["data"] |= {"train": Path(self.wishes.train).name, "notes": self.notes}
        predictions = results.pop("predictions")
        lines = [json.dumps(line, ensure_ascii=False) for line in predictions]
        write_whole(self.run.folder / "predictions.jsonl", "\n".join(lines) + "\n")
        write_json(self.run.folder / "results.json", _plain(results))
        write_report(_plain(results), self.run.folder / "report.html")
        task.config = replace(task.config, **results["tuned"])
        parts.tasks = {self.name: task}
        self.run.save_final(parts, task_card(self.run.identity, results))
        for line in results["summary"]:
            say(line)
        say(f"{self.run.folder / 'report.html'}: the report; {self.run.final}: the model")


def task_config(kind: str, train: Sequence[Example], transfer: Transfer) -> TaskConfig:
    """What follows from the data: label names, several labels at once, pairs, unanswerable questions, the scale of scores."""
    labels: tuple[str, ...] = ()
    multi = kind == "classify" and any(not isinstance(example.label, str) for example in train)
    if kind == "classify":
        names = {
            name
            for example in train
            for name in ((example.label,) if isinstance(example.label, str) else example.label)
        }
        labels = tuple(sorted(names, key=_natural))
    elif kind == "tag":
        labels = ("O", *sorted({tag for example in train for tag in example.label} - {"O"}, key=lambda t: (t[2:], t)))
    scale = (0.0, 1.0)
    if kind == "regress":
        values = torch.tensor([float(example.label) for example in train], dtype=torch.float64)
        scale = (float(values.mean()), float(values.std()) or 1.0)
    return TaskConfig(
        kind=kind,  # type: ignore[arg-type]
        labels=labels,
        multi=multi,
        pair=any(example.pair is not None for example in train),
        layers=transfer.task.layers,
        pooling=transfer.task.pooling,
        length=transfer.task.length,
        overlap=transfer.task.overlap,
        null=kind == "qa" and any(not example.label for example in train),
        scale=scale,
    )


def _natural(name: str) -> tuple[int, float, str]:
    """Labels that are numbers in the order of numbers."""
    try:
        value = float(name)
    except ValueError:
        return 1, 0.0, name
    return (0, value, name) if math.isfinite(value) else (1, 0.0, name)


def _curves(metrics: Path) -> dict[str, Any]:
    lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()] if metrics.is_file() else []
    return {
        "loss": [[line["step"], line["loss"]] for line in lines if "loss" in line],
        "curve": [[line["step"], line["valid"]] for line in lines if "valid" in line],
    }


def _shown(scores: dict[str, dict[str, float]], metric: str) -> str:
    return ", ".join(f"{part} {metric} {values.get(metric, math.nan):.4f}" for part, values in scores.items())


def _plain(value: Any) -> Any:
    """As JSON can hold it: no NaN."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
