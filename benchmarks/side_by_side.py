"""Trials with several seeds, each in a process of its own, some at a time; what each says last is said.

Processes that share a GPU take turns on it, however little of it each needs. With SESAME_MPS=1 NVIDIA's multi-process service
lets their kernels run at the same time, if the machine has it: small models then lose little to each other.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

Trial = tuple[str, int]  # a name and a seed


def options(
    about: str, seeds: int, parallel: int, size: str | None = "", budget: float = 0.0
) -> argparse.ArgumentParser:
    """What all such scripts may be asked; with a budget also for how long, and how large (None: each trial its own)."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--trials", default="", help="A,B,...; each by default")
    if budget:
        parser.add_argument("--size", default=size)
        parser.add_argument("--budget", type=float, default=budget, help="seconds of training")
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--parallel", type=int, default=parallel, help="trials at a time")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", action="append", default=[], help="key=value, for all trials")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--table", type=Path)
    return parser


def kept_at(name: str, seed: int, out: Path) -> Path:
    """Where a trial leaves what it reached; one that has is not made again."""
    return out / f"{name}.{seed}.json"


def side_by_side(names: Iterable[str], seeds: int, out: Path, parallel: int, more: Iterable[str] = ()) -> None:
    """Call this script again for each trial, with `--one NAME.SEED`; its words go into OUT/NAME.SEED.txt.

    One that fails keeps no other from its turn; the script then fails at its end.
    """
    out.mkdir(parents=True, exist_ok=True)
    names = list(names)
    todo = [(name, seed) for seed in range(seeds) for name in names if not kept_at(name, seed, out).exists()]
    threads = str(max(1, (os.cpu_count() or 1) // parallel))
    env = os.environ | {"OMP_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": "false"}

    def start(trial: Trial) -> bool:
        name, seed = trial
        file = out / f"{name}.{seed}.txt"
        command = [sys.executable, sys.argv[0], *sys.argv[1:], *more, "--one", f"{name}.{seed}"]
        with file.open("wb") as log:
            failed = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, env=env, check=False).returncode
        last = (file.read_text(errors="replace").splitlines() or [""])[-1]
        print(f"{name} seed {seed}: failed; see {file}" if failed else last, flush=True)
        return failed == 0

    with shared_device() as how, ThreadPoolExecutor(parallel) as pool:
        env |= how
        done = list(pool.map(start, todo))
    if not all(done):
        raise SystemExit(f"{done.count(False)} of {len(done)} trials failed")


@contextmanager
def shared_device() -> Iterator[dict[str, str]]:
    """What processes must know to use the multi-process service; nothing, where it was not asked for or is not there.

    They are told not to ask again: there is one service for a device, and whoever begins it ends it.
    """
    control = shutil.which("nvidia-cuda-mps-control") if os.environ.get("SESAME_MPS") == "1" else None
    if control is None:
        yield {}
        return
    with tempfile.TemporaryDirectory() as folder:
        where = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder, "SESAME_MPS": "0"}
        began = subprocess.run([control, "-d"], env=os.environ | where, check=False).returncode == 0
        try:
            yield where if began else {}
        finally:
            if began:
                subprocess.run([control], input=b"quit -t 5\n", env=os.environ | where, check=False, timeout=60)


def chosen(asked: str, known: Iterable[str]) -> list[str]:
    """The names of "a,b", or all."""
    known = list(known)
    names = [name for name in asked.split(",") if name] or known
    for name in names:
        if name not in known:
            raise SystemExit(f"--trials {name}: there are {', '.join(known)}")
    return names


def parted(one: str) -> Trial:
    name, _, seed = one.rpartition(".")
    return name, int(seed)


def spread(values: list[float], digits: int = 2) -> str:
    deviation = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{deviation}"
