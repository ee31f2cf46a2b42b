"""The folder of a run: who may claim it, what a checkpoint holds, what is found after kills and damage."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from sesame.backbones import Encoder, EncoderConfig
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.run import Run
from sesame.errors import SesameError
from sesame.files import tidy, whole_file, whole_folder, write_whole
from sesame.train.optim import OptimConfig, build_optimizer
from sesame.train.state import State

IDENTITY = {"name": "test", "steps": 3, "run": {"seed": 0, "text": ["a.txt"]}}


class Trained:
    """A small encoder after a few steps of its optimizer."""

    def __init__(self) -> None:
        self.model = Encoder(EncoderConfig(vocab=64, width=8, depth=1, heads=2, max_length=16))
        self.optimizer = build_optimizer(self.model, OptimConfig(rate=0.01))
        self.train()

    def train(self) -> None:
        torch.stack([p.pow(2).sum() for p in self.model.parameters()]).sum().backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()

    def save(self, run: Run, step: int) -> Path:
        state = State(step=step, history=[1.0, 2.0])
        return run.save(Parts(self.model), self.model, self.optimizer, state, "card")


@pytest.fixture
def trained() -> Trained:
    torch.manual_seed(0)
    return Trained()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_claim_again_and_another_run(tmp_path: Path) -> None:
    for _ in range(2):
        with Run.claim(tmp_path / "run", IDENTITY):
            pass
    before = (tmp_path / "run" / "recipe.toml").read_bytes()
    other = {**IDENTITY, "run": {"seed": 1, "text": ["a.txt"]}}
    with pytest.raises(SesameError, match=r"run\.seed is 0 there, 1 here"), Run.claim(tmp_path / "run", other):
        pass
    more = {**IDENTITY, "extra": 1}
    with pytest.raises(SesameError, match="extra is None there, 1 here"), Run.claim(tmp_path / "run", more):
        pass
    assert (tmp_path / "run" / "recipe.toml").read_bytes() == before


def test_two_at_once(tmp_path: Path) -> None:
    with (
        Run.claim(tmp_path, IDENTITY),
        pytest.raises(SesameError, match="another process"),
        Run.claim(tmp_path, IDENTITY),
    ):
        pass
    with Run.claim(tmp_path, IDENTITY):
        pass


def test_a_kill_before_the_recipe_does_not_block(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    (tmp_path / ".recipe.toml.123.part").write_text("na")
    with Run.claim(tmp_path, IDENTITY):
        assert names(tmp_path) == {".lock", "recipe.toml"}


def test_what_kills_left_is_removed(tmp_path: Path) -> None:
    with Run.claim(tmp_path, IDENTITY):
        pass
    for name in (".tokenizer.12.part", "checkpoints/.step-5.12.part", "checkpoints/.step-5.12.old"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").touch()
    (tmp_path / "checkpoints" / "step-5").mkdir()
    (tmp_path / ".notes").touch()
    with Run.claim(tmp_path, IDENTITY):
        assert names(tmp_path) == {".lock", ".notes", "recipe.toml", "checkpoints"}
        assert names(tmp_path / "checkpoints") == {"step-5"}


def test_a_mistake_at_the_start_withdraws(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()

    def fail(run: Run) -> None:
        (run.folder / "tokenizer").mkdir()
        run.log({"step": 1})
        run.bind(["a"])
        raise SesameError("bad text")

    with pytest.raises(SesameError, match="bad text"), Run.claim(tmp_path / "run", IDENTITY) as run:
        fail(run)
    assert names(tmp_path / "run") == {".lock"}


def test_a_mistake_in_a_part_withdraws_the_whole(tmp_path: Path) -> None:
    """A seed of a fine-tuning is a run in the run's folder."""
    wrong = {**IDENTITY, "recipe": "wrong"}
    whole, part = Run.claim(tmp_path / "run", wrong), Run.claim(tmp_path / "run" / "seed-0", wrong)
    with pytest.raises(SesameError, match="bad text"), whole, part:
        raise SesameError("bad text")
    assert names(tmp_path / "run") == {".lock"}
    with Run.claim(tmp_path / "run", IDENTITY) as run, Run.claim(run.folder / "seed-0", IDENTITY):
        pass


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_anything_else_keeps_what_was_made(tmp_path: Path, error: type[BaseException]) -> None:
    def fail(run: Run) -> None:
        (run.folder / "tokenizer").mkdir()
        raise error

    with pytest.raises(error), Run.claim(tmp_path, IDENTITY) as run:
        fail(run)
    assert names(tmp_path) == {".lock", "recipe.toml", "tokenizer"}


def test_a_mistake_after_a_checkpoint_keeps_it(tmp_path: Path, trained: Trained) -> None:
    def fail(run: Run) -> None:
        trained.save(run, 1)
        raise SesameError("full")

    with pytest.raises(SesameError, match="full"), Run.claim(tmp_path, IDENTITY) as run:
        fail(run)
    assert {"recipe.toml", "checkpoints"} <= names(tmp_path)


def test_save_and_restore(tmp_path: Path, trained: Trained) -> None:
    with Run.claim(tmp_path, IDENTITY) as run:
        run.log({"step": 1})
        saved = trained.save(run, 1)
        run.log({"step": 1, "held_out": 1})
        run.log({"step": 2})
    other = Trained()
    with Run.claim(tmp_path, IDENTITY) as run:
        assert run.latest() == saved
        state = run.restore(saved, other.model, other.optimizer)
        assert [json.loads(line) for line in run.metrics.read_text().splitlines()] == [{"step": 1}]
    assert (state.step, state.history) == (1, [1.0, 2.0])
    other.model.load_state_dict(load_parts(saved).backbone.state_dict())
    other.model.zero_grad()
    trained.model.zero_grad()
    trained.train()
    other.train()
    for ours, theirs in zip(trained.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_the_last_two_are_kept(tmp_path: Path, trained: Trained) -> None:
    with Run.claim(tmp_path, IDENTITY) as run:
        for step in (8, 9, 10, 11):
            trained.save(run, step)
    assert names(tmp_path / "checkpoints") == {"step-10", "step-11"}


DAMAGE: dict[str, Any] = {
    "cut weights": lambda folder: os.truncate(folder / "model.safetensors", 100),
    "flipped byte": lambda folder: flip(folder / "train" / "optimizer.safetensors"),
    "no state": lambda folder: (folder / "train" / "state.json").unlink(),
    "no sums": lambda folder: (folder / "train" / "sums.json").unlink(),
    "bad sums": lambda folder: (folder / "train" / "sums.json").write_text("{"),
}


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize("how", DAMAGE)
def test_damage_is_noticed(how: str, tmp_path: Path, trained: Trained, capsys: pytest.CaptureFixture[str]) -> None:
    with Run.claim(tmp_path, IDENTITY) as run:
        first, second = trained.save(run, 9), trained.save(run, 10)
        assert run.latest() == second
        DAMAGE[how](second)
        assert run.latest() == first
        assert "step-10 is damaged" in capsys.readouterr().err
        DAMAGE[how](first)
        assert run.latest() is None


def test_a_changed_text(tmp_path: Path, trained: Trained) -> None:
    with Run.claim(tmp_path, IDENTITY) as run:
        run.bind(["store-1"])
        run.bind(["store-2"])  # nothing has been learnt from the first one
        trained.save(run, 1)
        run.bind(["store-2"])
        with pytest.raises(SesameError, match="the text has changed since this run began, or its tokenizer"):
            run.bind(["store-1"])


# ---- files that are whole or not there ------------------------------------------------------------------------------


def test_a_failed_file_leaves_the_old_one(tmp_path: Path) -> None:
    write_whole(tmp_path / "a", "old")
    with pytest.raises(ZeroDivisionError), whole_file(tmp_path / "a") as handle:
        handle.write(bytes(1 // (handle.write(b"new") - 3)))
    assert (tmp_path / "a").read_text() == "old"
    assert names(tmp_path) == {"a"}


def test_a_replacement_killed_between_its_renames(tmp_path: Path) -> None:
    with whole_folder(tmp_path / "a") as folder:
        (folder / "file").write_text("old")
    (tmp_path / "a").rename(tmp_path / ".a.77.old")
    (tmp_path / ".a.77.part").mkdir()
    tidy(tmp_path)
    assert names(tmp_path) == {"a"}
    assert (tmp_path / "a" / "file").read_text() == "old"


def test_a_folder_is_replaced_in_one_piece(tmp_path: Path) -> None:
    for content in ("old", "new"):
        with whole_folder(tmp_path / "a") as folder:
            (folder / content).touch()
    assert names(tmp_path / "a") == {"new"}
    assert names(tmp_path) == {"a"}
