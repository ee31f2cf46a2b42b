"""A finished run asked for again: it is told from one whose files have changed since, without reading them again."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.kill_resume import SETTINGS, make_text

from sesame.data import sums
from sesame.errors import SesameError
from sesame.pretraining.inputs import files_of_model, sums_of
from sesame.pretraining.run import Wishes, pretrain
from tests.answer_toys import rows, write_rows
from tests.test_vectors_start import given
from tests.test_vectors_start import run as with_vectors

Again = Callable[..., Path]


@pytest.fixture
def again(tmp_path: Path) -> Again:
    """A short run with --valid and --start that is done, to be asked for again."""
    text, valid = make_text(tmp_path / "text.txt", 60), make_text(tmp_path / "valid.txt", 20)
    common = {"steps": 2, "device": "cpu", "precision": "fp32", "settings": SETTINGS}
    pretrain(Wishes("bert", [str(text)], tmp_path / "start", **common))  # type: ignore[arg-type]
    common["settings"] = [one for one in SETTINGS if not one.startswith(("backbone.", "tokenizer."))]

    def run(name: str = "run") -> Path:
        more = {"start": str(tmp_path / "start"), "valid": [str(valid)], "save_steps": 1} | common
        return pretrain(Wishes("bert", [str(text)], tmp_path / name, **more))  # type: ignore[arg-type]

    run()
    return run


def change(file: Path) -> None:
    held = bytearray(file.read_bytes())
    held[-2] ^= 1
    file.write_bytes(held)


@pytest.mark.parametrize("name", ["text.txt", "valid.txt", "start/final/model.safetensors"])
def test_other_files_are_no_finished_run(
    again: Again, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = (tmp_path / name).read_bytes()
    change(tmp_path / name)
    with pytest.raises(SesameError, match=f"{name}: has changed since this run began"):
        again()
    (tmp_path / name).write_bytes(kept)  # another time of change, and what it held
    again()
    assert "finished already" in capsys.readouterr().err


@pytest.mark.parametrize("held", ["[]", '{"text.txt": '])
def test_damaged_sums_are_told(again: Again, tmp_path: Path, held: str) -> None:
    (tmp_path / "run" / "files.json").write_text(held, encoding="utf-8")
    with pytest.raises(SesameError, match=r"files\.json"):
        again()


def test_it_may_move_and_its_checkpoints_may_be_gone(again: Again, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    (tmp_path / "run").rename(tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "start")  # nobody needs it any more
    again("elsewhere")
    change(tmp_path / "text.txt")
    for _ in range(2):  # refused, and not taken for the new truth
        with pytest.raises(SesameError, match="has changed since this run began"):
            again("elsewhere")


def test_a_finished_run_needs_its_text_no_more(
    again: Again, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It answered that there is no such file."""
    (tmp_path / "text.txt").unlink()
    again()
    assert "finished already" in capsys.readouterr().err
    with pytest.raises(SesameError, match=r"text\.txt: no such file or folder"):
        again("another")
    common = {"steps": 2, "device": "cpu", "precision": "fp32", "settings": SETTINGS}
    with pytest.raises(
        SesameError, match=r"other\.txt: no such file or folder"
    ):  # a slip of the pen is no finished run
        pretrain(Wishes("bert", [str(tmp_path / "other.txt")], tmp_path / "start", **common))  # type: ignore[arg-type]
    with pytest.raises(SesameError, match="holds another run"):  # nor are other settings
        pretrain(Wishes("bert", [str(tmp_path / "text.txt")], tmp_path / "start", seed=1, **common))  # type: ignore[arg-type]


def test_files_are_read_once(again: Again, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in (tmp_path / "text.txt", tmp_path / "valid.txt", *files_of_model(str(tmp_path / "start"))):
        os.utime(file, (time.time() - 100,) * 2)
    again()
    monkeypatch.setattr(sums, "_hash", lambda *_: pytest.fail("the file was read again"))
    again()


def test_a_run_of_before_sums_were_kept_is_done(again: Again, tmp_path: Path) -> None:
    (tmp_path / "run" / "files.json").unlink()
    change(tmp_path / "text.txt")
    again()


@pytest.mark.parametrize("name", ["pairs.tsv", "v.txt"])
def test_other_pairs_and_vectors_are_no_finished_run(tmp_path: Path, name: str) -> None:
    given(tmp_path)
    with_vectors(tmp_path, "luong", vectors=str(tmp_path / "v.txt"))
    if name == "v.txt":
        change(tmp_path / name)
        wanted = {"vectors": str(tmp_path / "v.txt")}
        with pytest.raises(SesameError, match=r"v\.txt: has changed since this run began"):
            with_vectors(tmp_path, "luong", **wanted)
    else:
        other = write_rows(tmp_path / "other.tsv", rows("swap", 120, 1, longest=6))
        shutil.copy(other, tmp_path / "pairs.tsv")
        with pytest.raises(SesameError, match=r"pairs\.tsv: has changed since this run began"):
            pretrain(again_of(tmp_path))


def again_of(folder: Path) -> Wishes:
    """As `with_vectors` has it, with the pairs that stand there now."""
    from tests.test_vectors_start import SEQ2SEQ

    return Wishes(
        "luong", [], folder / "run", pairs=[f"aa-bb={folder / 'pairs.tsv'}"], settings=SEQ2SEQ, size="tiny", steps=3,
        device="cpu", vectors=str(folder / "v.txt"),
    )  # fmt: skip


def test_sums_tell_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    assert list(sums_of([tmp_path / "a", tmp_path / "gone"])) == [str(tmp_path / "a")]
