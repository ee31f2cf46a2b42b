"""Several tasks, one encoder: the tasks of a run, each with its data.

    sesame finetune MODEL --task classify --train a.csv --also tag:b.conll --also mood=regress:c.tsv:c-valid.tsv

Each task has a head of its own, the encoder (and the pooler, where heads read [CLS] through one) is shared. A step belongs to
one task, drawn with p(task) ~ size^alpha: see `tasks/loader.py`. What a run does with one task it does with each of several;
the seed is best whose tasks' main scores on validation data are best on average.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from sesame.backbones import Backbone
from sesame.checkpoint.folder import Parts
from sesame.data.build import UNKNOWN
from sesame.data.examples import Example
from sesame.data.labelled import read_labelled
from sesame.data.split import check_training, describe, stratified
from sesame.errors import SesameError
from sesame.evaluate.scoring import LOWER_IS_BETTER, gold_of, main_score, said_of, score
from sesame.finetuning.one_seed import Lesson, predict
from sesame.progress import say
from sesame.tasks import TASKS, Item, Reply, Task, TaskConfig, build_task
from sesame.tasks.answer import answer
from sesame.tasks.qa import LONGEST, unheld, untold
from sesame.tasks.windows import Inputs
from sesame.text import Tokenizer
from sesame.train.precision import Machine

CURVE = 500  # validation examples of a point on the learning curve
SHARE = 0.1  # kept for validation when none is given
_ALSO = re.compile(r"(?:([^=:]*)=)?([^=:]*):([^:]+)(?::([^:]*))?(?::([^:]*))?")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
# Other parts of a checkpoint and columns of the log; PyTorch's own words cannot name a part of a module either.
_TAKEN = {
    "backbone", "mlm", "clm", "nsp", "sop", "dialogue", "rtd", "plm", "lm", "seq2seq", "pooler",
    "loss", "norm", "rate", "padding", "tokens_per_second", "step", "seconds", "mfu", "memory", "wait",
}  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """A task as the user asks for it."""

    name: str
    kind: str
    train: str
    valid: str | None = None
    test: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    multi: str | None = None
    metric: str | None = None

    def files(self) -> dict[str, str]:
        named = {"train": self.train, "valid": self.valid, "test": self.test}
        return {part: file for part, file in named.items() if file}


def parse_also(text: str) -> Asked:
    """`[NAME=]KIND:TRAIN[:VALID[:TEST]]`; without a name the task is called by its kind."""
    found = _ALSO.fullmatch(text)
    if found is None:
        raise SesameError(f"--also {text}: write [NAME=]KIND:TRAIN[:VALID[:TEST]], such as tag:train.conll")
    name, kind, train, valid, test = found.groups()
    if kind not in TASKS:
        raise SesameError(f"--also {text}: {kind!r} is no kind of task; choose one of {', '.join(TASKS)}")
    return Asked(kind if name is None else name, kind, train, valid or None, test or None)


def check_names(asked: Sequence[Asked]) -> None:
    """Every task needs a name of its own, one that a checkpoint can hold."""
    seen: set[str] = set()
    for one in asked:
        if not _NAME.fullmatch(one.name):
            raise SesameError(f"task {one.name!r}: a name has letters, digits, - and _ only, and starts with a letter")
        if one.name in _TAKEN or hasattr(nn.ModuleDict, one.name):
            raise SesameError(f"task {one.name!r}: this name means something else already; choose another")
        if one.name in seen:
            raise SesameError(
                f"two tasks are called {one.name!r}; name one of them, as in --also NAME={one.kind}:{one.train}"
            )
        seen.add(one.name)


class Subject:
    """A task with its data: read, split, encoded once for all seeds, and scored."""

    config: TaskConfig
    metric: str
    inputs: Inputs
    items: dict[str, list[Item]]
    lesson: Lesson

    def __init__(self, asked: Asked, seed: int) -> None:
        self.asked, self.name, self.kind, self.seed = asked, asked.name, asked.kind, seed
        self.notes: list[str] = []
        self.parts: dict[str, list[Example]] = {}  # "train", "valid", "test"

    # ---- data ----------------------------------------------------------------------------------------------------

    def read(self) -> None:
        for part, file in self.asked.files().items():
            self.parts[part] = self._file(file)
            if part == "train":
                check_training(self.parts["train"], self.kind)
        if "valid" not in self.parts:
            everything = self.parts["train"]
            kept, held = stratified(everything, SHARE, self.seed)
            if not held:
                raise SesameError(
                    f"{self.asked.train}: has no rows to spare for validation, each class or text occurs once; "
                    "give more rows, or others with --valid"
                )
            self.parts["train"], self.parts["valid"] = [everything[i] for i in kept], [everything[i] for i in held]
            self.note(f"no --valid: kept {len(held):,} of {len(everything):,} rows aside, stratified, seed {self.seed}")
        for sentence in describe(self.parts["train"], self.parts["valid"], self.parts.get("test", []), self.kind):
            self.note(sentence)

    def _file(self, file: str) -> list[Example]:
        found = read_labelled(file, self.kind, self.asked.columns, multi=self.asked.multi)
        say(found.said)
        for warning in found.warnings:
            self.note(warning)
        return found.examples

    def note(self, sentence: str) -> None:
        say(sentence)
        self.notes.append(sentence)

    def encode(self, config: TaskConfig, backbone: Backbone, tokenizer: Tokenizer) -> None:
        """Examples to windows of at most `config.length` tokens."""
        self.config = config
        self.metric = self._metric()
        self.inputs = Inputs(tokenizer, self.config.length, self.config.overlap, backbone.segment_kinds)
        task = build_task(self.name, self.config, backbone)
        self.items = {part: task.items(self._known(part), self.inputs) for part in self.parts}
        self.lesson = Lesson(
            self.config, task.training_items(self.items["train"]), self.items["valid"], self.inputs.pad
        )
        windows = sum(len(item.windows) for item in self.items["train"])
        long = sum(len(set(item.slots)) < len(item.windows) for item in self.items["train"])
        if long:
            self.note(
                f"{long:,} training texts are longer than {self.config.length} tokens: "
                f"read in {windows:,} overlapping windows in all"
            )
        if self.inputs.shortened:
            self.note(f"{self.inputs.shortened:,} texts had to be shortened to fit beside the other one")
        if self.kind == "qa":
            self._note_answers()
        self._note_unknown(tokenizer)

    def _note_answers(self) -> None:
        rows = zip(self.items["train"], self.parts["train"], strict=True)
        places = [example.place for item, example in rows if unheld(item, example)]
        if places:
            self.note(
                f"warning: no window holds the whole answer to {len(places):,} training questions, learnt as having "
                f"none, first {places[0]}; more overlap (--set task.overlap=0.5) or shorter answers help"
            )
        rows = zip(self.items["train"], self.parts["train"], strict=True)
        if long := [example.place for item, example in rows if untold(item)]:
            self.note(
                f"warning: the answers to {len(long):,} training questions are longer than {LONGEST} tokens, and such are "
                f"never given, first {long[0]}; mark the words that matter in them"
            )

    def _note_unknown(self, tokenizer: Tokenizer) -> None:
        """A model of another language or script sees nothing but unknown words, and would only seem to learn badly."""
        if not tokenizer.has("unk"):
            return
        unknown = tokenizer.id("unk")
        windows = [window for item in self.items["train"] for window in item.windows]
        pieces = Counter(window.ids[at] == unknown for window in windows for at in window.body)
        share = pieces[True] / max(1, pieces.total())
        if share > UNKNOWN:
            self.note(
                f"warning: {100 * share:.0f} % of the tokens of the training texts are unknown words, and teach nothing: "
                "`sesame doctor TEXT --tokenizer MODEL` tells which; take a model that was trained on such text"
            )

    def _metric(self) -> str:
        """The score that decides; a wrong name is told before an hour is spent."""
        chosen = self.asked.metric or main_score(self.config)
        gold = gold_of(self.config, self.parts["valid"])
        right = [answers[0] if answers else "" for answers in gold] if self.kind == "qa" else gold
        known = score(self.config, gold, right)
        if chosen not in known:
            raise SesameError(f"--metric {chosen}: this task is scored by {', '.join(known)}")
        return chosen

    def _known(self, part: str) -> list[Example]:
        """Labels that training has never seen cannot be given: such examples stay in, and count as wrong."""
        if part == "train" or self.kind not in ("classify", "tag"):
            return self.parts[part]
        known = set(self.config.labels)

        def seen(label: Any) -> bool:
            return label in known if isinstance(label, str) else all(name in known for name in label)

        return [example if seen(example.label) else replace(example, label=None) for example in self.parts[part]]

    def splits(self) -> list[str]:
        return [part for part in ("valid", "test") if part in self.parts]

    # ---- answers -------------------------------------------------------------------------------------------------

    def logits(self, parts: Parts) -> dict[str, list[Tensor]]:
        """Of validation rows, and of test rows if there are some."""
        task = parts.tasks[self.name]
        return {part: predict(task, parts.backbone, self.items[part], self.inputs.pad) for part in self.splits()}

    def answers(self, task: Task, part: str, logits: Sequence[Tensor]) -> list[Reply]:
        return answer(task, self.parts[part], self.items[part], logits)

    def look(self, task: Task, backbone: Backbone, machine: Machine) -> float:
        """The main score on some of the validation examples."""
        items, examples = self.items["valid"][:CURVE], self.parts["valid"][:CURVE]
        replies = answer(task, examples, items, predict(task, backbone, items, self.inputs.pad, machine))
        return score(self.config, gold_of(self.config, examples), said_of(self.config, replies))[self.metric]

    def worth(self, scores: Mapping[str, Mapping[str, float]]) -> float:
        """The main score on validation data; higher is better."""
        return (-1.0 if self.metric in LOWER_IS_BETTER else 1.0) * scores["valid"][self.metric]


def of_task(seed: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What a seed reached, seen from one of its tasks."""
    if "tasks" not in seed:
        return dict(seed)
    common = {key: value for key, value in seed.items() if key not in ("tasks", "curves")}
    return {**common, **seed["tasks"][name], "curve": seed["curves"].get(name, [])}


def card_of_all(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The part of a model card that names every task of a model that was taught several."""
    rows = [
        f"| {name} | {found['task']} | {Path(found['data']['train']).name} | {part} {found['metric']} "
        f"{values[found['metric']]['mean']:.4f} |"
        for name, found in results.items()
        for part, values in found["scores"].items()
    ]
    first = next(iter(results))
    return (
        f"\nThis model was taught {len(results)} tasks at once; `sesame.load(folder).predict(texts, task={first!r})` "
        "chooses one.\n\n| task | kind | trained on | mean over seeds |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )
