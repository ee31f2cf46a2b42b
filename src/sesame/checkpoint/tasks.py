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
from sesame.progress import say
from sesame.tasks import Task, TaskConfig, build_task
from sesame.tasks.base import Squeeze
from sesame.tasks.pooled import PooledTask
from sesame.text import Tokenizer
from sesame.text.template import around

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


def way_of(family: ModuleType | None, kind: str) -> dict[str, Any]:
    """How the family's class for such a task gets from states to its last layer, and how that is, as settings of ours."""
    if kind in ("tag", "qa"):  # straight, everywhere
        return {}
    pooling, bias = getattr(family, "POOLING", "pooler"), not getattr(family, "UNBIASED", False)
    return {"pooling": pooling, "squeeze": squeeze_of(family), "bias": bias}


def kinds_of(family: ModuleType, encoder: Any) -> tuple[str, ...]:
    """The kinds of tasks that the family's classes compute as ours do, for a backbone with these settings."""
    found: tuple[str, ...] = family.tasks(encoder) if hasattr(family, "tasks") else family.TASKS
    return found


def leading(tasks: Mapping[str, Task], family: ModuleType, encoder: Any) -> Task | None:
    """The task that a class of transformers can hold: of a kind that the family has a class for, with the same way to it."""
    return next((task for task in tasks.values() if held(task.config, family, encoder)), None)


def held(config: TaskConfig, family: ModuleType, encoder: Any) -> bool:
    """Whether a class of the family computes such a task."""
    plain = config.layers == "last" and not config.both  # classes there read a pair in one order
    return plain and config.kind in kinds_of(family, encoder) and _same_way(config, family)


def _same_way(config: TaskConfig, family: ModuleType) -> bool:
    """Whether states reach the last layer as in the family's classes: [CLS] through its pooler or, where `family.POOLING`
    says so, as it is; where `family.TRANSFORM` is said, [CLS] or the mean through a transform."""
    transform = getattr(family, "TRANSFORM", False)
    if config.transform != transform:
        return False
    if config.kind in ("tag", "qa"):
        return config.bias
    if transform:
        return config.bias and config.pooling in ("cls", "mean")
    way = way_of(family, config.kind)
    if config.pooling != "pooler":
        way["squeeze"] = config.squeeze  # which it has no use for
    return all(getattr(config, name) == value for name, value in way.items())


def padding_of(tokenizer: Tokenizer | None, said: int | None) -> int | None:
    """What fills up rows in classes for tasks, of which GPT's find the end of a text by it and take no batch without.

    The tokenizer's own; else the one that config.json `said`; else one that no text ends with: the token between documents,
    or the one that the template puts first.
    """
    if tokenizer is not None and tokenizer.has("pad"):
        return tokenizer.id("pad")
    if tokenizer is None or said is not None:
        return said
    front, behind = around(tokenizer)
    known = ([tokenizer.id("eos")] if tokenizer.has("eos") else []) + list(front)
    return next((id for id in known if id not in behind[-1:]), None)


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
    if config.kind in ("classify", "tag", "regress"):
        labels = config.labels or ("score",)
        found["id2label"] = {str(number): label for number, label in enumerate(labels)}
        found["label2id"] = {label: number for number, label in enumerate(labels)}
    if config.kind == "classify" and (config.multi or len(config.labels) > 1):  # of one label transformers takes none
        found["problem_type"] = "multi_label_classification" if config.multi else "single_label_classification"
    elif config.kind == "regress" and config.told:
        found["problem_type"] = "regression"
    return found


def read_tasks(
    found: Mapping[str, Any], backbone: Backbone, place: str, family: ModuleType | None = None
) -> dict[str, Task]:
    """The tasks of a folder, still without weights: those that we wrote, or the one that its class of transformers names."""
    own = found.get("sesame")
    if isinstance(own, Mapping) and isinstance(own.get("tasks"), Mapping):
        configs = {name: build(TaskConfig, value, f"{place}: task {name}") for name, value in own["tasks"].items()}
    else:
        try:
            config = _foreign(found, family, place)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise SesameError(f"{place}: id2label does not number the labels ({error}); copy the file again") from error
        if config is not None and found.get("model_type") == "modernbert":
            config = replace(config, transform=True, pooling=found.get("classifier_pooling", "cls"))
        if config is not None and family is not None and (why := _unlike(config, found, family, backbone.config)):
            head = f"{found['architectures'][0]} has a head that no task here computes ({why})"
            say(f"{place}: {head}; left out (`sesame finetune` teaches another)")
            config = None
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


def _unlike(config: TaskConfig, found: Mapping[str, Any], family: ModuleType, encoder: Any) -> str:
    """In what the head that config.json names differs from every task of ours; nothing, if one computes it."""
    if config.kind not in kinds_of(family, encoder):
        return f"of the kind {config.kind!r}"
    if config.kind == "regress" and _count(found, family) > 1:
        return "several numbers for one text"
    return str(family.unlike(found)) if hasattr(family, "unlike") else ""


def _count(found: Mapping[str, Any], family: ModuleType | None) -> int:
    """How many labels there are; a file that does not say it has as many as its family's classes begin with."""
    silent: int = getattr(family, "LABELS", 2)
    return int(found.get("num_labels") or len(found.get("id2label") or ()) or silent)


def _labels(found: Mapping[str, Any], family: ModuleType | None, place: str, alone: bool) -> tuple[str, ...]:
    """The names of the labels by number; if one must stand for its label `alone`, no two are equal."""
    table, count = found.get("id2label") or {}, _count(found, family)
    if len(table) != count:  # transformers, too, believes the number and names the classes anew
        return tuple(f"LABEL_{n}" for n in range(count))
    keys = sorted(table, key=int)
    if [int(key) for key in keys] != list(range(count)):
        shown = ", ".join(keys[:5]) + (" ..." if count > 5 else "")
        say(f"{place}: id2label numbers its labels {shown} and not from 0 to {count - 1}; they are taken in this order")
    names = [str(table[key]) for key in keys]
    if alone and len(set(names)) < count:
        say(f"{place}: id2label has several labels of one name; their numbers are told behind it")
        names = [name if names.count(name) == 1 else f"{name} ({number})" for number, name in enumerate(names)]
    return tuple(names)


def _foreign(found: Mapping[str, Any], family: ModuleType | None, place: str) -> TaskConfig | None:
    name = str((found.get("architectures") or [""])[0]).removesuffix("Simple")  # XLNet's, without a beam
    kind = next((kind for kind, suffix in CLASSES.items() if name.endswith(suffix)), None)
    if kind is None:
        return None
    way = way_of(family, kind)
    if kind == "choice":
        return TaskConfig("choice", **way)
    if kind == "qa":
        return TaskConfig("qa", null=True)
    labels, problem = _labels(found, family, place, kind == "classify"), found.get("problem_type")
    if kind == "classify" and (problem == "regression" or (problem is None and len(labels) == 1)):
        return TaskConfig("regress", labels, told=problem is not None, **way)
    if kind == "classify":
        return TaskConfig("classify", labels, multi=problem == "multi_label_classification", **way)
    return TaskConfig("tag", labels)
