"""The heads of tasks in a checkpoint: which class of transformers holds them, under which names, with which labels.

One head that a class there computes too is written in its place, so `AutoModelForSequenceClassification` and its kin open the
folder with equal logits and the right label names. Others (further tasks, averaged states, mixed layers) are kept beside it
as "sesame.NAME.weight": transformers leaves them alone, `sesame.load` finds them.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from types import MappingProxyType, ModuleType
from typing import Any

from sesame.backbones import Backbone
from sesame.config import build
from sesame.errors import SesameError
from sesame.tasks import Task, TaskConfig, build_task
from sesame.tasks.base import Squeeze
from sesame.tasks.pooled import PooledTask

CLASSES = {
    "classify": "ForSequenceClassification",
    "regress": "ForSequenceClassification",
    "tag": "ForTokenClassification",
    "qa": "ForQuestionAnswering",
    "choice": "ForMultipleChoice",
}
OURS = "sesame."  # before the names of what transformers has no place for


def squeeze_of(family: ModuleType | None) -> Squeeze:
    """What ends the pooler of the family's classes for whole texts."""
    return getattr(family, "SQUEEZE", "tanh")


def leading(tasks: Mapping[str, Task], family: ModuleType) -> Task | None:
    """The task that a class of transformers can hold: of a kind that the family has a class for, with the same way to it."""
    for task in tasks.values():
        config = task.config
        plain = config.layers == "last" and not config.both  # classes there read a pair in one order
        if config.kind in family.TASKS and plain and _same_way(config, family):
            return task
    return None


def _same_way(config: TaskConfig, family: ModuleType) -> bool:
    """Whether states reach the last layer as in the family's classes: [CLS] through its pooler, or, where
    `family.TRANSFORM` is said, [CLS] or the mean through a transform."""
    transform = getattr(family, "TRANSFORM", False)
    if config.transform != transform:
        return False
    if config.kind in ("tag", "qa"):
        return True
    if transform:
        return config.pooling in ("cls", "mean")
    return config.pooling == "pooler" and config.squeeze == squeeze_of(family)


def describe(
    tasks: Mapping[str, Task], lead: Task | None, said: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """What config.json says of the tasks; `said` is what it says already."""
    found: dict[str, Any] = {}
    if tasks:
        ours = {name: asdict(task.config) for name, task in tasks.items()}
        found["sesame"] = {**said.get("sesame", {}), "tasks": ours}
    if lead is None:
        return found
    config = lead.config
    if config.transform:
        found["classifier_pooling"] = "mean" if config.pooling == "mean" else "cls"
    if config.kind in ("classify", "tag"):
        found["id2label"] = {str(number): label for number, label in enumerate(config.labels)}
        found["label2id"] = {label: number for number, label in enumerate(config.labels)}
    if config.kind == "classify":
        found["problem_type"] = "multi_label_classification" if config.multi else "single_label_classification"
    elif config.kind == "regress":
        found |= {"problem_type": "regression", "id2label": {"0": "score"}, "label2id": {"score": 0}}
    return found


def read_tasks(
    found: Mapping[str, Any], backbone: Backbone, place: str, family: ModuleType | None = None
) -> dict[str, Task]:
    """The tasks of a folder, still without weights: those that we wrote, or the one that its class of transformers names."""
    own = found.get("sesame")
    if isinstance(own, Mapping) and isinstance(own.get("tasks"), Mapping):
        configs = {name: build(TaskConfig, value, f"{place}: task {name}") for name, value in own["tasks"].items()}
    else:
        config = _foreign(found, squeeze_of(family))
        if config is not None and found.get("model_type") == "modernbert":
            config = replace(config, transform=True, pooling=found.get("classifier_pooling", "cls"))
        configs = {} if config is None else {config.kind: config}
    tasks = {name: build_task(name, config, backbone) for name, config in configs.items()}
    share_pooler(tasks)
    return tasks


def share_pooler(tasks: Mapping[str, Task]) -> None:
    """Tasks of one model that read [CLS] through BERT's pooler read it through the same one."""
    pooled = [task for task in tasks.values() if isinstance(task, PooledTask) and "pooler" in task.heads()]
    with_pooler = [task for task in pooled if task.pooler is not None]
    for task in with_pooler[1:]:
        if task.choice.width != with_pooler[0].choice.width:
            raise SesameError("tasks that share a model must choose the same layers; set one choice for all")
        task.pooler = with_pooler[0].pooler


def _foreign(found: Mapping[str, Any], squeeze: Squeeze) -> TaskConfig | None:
    name = (found.get("architectures") or [""])[0].removesuffix("Simple")  # XLNet's, without a beam
    kind = next((kind for kind, suffix in CLASSES.items() if name.endswith(suffix)), None)
    if kind is None:
        return None
    table = found.get("id2label") or {}
    count = int(found.get("num_labels") or len(table) or 2)
    if len(table) != count:  # transformers, too, believes the number and names the classes anew
        table = {str(n): f"LABEL_{n}" for n in range(count)}
    labels = tuple(str(table[key]) for key in sorted(table, key=int))
    problem = found.get("problem_type")
    if kind == "classify" and (problem == "regression" or (problem is None and len(labels) == 1)):
        return TaskConfig("regress", squeeze=squeeze)
    if kind == "classify":
        return TaskConfig("classify", labels, multi=problem == "multi_label_classification", squeeze=squeeze)
    if kind == "choice":
        return TaskConfig("choice", squeeze=squeeze)
    return TaskConfig("tag", labels) if kind == "tag" else TaskConfig("qa", null=True)
