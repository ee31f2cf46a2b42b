"""A fine-tuned model against labelled rows: scores, their interval over examples, and a second model beside it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sesame.backbones import Backbone
from sesame.checkpoint.loading import load_parts
from sesame.data.examples import Example
from sesame.data.labelled import read_labelled
from sesame.errors import SesameError
from sesame.evaluate.results import tables
from sesame.evaluate.scoring import compare, gold_of, interval, main_score, said_of, score
from sesame.progress import say
from sesame.tasks import Reply, Task
from sesame.tasks.base import TaskConfig
from sesame.tasks.ensemble import check_alike, mean_replies
from sesame.tasks.predict import predict
from sesame.text import Tokenizer
from sesame.train.precision import choose_machine


def judge(
    model: str,
    data: str,
    *,
    task: str | None = None,
    columns: Mapping[str, str] | None = None,
    multi: str | None = None,
    against: str | None = None,
    beside: Sequence[str] = (),
    device: str = "auto",
) -> dict[str, Any]:
    """Scores on `data`; with `against` also the paired difference to another model taught the same kind of task.

    `beside`: models that answer along with the first, by the mean of all probabilities.
    """
    one = _open(model, task, device)
    others = [_open(name, task, device, one.task.config.kind) for name in beside]
    config = one.task.config
    if others:
        check_alike([config, *(other.task.config for other in others)])
    read = read_labelled(data, config.kind, columns, multi=multi)
    for sentence in (read.said, *read.warnings):
        say(sentence)
    examples = read.examples
    _say_foreign(config, examples, data, "the model")
    if config.multi and multi is None and all(isinstance(example.label, str) for example in examples):
        say(
            f"{data}: every row is read as having one label, where {model} gives several; say with --multi what separates "
            "them, such as --multi '|', if some rows have more or none"
        )
    said = one.answers(examples, others)
    gold, metric = gold_of(config, examples), main_score(config)
    low, high = interval(config, metric, gold, said)
    found: dict[str, Any] = {
        "task": config.kind, "metric": metric, "scores": score(config, gold, said), "interval": [low, high],
        "rows": len(examples), **tables(config, gold, said),
    }  # fmt: skip
    if against is not None:
        other = _open(against, task, device, config.kind)
        if other.task.config.kind != config.kind:
            raise SesameError(
                f"{against}: was taught to {other.task.config.kind}, not to {config.kind}; compare like with like"
            )
        if other.task.config.multi != config.multi:
            ways = (
                ("several labels at once", "one label") if other.task.config.multi else ("one label", "several at once")
            )
            raise SesameError(f"{against}: gives {ways[0]}, {model} gives {ways[1]}; compare like with like")
        _say_foreign(other.task.config, examples, data, against)
        labels = tuple(dict.fromkeys([*config.labels, *other.task.config.labels]))
        found |= {
            "against": against,
            "versus": compare(replace(config, labels=labels), metric, gold, said, other.answers(examples)),
        }
    return found


def _say_foreign(config: TaskConfig, examples: Sequence[Example], data: str, model: str) -> None:
    """Labels that the model was not taught count as wrong; who scores the wrong file should hear of it."""
    if config.kind not in ("classify", "tag"):
        return
    each = [(example.label,) if isinstance(example.label, str) else tuple(example.label or ()) for example in examples]
    foreign = sorted({label for labels in each for label in labels} - set(config.labels))
    if foreign:
        rows = sum(not set(labels) <= set(config.labels) for labels in each)
        shown = ", ".join(foreign[:5]) + (" ..." if len(foreign) > 5 else "")
        say(
            f"{data}: {rows:,} of {len(each):,} rows have labels that {model} was not taught ({shown}); these are wrong"
        )


@dataclass(frozen=True)
class _Judged:
    """A model with the task that it is judged by."""

    task: Task
    backbone: Backbone
    tokenizer: Tokenizer

    def answers(self, examples: Sequence[Example], beside: Sequence["_Judged"] = ()) -> list[Any]:
        replies = self.replies(examples)
        if beside:
            replies = mean_replies(self.task.config, [replies, *(other.replies(examples) for other in beside)])
        return said_of(self.task.config, replies)

    def replies(self, examples: Sequence[Example]) -> list[Reply]:
        bare = [replace(example, label=None) for example in examples]  # labels unseen in training count as wrong
        return predict(self.task, self.backbone, self.tokenizer, bare, progress=True)


def _open(model: str, name: str | None, device: str, kind: str = "") -> _Judged:
    """A model with the task of that name; where none is called so, with its only one of that `kind`."""
    parts = load_parts(model)
    if not parts.tasks:
        raise SesameError(
            f"{model}: was not taught any task, so there is nothing to score; use `sesame finetune` first"
        )
    alike = [other for other, task in parts.tasks.items() if task.config.kind == kind]
    if name not in parts.tasks and len(alike) == 1:
        name = alike[0]
    if name is None and len(parts.tasks) > 1:
        raise SesameError(f"{model}: was taught several tasks ({', '.join(parts.tasks)}); choose one with --task")
    if name is not None and name not in parts.tasks:
        raise SesameError(f"{model}: was not taught {name!r} but {', '.join(parts.tasks)}")
    if parts.tokenizer is None:
        raise SesameError(f"{model}: has no tokenizer; put tokenizer.json or vocab.txt beside the weights")
    machine = choose_machine(device)
    task = parts.tasks[name or next(iter(parts.tasks))]
    return _Judged(task.to(machine.device), parts.backbone.to(machine.device), parts.tokenizer)
