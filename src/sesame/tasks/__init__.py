"""Tasks: what a model can be taught to answer. A new one is one file and one line here."""

from sesame.backbones import Backbone
from sesame.tasks.base import Item, Reply, Task, TaskConfig
from sesame.tasks.choice import Choice
from sesame.tasks.classify import Classify
from sesame.tasks.qa import Answerer
from sesame.tasks.regress import Regress
from sesame.tasks.tag import Tag

TASKS: dict[str, type[Classify] | type[Regress] | type[Tag] | type[Answerer] | type[Choice]] = {
    "classify": Classify,
    "regress": Regress,
    "tag": Tag,
    "qa": Answerer,
    "choice": Choice,
}


def build_task(name: str, config: TaskConfig, backbone: Backbone, dropout: float = 0.1) -> Task:
    return TASKS[config.kind](name, config, backbone, dropout)


__all__ = ["TASKS", "Item", "Reply", "Task", "TaskConfig", "build_task"]
