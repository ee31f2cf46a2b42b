"""Trials beside each other: what is kept says how it was made, and what was made otherwise is refused."""

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from sesame.recipe import resolve

ROOT = Path(__file__).parent.parent


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.delenv("SESAME_SLOTS", raising=False)
    return importlib.import_module("side_by_side")


def given(trials: ModuleType, out: Path, *words: str) -> argparse.Namespace:
    parser = trials.options("A test.", seeds=2, parallel=2, size="mini", budget=90.0)
    return parser.parse_args([str(out), *words])


def test_a_result_is_kept_and_bound_to_its_settings(
    trials: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A miniature must not be taken for the real thing."""
    file = trials.kept_at("all", 0, tmp_path)
    miniature = given(trials, tmp_path, "--size", "tiny", "--budget", "3")
    assert not trials.done(file, trials.asked(miniature))
    trials.keep("all", 0, miniature, {"steps": 5})
    assert trials.done(file, trials.asked(miniature))
    for words in (("--size", "tiny"), ("--budget", "3"), ("--size", "tiny", "--budget", "3", "--set", "a=1")):
        with pytest.raises(SystemExit, match="was made with"):
            trials.side_by_side(["all"], given(trials, tmp_path, *words))
    assert trials.by_trial(tmp_path)["all"][0]["steps"] == 5


def test_only_missing_trials_are_made(
    trials: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each in a process that is told its name; one that fails keeps no other from its turn."""
    script = tmp_path / "script.py"
    script.write_text("import sys\nprint(sys.argv[-1])\nsys.exit(sys.argv[-1] == 'a.0')\n")
    monkeypatch.setattr(sys, "argv", [str(script)])
    out = tmp_path / "out"
    out.mkdir()
    asked = given(trials, out)
    trials.keep("b", 0, asked, {})
    with pytest.raises(SystemExit, match="1 of 3 trials failed"):
        trials.side_by_side(["a", "b"], asked)
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "a seed 0: failed; see " + str(out / "a.0.txt"),
        "a.1",
        "b.1",
    ]


def test_a_sitting_says_how_many_share_the_card(
    trials: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that names the company of its own script alone would pass over that of the others."""
    asked = given(trials, tmp_path, "--parallel", "3")
    trials.keep("alone", 0, asked, {})
    monkeypatch.setenv("SESAME_SLOTS", "10")
    trials.keep("among", 0, asked, {})
    found = {name: json.loads((tmp_path / f"{name}.0.json").read_text())["parallel"] for name in ("alone", "among")}
    assert found == {"alone": 3, "among": 10}


def test_a_sitting_shares_the_cores_among_all_its_trials(
    trials: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten trials of five jobs, each of which takes the cores for its own, would be forty threads on sixteen cores."""
    script = tmp_path / "script.py"
    script.write_text("import os\nprint(os.environ['OMP_NUM_THREADS'], os.environ['OMP_WAIT_POLICY'])\n")
    monkeypatch.setattr(sys, "argv", [str(script)])
    monkeypatch.setattr("os.cpu_count", lambda: 20)
    trials.side_by_side(["a"], given(trials, tmp_path / "alone", "--seeds", "1"))
    monkeypatch.setenv("SESAME_SLOTS", "10")
    trials.side_by_side(["a"], given(trials, tmp_path / "among", "--seeds", "1"))
    assert capsys.readouterr().out.splitlines() == ["10 PASSIVE", "2 PASSIVE"]


@pytest.mark.parametrize("recipe", ["t5", "bart", "mass", "bert"])
def test_who_was_not_taught_has_the_same_backbone(trials: ModuleType, recipe: str) -> None:
    """A folder remembers its dropout: one that a budget took away would come back for the untaught model alone."""
    untaught = resolve(recipe, size="mini", settings=trials.untaught(recipe, "mini"))
    assert untaught.backbone == resolve(recipe, size="mini", budget=True).backbone
    assert untaught.backbone != resolve(recipe, size="mini").backbone
    assert untaught.optimizer.rate < 1e-11


def test_ctrl_c_leaves_a_command_the_time_to_save(trials: ModuleType, tmp_path: Path) -> None:
    """A whole process group hears it: a script that then killed its command would lose what that was about to save."""
    (tmp_path / "command.py").write_text(
        "import pathlib, signal, sys, time\n"
        "def save(*_):\n    time.sleep(1)\n    pathlib.Path('saved').touch()\n    sys.exit(130)\n"
        "signal.signal(signal.SIGINT, save)\n"
        "pathlib.Path('begun').touch()\n"
        "time.sleep(60)\n"
    )
    (tmp_path / "script.py").write_text(
        "import sys, side_by_side\n"
        "try:\n    side_by_side.to_its_end([sys.executable, 'command.py'])\n"
        "except KeyboardInterrupt:\n    sys.exit(7)\n"
    )
    paths = os.pathsep.join([str(ROOT / "benchmarks"), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    script = subprocess.Popen(
        [sys.executable, "script.py"], cwd=tmp_path, env=os.environ | {"PYTHONPATH": paths}, start_new_session=True
    )
    until = time.monotonic() + 60
    while not (tmp_path / "begun").exists():
        assert script.poll() is None
        assert time.monotonic() < until
        time.sleep(0.01)
    os.killpg(script.pid, signal.SIGINT)
    assert script.wait(60) == 7
    assert (tmp_path / "saved").exists()


def test_a_command_that_fails_is_said(trials: ModuleType) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        trials.to_its_end([sys.executable, "-c", "raise SystemExit(3)"])
