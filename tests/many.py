"""Starting a run in many processes, as a user does with `torchrun`."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.kill_resume import SETTINGS, kill_group, start

PATIENCE = 180.0
EXACT = ("backbone.dropout=0.0", "backbone.attention_dropout=0.0", "optimizer.rate=1e-3", "schedule.warmup=0.1")

# Several runs in the same processes, one after the other: coming together again is tested on the way.
DRIVER = """
import json, sys
from pathlib import Path

def main():
    room, *wishes = json.loads(sys.argv[1])
    if room == "pretrain":
        from sesame.pretraining.run import Wishes, pretrain as run
    else:
        from sesame.finetuning.run import Wishes, finetune as run
    for wish in wishes:
        run(Wishes(**{**wish, "out": Path(wish["out"])}))

main()
"""


def torchrun(processes: int, *more: str) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    return [*launcher, *more]


def driver(folder: Path, room: str, wishes: Sequence[dict[str, Any]]) -> list[str]:
    """The script that runs these wishes, and its argument."""
    (folder / "driver.py").write_text(DRIVER)
    return [str(folder / "driver.py"), json.dumps([room, *wishes], default=str)]


def together(processes: int, folder: Path, room: str, wishes: Sequence[dict[str, Any]]) -> str:
    """Run in so many processes to the end; what was said."""
    log = folder / f"log-{processes}"
    process = start([*torchrun(processes), *driver(folder, room, wishes)], folder / "cache", log)
    assert finish(process) == 0, log.read_text()
    return log.read_text()


def finish(process: subprocess.Popen[bytes]) -> int:
    """The exit code; what hangs is ended."""
    try:
        return process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        kill_group(process)
        raise


def wish(text: Path, out: Path, steps: int = 20, **more: Any) -> dict[str, Any]:
    kept = {"recipe": "bert", "text": [str(text)], "out": out, "steps": steps, "save_steps": 10}
    return {**kept, "settings": [*SETTINGS, *EXACT], "device": "cpu", "precision": "fp32", **more}


def wait_for(happened: Callable[[], Any], process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + PATIENCE
    while not happened():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.001)


def rank_of(launcher: subprocess.Popen[bytes], rank: int) -> int:
    """The process of a rank, among the children of the launcher."""
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    for child in children:
        if f"RANK={rank}".encode() in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
            return int(child)
    raise AssertionError(f"no rank {rank} among {children}")
