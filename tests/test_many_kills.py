"""Many processes of which one is killed, all are stopped, or the user's mistake is seen by all: see tests/many.py."""

import json
import os
import signal
from pathlib import Path

import pytest
from benchmarks.kill_resume import SETTINGS, command, make_text, start, weights

from tests.many import driver, finish, rank_of, together, torchrun, wait_for, wish

pytestmark = pytest.mark.slow


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the processes in /proc")
def test_killed_ranks_change_nothing(tmp_path: Path) -> None:
    """Rank 1 of a ddp run, then rank 0 of an fsdp run. Dropout is on: every rank has its own, after the restart too."""
    text, log = make_text(tmp_path / "text.txt"), tmp_path / "log"
    settings = [*SETTINGS, "optimizer.rate=1e-3"]

    def wishes(name: str) -> list[dict[str, object]]:
        outs = [(how, tmp_path / f"{name}-{how}") for how in ("ddp", "fsdp")]
        return [wish(text, out, 60, parallel=how, settings=settings) for how, out in outs]

    together(2, tmp_path, "pretrain", wishes("calm"))
    launcher = torchrun(2, "--max-restarts", "3")
    process = start([*launcher, *driver(tmp_path, "pretrain", wishes("killed"))], tmp_path / "cache", log)
    for how, rank in (("ddp", 1), ("fsdp", 0)):
        wait_for((tmp_path / f"killed-{how}" / "checkpoints" / "step-20").exists, process, log)
        os.kill(rank_of(process, rank), signal.SIGKILL)
    assert finish(process) == 0, log.read_text()
    assert log.read_text().count("going on from step ") == 2
    for how in ("ddp", "fsdp"):
        killed = tmp_path / f"killed-{how}"
        assert weights(killed) == weights(tmp_path / f"calm-{how}")
        lines = [json.loads(line) for line in (killed / "metrics.jsonl").read_text().splitlines()]
        assert [line["step"] for line in lines if "loss" in line] == [*range(10, 61, 10)]
        assert not [path for path in killed.rglob(".*") if path.name not in (".lock", ".metadata")]


def test_sigterm_saves_on_all_ranks(tmp_path: Path) -> None:
    text, log, out = make_text(tmp_path / "text.txt"), tmp_path / "log", tmp_path / "run"
    process = start([*torchrun(2), "-m", *command(text, out, 5000)[2:]], tmp_path / "cache", log)
    wait_for((out / "checkpoints" / "step-20").exists, process, log)
    process.terminate()
    assert finish(process) != 0
    said = [line for line in log.read_text().splitlines() if line.startswith("sesame: ")]
    assert len(said) == 1
    assert "stopped by SIGTERM at step " in said[0]
    step = said[0].partition("at step ")[2].partition(";")[0]
    assert (out / "checkpoints" / f"step-{step}").is_dir()


@pytest.mark.parametrize("mistake", ["batch", "another run"])
def test_a_mistake_is_told_once(mistake: str, tmp_path: Path) -> None:
    """On every rank's own account of it: one sentence from rank 0, silence from the other."""
    text, out = make_text(tmp_path / "text.txt", 20), tmp_path / "run"
    arguments = command(text, out)
    wanted = "share evenly"
    if mistake == "batch":  # seen by both
        arguments += ["--set", "stages.short.batch=7"]
    else:  # seen by rank 0 only, while the other one waits
        out.mkdir()
        (out / "recipe.toml").write_text('name = "other"\n')
        wanted = "holds another run"
    logs = tmp_path / "logs"
    launcher = torchrun(2, "--log-dir", str(logs), "--redirects", "3", "-m")
    process = start([*launcher, *arguments[2:]], tmp_path / "cache", tmp_path / "log")
    assert finish(process) != 0
    said = {file.parent.name: file.read_text() for file in logs.rglob("std*.log") if file.name == "stderr.log"}
    assert said["0"].startswith("sesame: ")
    assert wanted in said["0"]
    assert said["0"].count("\n") == 1
    assert said["1"] == ""
    assert not any(file.read_text() for file in logs.rglob("stdout.log"))
