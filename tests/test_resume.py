"""A run that is killed, stopped or damaged, and continued by the same command, ends with the weights of a calm one."""

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.kill_resume import SETTINGS, command, kill_group, make_text, resumed_from, start, weights

from sesame.errors import SesameError
from sesame.pretraining.run import Wishes, pretrain
from tests.crashes import crash_while_saving

PATIENCE = 120.0  # seconds for anything to happen


def wait_for(happened: Callable[[], Any], process: subprocess.Popen[bytes]) -> bool:
    """True once `happened`; False if the process ended before."""
    until = time.monotonic() + PATIENCE
    while not happened():
        if process.poll() is not None:
            return False
        assert time.monotonic() < until, "nothing happened"
        time.sleep(0.001)
    return True


def finish(arguments: list[str], cache: Path, log: Path) -> str:
    """Run to the end; what was said."""
    process = start(arguments, cache, log)
    assert process.wait(PATIENCE) == 0, log.read_text()
    return log.read_text()


def check_metrics(out: Path, steps: int) -> None:
    """Each step is logged once and in order, the last one too."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    for kind in ("loss", "held_out"):
        logged = [line["step"] for line in lines if kind in line]
        assert logged == sorted(set(logged))
        assert logged[-1] == steps
    assert {*range(10, steps + 1, 10)} <= {line["step"] for line in lines if "loss" in line}


class Calm:
    """An undisturbed run, and the ground to repeat it on."""

    def __init__(self, folder: Path, documents: int = 150) -> None:
        self.folder, self.log = folder, folder / "log"
        self.text = make_text(folder / "text.txt", documents)
        self.out = folder / "calm"
        finish(self.command(self.out), folder / "cache", self.log)
        self.weights = weights(self.out)

    def command(self, out: Path) -> list[str]:
        return command(self.text, out)

    def check(self, out: Path) -> None:
        assert weights(out) == self.weights
        check_metrics(out, 60)
        left = [path for path in out.rglob(".*") if path.name != ".lock"]
        assert not left, "something half-written was left behind"


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Calm:
    return Calm(tmp_path_factory.mktemp("calm"))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


# ---- in one process -------------------------------------------------------------------------------------------------


def small(text: Path, out: Path) -> Wishes:
    settings = {"text": [str(text)], "out": out, "steps": 24, "save_steps": 5, "device": "cpu", "precision": "fp32"}
    return Wishes("bert", settings=SETTINGS, **settings)  # type: ignore[arg-type]


def test_a_crash_while_saving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = make_text(tmp_path / "text.txt", 60)
    pretrain(small(text, tmp_path / "calm"))
    with crash_while_saving(after=2):
        pretrain(small(text, tmp_path / "run"))
    assert [folder.name for folder in sorted((tmp_path / "run" / "checkpoints").iterdir())] == ["step-10", "step-5"]
    kept = text.read_bytes()
    make_text(text, 61)
    with pytest.raises(SesameError, match=r"text\.txt: has changed since this run began"):
        pretrain(small(text, tmp_path / "run"))
    text.write_bytes(kept)
    pretrain(small(text, tmp_path / "run"))
    assert weights(tmp_path / "run") == weights(tmp_path / "calm")
    check_metrics(tmp_path / "run", 24)


# ---- real processes -------------------------------------------------------------------------------------------------

# Where the kills fall: at most so many seconds after something new of this name, or a later one, stands in the folder.
MOMENTS = (
    ("recipe.toml", 0.05),  # while the tokenizer is trained
    ("tokenizer", 0.1),  # while the store is built
    ("metrics.jsonl", 0.2),  # in the first steps
    ("checkpoints/.*.part", 0.0),  # while a checkpoint is written
    ("checkpoints/step-*", 0.3),
    (".final.*.part", 0.0),  # while the result is written
)


def new_things(out: Path, names: list[str]) -> Callable[[], bool]:
    """A question: did anything of these names appear since now?"""

    def seen() -> set[Path]:
        return {path for name in names for path in out.glob(name)}

    before = seen()
    return lambda: not seen() <= before


@pytest.mark.slow
def test_kills_from_start_to_end(calm: Calm, tmp_path: Path, log: Path) -> None:
    luck, out, cache = random.Random(0), tmp_path / "run", tmp_path / "cache"
    process = start(calm.command(out), cache, log)
    time.sleep(luck.uniform(0, 2))  # while it starts
    kill_group(process)
    kills = 0
    for number, (_, longest) in enumerate(MOMENTS):
        happened = new_things(out, [name for name, _ in MOMENTS[number:]])
        process = start(calm.command(out), cache, log)
        if wait_for(happened, process):
            time.sleep(luck.uniform(0, longest))
        if process.poll() is None:
            kill_group(process)
            kills += 1
        else:
            assert process.returncode == 0, log.read_text()
    assert kills >= 4  # the last ones find nothing to kill if the run gets through before
    finish(calm.command(out), cache, log)
    calm.check(out)


@pytest.fixture(scope="module")
def stopped(calm: Calm, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run that SIGTERM stopped after two checkpoints, and what it said."""
    folder = tmp_path_factory.mktemp("stopped")
    out, log = folder / "run", folder / "log"
    process = start(calm.command(out), folder / "cache", log)
    assert wait_for((out / "checkpoints" / "step-20").exists, process)
    process.terminate()
    assert process.wait(PATIENCE) == 128 + signal.SIGTERM
    return out, log.read_text()


def copy(stopped: tuple[Path, str], to: Path) -> tuple[Path, list[Path]]:
    """The stopped run once more, and its checkpoints, newest first."""
    shutil.copytree(stopped[0], to)
    found = sorted((to / "checkpoints").iterdir(), key=lambda folder: int(folder.name[5:]), reverse=True)
    assert len(found) == 2
    return to, found


def cut(checkpoint: Path) -> None:
    os.truncate(checkpoint / "model.safetensors", 1000)


@pytest.mark.slow
def test_sigterm_saves_and_says_how_to_go_on(calm: Calm, stopped: tuple[Path, str], tmp_path: Path, log: Path) -> None:
    (said,) = [line for line in stopped[1].splitlines() if line.startswith("sesame:")]
    assert "stopped by SIGTERM at step " in said
    assert "everything is saved" in said
    assert "run the same command again" in said
    out, checkpoints = copy(stopped, tmp_path / "run")
    step = checkpoints[0].name[5:]
    assert f"at step {step};" in said
    assert f"going on from step {step}\n" in finish(calm.command(out), tmp_path / "cache", log)
    calm.check(out)


@pytest.mark.slow
def test_a_damaged_checkpoint_is_passed_over(calm: Calm, stopped: tuple[Path, str], tmp_path: Path, log: Path) -> None:
    out, (newest, before) = copy(stopped, tmp_path / "run")
    cut(newest)
    said = finish(calm.command(out), tmp_path / "cache", log)
    assert f"{newest.name} is damaged" in said
    assert resumed_from(log) == before.name[5:]
    calm.check(out)


@pytest.mark.slow
def test_without_a_whole_checkpoint_it_starts_anew(
    calm: Calm, stopped: tuple[Path, str], tmp_path: Path, log: Path
) -> None:
    out, checkpoints = copy(stopped, tmp_path / "run")
    for folder in checkpoints:
        cut(folder)
    said = finish(calm.command(out), tmp_path / "cache", log)
    assert all(f"{folder.name} is damaged" in said for folder in checkpoints)
    assert resumed_from(log) == "-"
    calm.check(out)


@pytest.mark.slow
def test_ctrl_c(calm: Calm, tmp_path: Path, log: Path) -> None:
    out = tmp_path / "run"
    process = start(calm.command(out), tmp_path / "cache", log)
    assert wait_for((out / "checkpoints" / "step-10").exists, process)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(PATIENCE) == 128 + signal.SIGINT
    said = log.read_text()
    assert "stopped by SIGINT at step " in said
    assert "run the same command again" in said
    assert "Traceback" not in said
    finish(calm.command(out), tmp_path / "cache", log)
    assert resumed_from(log) != "-"
    calm.check(out)


@pytest.mark.slow
def test_ctrl_c_before_the_training(calm: Calm, tmp_path: Path, log: Path) -> None:
    out = tmp_path / "run"
    process = start(calm.command(out), tmp_path / "cache", log)
    assert wait_for((out / "recipe.toml").exists, process)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(PATIENCE) == 128 + signal.SIGINT
    assert "run the same command again" in log.read_text()
    assert "Traceback" not in log.read_text()
    finish(calm.command(out), tmp_path / "cache", log)
    calm.check(out)


def workers_of(process: subprocess.Popen[bytes]) -> list[int]:
    """Processes that encode text for `process`."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == process.pid and b"sesame.data.workers" in (place / "cmdline").read_bytes():
                found.append(int(place.name))
        except (FileNotFoundError, ProcessLookupError):  # ended while we looked
            continue
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the processes in /proc")
def test_a_killed_worker(tmp_path: Path, log: Path) -> None:
    calm = Calm(tmp_path, documents=4000)  # large enough for the pool
    out = tmp_path / "run"
    process = start(calm.command(out), tmp_path / "fresh", log)
    assert wait_for(lambda: workers_of(process), process)
    os.kill(workers_of(process)[0], signal.SIGKILL)
    assert process.wait(PATIENCE) == 0, log.read_text()
    calm.check(out)
