"""Two models on the same rows: what cannot be compared is refused, and what is read otherwise than taught is said."""

from pathlib import Path

import pytest

from sesame.checkpoint.folder import Parts, save_parts
from sesame.errors import SesameError
from sesame.evaluate.judge import judge
from sesame.tasks import TaskConfig, build_task
from tests.tasks.toys import encoder, noise, toy_tokenizer, write_csv


def folder(place: Path, multi: bool) -> str:
    tokenizer = toy_tokenizer()
    backbone = encoder(len(tokenizer))
    task = build_task("mood", TaskConfig("classify", ("good", "bad"), multi=multi), backbone)
    noise(task)
    place.mkdir()
    save_parts(place, Parts(backbone, task.heads(), tokenizer, tasks={"mood": task}))
    return str(place)


def test_one_label_is_not_compared_with_several(tmp_path: Path) -> None:
    """A label beside a set of labels is always wrong, or was read letter by letter."""
    one, several = folder(tmp_path / "one", False), folder(tmp_path / "several", True)
    data = str(write_csv(tmp_path / "a.csv", [("text", "label"), ("w1 alpha", "good"), ("w2", "bad")]))
    for model, other in ((one, several), (several, one)):
        assert judge(model, data, against=model, device="cpu")["versus"]["difference"] == 0
        with pytest.raises(SesameError, match="compare like with like"):
            judge(model, data, against=other, device="cpu")


def test_rows_of_one_label_for_a_model_of_several(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = folder(tmp_path / "several", True)
    data = str(write_csv(tmp_path / "a.csv", [("text", "label"), ("w1 alpha", "good|bad"), ("w2", "bad")]))
    judge(model, data, device="cpu")
    assert "--multi" in capsys.readouterr().err
    judge(model, data, multi="|", device="cpu")
    assert "--multi" not in capsys.readouterr().err
