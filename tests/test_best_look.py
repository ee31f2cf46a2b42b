"""The best look at held-out text: kept where it was asked for, told where a run has passed it by."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from benchmarks.kill_resume import make_text, weights
from typer.testing import CliRunner

import sesame
from sesame.checkpoint.run import Run
from sesame.cli import app
from sesame.errors import SesameError
from sesame.pretraining.best import passed_by
from sesame.runs import read_run
from sesame.train.state import State
from tests.crashes import crash_while_saving

pytestmark = pytest.mark.usefixtures("one_thread_for_all")

SETTINGS = (
    "backbone.width=32", "backbone.heads=2", "backbone.depth=1", "backbone.max_length=32", "tokenizer.size=400",
    "stages.main.batch=8", "stages.main.length=32", "optimizer.rate=0.02", "evaluation.every=0.1",
)  # fmt: skip


@pytest.fixture
def texts(tmp_path: Path) -> tuple[Path, Path]:
    """A few random sentences, which can be learnt by heart and nothing else, and others to judge by."""
    luck = random.Random(1)
    words = [a + b for a in "bdfgklmn" for b in ("ato", "eli", "iru", "omi")]
    files = tmp_path / "few.txt", tmp_path / "others.txt"
    for file in files:
        file.write_text("\n\n".join(" ".join(luck.choices(words, k=20)) for _ in range(12)) + "\n", encoding="utf-8")
    return files


def run(texts: tuple[Path, Path], name: str, *more: str, steps: int = 100, **wishes: Any) -> Path:
    text, valid = texts
    out = text.parent / name
    sesame.pretrain("gpt", text, out, valid=[valid], size="tiny", steps=steps, settings=[*SETTINGS, *more], **wishes)
    return out


def looks(folder: Path) -> dict[int, float]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["held_out"]["clm"] for line in lines if "held_out" in line}


def test_the_finished_model_is_that_of_the_best_look(
    texts: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run(texts, "run", "evaluation.best=true")
    seen = looks(folder)
    best = min(seen, key=seen.__getitem__)
    assert 0 < best < max(seen) == 100
    assert f"lowest at step {best} of 100; the finished model is that one" in capsys.readouterr().err
    assert weights(folder) == (folder / "checkpoints" / f"step-{best}" / "model.safetensors").read_bytes()
    shown = read_run(folder)
    assert (shown.step, shown.kept, shown.last()) == (100, best, {"clm": seen[best]})
    assert json.loads(json.dumps(shown.to_json()))["kept"] == best
    console = CliRunner().invoke(app, ["runs", str(folder)]).output
    assert f"clm {seen[best]:.3f}" in console
    assert f"of step {best}" in console
    (folder / "final").rename(folder / "gone")
    assert (read_run(folder).kept, read_run(folder).last()) == (None, {"clm": seen[100]})
    (folder / "gone").rename(folder / "final")
    card = (folder / "final" / "README.md").read_text()
    assert f"{best} steps" in card
    assert f"| clm | {seen[best]:.4f} |" in card


def test_a_run_that_was_killed_knows_its_best_look(texts: tuple[Path, Path]) -> None:
    whole = run(texts, "whole", "evaluation.best=true", save_steps=30)
    with crash_while_saving(after=3):
        run(texts, "crashed", "evaluation.best=true", save_steps=30)
    assert weights(run(texts, "crashed", "evaluation.best=true", save_steps=30)) == weights(whole)


def test_a_best_look_that_was_damaged_does_not_keep_a_run_from_its_end(
    texts: tuple[Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    save = Run.save

    def damage(run: Run, *rest: Any) -> Path:
        folder = save(run, *rest)
        (folder / "model.safetensors").write_bytes(b"cut")
        return folder

    monkeypatch.setattr(Run, "save", damage)
    folder = run(texts, "run", "evaluation.best=true")
    assert "the best, is damaged or gone; the finished model is the last one" in capsys.readouterr().err
    assert "100 steps" in (folder / "final" / "README.md").read_text()


def test_without_it_the_last_one_is_and_the_run_says_what_it_passed(
    texts: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run(texts, "run")
    seen = looks(folder)
    best = min(seen, key=seen.__getitem__)
    assert f"held-out loss was lowest at step {best} ({seen[best]:.3f}, now {seen[100]:.3f})" in capsys.readouterr().err
    assert weights(folder) != weights(run(texts, "best", "evaluation.best=true"))


def test_a_text_that_was_read_once_is_not_known_by_heart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = State(tokens=299, look={"step": 9, "loss": 3.0}, best={"step": 4, "loss": 2.0})
    assert passed_by(state, 100) == ""
    state.tokens = 300
    assert "lowest at step 4" in passed_by(state, 100)
    state.look["loss"] = 2.019
    assert passed_by(state, 100) == ""
    assert passed_by(State(tokens=900), 100) == ""  # no text was held out


@pytest.mark.parametrize(
    ("recipe", "settings", "said"),
    [
        ("electra", [], "replaced tokens become harder"),
        ("gpt", [], "no text is held out"),
        ("gpt", ["optimizer.ema=0.9"], "take one of them"),
    ],
)
def test_what_cannot_be_judged_is_refused(tmp_path: Path, recipe: str, settings: list[str], said: str) -> None:
    text = make_text(tmp_path / "text.txt", 40)
    if "held out" in said:
        text.write_text("a b\n", encoding="utf-8")
    with pytest.raises(SesameError, match=said):
        sesame.pretrain(
            recipe, text, tmp_path / "run", size="tiny", steps=2, settings=["evaluation.best=true", *settings]
        )
