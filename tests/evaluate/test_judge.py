"""Models on labelled rows: what cannot be compared is refused, what is read otherwise is said, what is told stays small."""

from pathlib import Path

import pytest

from sesame.checkpoint.folder import Parts
from sesame.checkpoint.saving import save_parts
from sesame.errors import SesameError
from sesame.evaluate.judge import judge
from sesame.evaluate.results import tables
from sesame.evaluate.scoring import figure
from sesame.tasks import TaskConfig, build_task
from tests.tasks.toys import encoder, noise, toy_tokenizer, write_csv


def folder(place: Path, multi: bool = False, name: str = "mood", *others: str) -> str:
    tokenizer = toy_tokenizer()
    backbone = encoder(len(tokenizer))
    configs = {name: TaskConfig("classify", ("good", "bad"), multi=multi)} | dict.fromkeys(
        others, TaskConfig("regress")
    )
    tasks = {name: build_task(name, config, backbone) for name, config in configs.items()}
    for task in tasks.values():
        noise(task)
    heads = {part: head for task in tasks.values() for part, head in task.heads().items()}
    place.mkdir()
    save_parts(place, Parts(backbone, heads, tokenizer, tasks=tasks))
    return str(place)


def test_one_label_is_not_compared_with_several(tmp_path: Path) -> None:
    """A label beside a set of labels is always wrong, or was read letter by letter."""
    one, several = folder(tmp_path / "one", False), folder(tmp_path / "several", True)
    data = str(write_csv(tmp_path / "a.csv", [("text", "label"), ("w1 alpha", "good"), ("w2", "bad")]))
    for model, other in ((one, several), (several, one)):
        assert judge(model, data, against=model, device="cpu")["versus"]["difference"] == 0
        with pytest.raises(SesameError, match="compare like with like"):
            judge(model, data, against=other, device="cpu")


def test_how_many_questions_is_a_count() -> None:
    """Beside exact 0.5000 stood HasAns_total 40.0000."""
    assert [figure(name, 40.0) for name in ("total", "HasAns_total")] == ["40", "40"]
    assert figure("exact", 0.5) == "0.5000"


def test_confusions_of_thousands_of_classes_are_those_that_occur() -> None:
    labels = tuple(f"c{number}" for number in range(3000))
    found = tables(TaskConfig("classify", labels), ["c7", "c2", "new"], ["c2", "c2", "c9"])
    assert found["confusion"] == {
        "labels": ["c2", "c7", "c9", "new"],
        "counts": [[1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0]],
    }
    assert len(found["per_class"]) == 3001
    few = tables(TaskConfig("classify", labels[:3]), ["c0"], ["c0"])
    assert few["confusion"]["labels"] == ["c0", "c1", "c2"]


def test_rows_of_one_label_for_a_model_of_several(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = folder(tmp_path / "several", True)
    data = str(write_csv(tmp_path / "a.csv", [("text", "label"), ("w1 alpha", "good|bad"), ("w2", "bad")]))
    judge(model, data, device="cpu")
    assert "--multi" in capsys.readouterr().err
    judge(model, data, multi="|", device="cpu")
    assert "--multi" not in capsys.readouterr().err
    none = str(
        write_csv(tmp_path / "none.csv", [("text", "label"), ("w1 alpha", "good|bad"), ("w2", ""), ("w3", "bad")])
    )
    with pytest.raises(SesameError, match=r"none.csv:3: 1 of 3 rows have no label.* --multi .* if none is an answer"):
        judge(model, none, device="cpu")
    assert judge(model, none, multi="|", device="cpu")["rows"] == 3


def test_a_model_of_several_tasks_beside_one_of_one(tmp_path: Path) -> None:
    """The task has another name there, or none was asked for: the only one of its kind is meant."""
    one, both = folder(tmp_path / "one"), folder(tmp_path / "both", False, "tone", "price")
    data = str(write_csv(tmp_path / "a.csv", [("text", "label"), ("w1 alpha", "good"), ("w2", "bad")]))
    assert judge(one, data, against=both, device="cpu")["versus"]["difference"] == 0
    assert judge(both, data, task="tone", against=one, device="cpu")["versus"]["difference"] == 0
    prices = str(write_csv(tmp_path / "b.csv", [("text", "label"), ("w1 alpha", 1), ("w2", 2)]))
    with pytest.raises(SesameError, match="was not taught 'price' but mood"):
        judge(both, prices, task="price", against=one, device="cpu")
