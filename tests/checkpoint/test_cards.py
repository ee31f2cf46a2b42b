"""What a README says of transformers holds: the class that it names opens the folder, and has the head or has it not."""

import re
from pathlib import Path
from typing import Any

import pytest
import transformers

from sesame.backbones import TaggerConfig, build_backbone
from sesame.checkpoint.cards import task_card
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.saving import save_parts
from sesame.tasks import TaskConfig, build_task
from tests.tasks.toys import encoder

RESULTS: dict[str, Any] = {
    "task": "classify", "metric": "accuracy", "title": "classify: rows.csv", "model": "bert", "strategy": "frozen",
    "scores": {}, "baselines": {}, "data": {"train": "rows.csv", "rows": {"train": 9}}, "seeds": [1], "best": 0,
}  # fmt: skip
KINDS = TaskConfig("classify", ("fruit", "metal"))
MEAN, LOWER = (TaskConfig("classify", ("fruit", "metal"), **way) for way in ({"pooling": "mean"}, {"layers": "1"}))  # type: ignore[arg-type]
TAGS = TaskConfig("tag", ("O", "B-PER"))


def card_of(folder: Path, *configs: TaskConfig) -> str:
    backbone = encoder(97)
    tasks = {config.kind: build_task(config.kind, config, backbone) for config in configs}
    heads = {name: head for task in tasks.values() for name, head in task.heads().items()}
    save_parts(folder, Parts(backbone, heads, tasks=tasks), card=task_card({"run": {"seed": 0}}, RESULTS))
    return (folder / "README.md").read_text()


def opened(card: str, folder: Path) -> Any:
    (name,) = re.findall(r"`transformers\.(\w+)\.from_pretrained\(folder\)`", card)
    model, told = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    assert all(
        name.startswith("pooler.") for name in told["missing_keys"]
    )  # which BertModel always has, and nobody reads
    return model


@pytest.mark.parametrize(("config", "name"), [(KINDS, "ForSequenceClassification"), (TAGS, "ForTokenClassification")])
def test_the_class_that_holds_the_head(config: TaskConfig, name: str, tmp_path: Path) -> None:
    card = card_of(tmp_path, config)
    model = opened(card, tmp_path)
    assert type(model).__name__ == f"Bert{name}"
    assert tuple(model.config.id2label.values()) == config.labels
    assert card.endswith("` opens it too.\n")


@pytest.mark.parametrize("config", [MEAN, LOWER])
def test_no_class_holds_the_head(config: TaskConfig, tmp_path: Path) -> None:
    """Of a frozen BERT, whose states are averaged, AutoModelForSequenceClassification makes a random head."""
    card = card_of(tmp_path, config)
    assert "No class of transformers computes what it was taught" in card
    assert type(opened(card, tmp_path)).__name__ == "BertModel"


def test_one_of_several_tasks(tmp_path: Path) -> None:
    card = card_of(tmp_path, MEAN, TAGS)
    assert type(opened(card, tmp_path)).__name__ == "BertForTokenClassification"
    assert "and answers tag; for classify take Sesame" in card


def test_a_kind_of_our_own(tmp_path: Path) -> None:
    save_parts(tmp_path, Parts(build_backbone(TaggerConfig(vocab=97))), card="# A tagger\n")
    assert (tmp_path / "README.md").read_text() == "# A tagger\n\nNo class of transformers computes it.\n"
