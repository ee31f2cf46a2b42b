"""Trials with several seeds, each in a process of its own, some at a time; what each says last is said.

What a trial reached is kept in OUT/NAME.SEED.json, with how it was made. It is not made again, and one that was made
otherwise is refused: two sizes or budgets must not meet in one table.

Processes that share a GPU take turns on it, however little of it each needs. With SESAME_MPS=1 NVIDIA's multi-process service
lets their kernels run at the same time, if the machine has it: small models then lose little to each other.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


def asked(given: argparse.Namespace) -> dict[str, Any]:
    """What two results must agree in to stand in one table."""
    return {key: value for key, value in vars(given).items() if key in ("size", "budget", "set")}


def at_a_time(parallel: int) -> int:
    """How many trials share the device: as many as a script runs, or as a whole sitting does (`one_card.py`)."""
    return int(os.environ.get("SESAME_SLOTS", parallel))


def kept_at(name: str, seed: int, out: Path) -> Path:
    return out / f"{name}.{seed}.json"


def keep(name: str, seed: int, given: argparse.Namespace, found: dict[str, Any]) -> None:
    """Write down what a trial reached, how it was made and where."""
    import report
    from sesame.files import write_json

    how = {**asked(given), "parallel": at_a_time(given.parallel), "machine": report.device_and_machine(given.device)}
    write_json(kept_at(name, seed, given.out), {"trial": name, "seed": seed, **how, **found})


def done(file: Path, made: dict[str, Any]) -> bool:
    """Whether a trial has been made already, and in this way."""
    if not file.exists():
        return False
    before = json.loads(file.read_text(encoding="utf-8"))
    other = {key: before[key] for key, value in made.items() if before.get(key, value) != value}
    if other:
        raise SystemExit(f"{file}: was made with {other}; choose another OUT, or the same settings")
    return True


def kept_lines(out: Path) -> list[dict[str, Any]]:
    """What all trials reached."""
    found = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(out.glob("*.json"))]
    if not found:
        raise SystemExit(f"{out}: holds no results yet")
    return found


def by_trial(out: Path) -> dict[str, list[dict[str, Any]]]:
    """The same, one for each seed."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in kept_lines(out):
        found.setdefault(line["trial"], []).append(line)
    return found


def sesame(*words: object) -> None:
    """A command."""
    print("sesame", *words, flush=True)
    to_its_end([sys.executable, "-m", "sesame", *map(str, words)])


def to_its_end(command: list[str]) -> None:
    """Run it. At Ctrl-C, which it hears too, it has the time to save: `subprocess.run` kills after a quarter of a second."""
    with subprocess.Popen(command) as process:
        try:
            failed = process.wait()
        except KeyboardInterrupt:
            process.wait()
            raise
    if failed:
        raise subprocess.CalledProcessError(failed, command)


def untaught(recipe: str, size: str) -> list[str]:
    """Settings of one step that moves nothing, for a backbone as runs under a budget have it: the dropouts that a budget
    takes away would be back when it is taught a task."""
    import torch

    from sesame.recipe import resolve

    device = "cuda" if torch.cuda.is_available() else "cpu"
    plain = resolve(recipe, size=size).backbone
    made = resolve(recipe, size=size, budget=True, device=device).backbone
    changed = [f"backbone.{key}={json.dumps(value)}" for key, value in made.items() if plain.get(key) != value]
    return ["optimizer.rate=1e-12", *changed]


def side_by_side(
    names: Iterable[str],
    given: argparse.Namespace,
    *,
    seeds: int | None = None,
    made: Callable[[str], dict[str, Any]] | None = None,
    more: Iterable[str] = (),
) -> None:
    """Call this script again for each trial, with `--one NAME.SEED`; its words go into OUT/NAME.SEED.txt.

    `made` says how a trial is made, if not as all of them. One that fails keeps no other from its turn; the script then fails
    at its end.
    """
    out, parallel = given.out, given.parallel
    out.mkdir(parents=True, exist_ok=True)
    names = list(names)
    trials = [(name, seed) for seed in range(given.seeds if seeds is None else seeds) for name in names]
    how = {name: asked(given) if made is None else made(name) for name in names}
    todo = [(name, seed) for name, seed in trials if not done(kept_at(name, seed, out), how[name])]
    threads = str(max(1, (os.cpu_count() or 1) // at_a_time(parallel)))
    env = os.environ | {"OMP_NUM_THREADS": threads, "OMP_WAIT_POLICY": "PASSIVE", "TOKENIZERS_PARALLELISM": "false"}

    def start(trial: Trial) -> bool:
        name, seed = trial
        file = out / f"{name}.{seed}.txt"
        command = [sys.executable, sys.argv[0], *sys.argv[1:], *more, "--one", f"{name}.{seed}"]
        with file.open("wb") as log:
            failed = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, env=env, check=False).returncode
        last = (file.read_text(errors="replace").splitlines() or [""])[-1]
        print(f"{name} seed {seed}: failed; see {file}" if failed else last, flush=True)
        return failed == 0

    with shared_device() as service, ThreadPoolExecutor(parallel) as pool:
        env |= service
        ended = list(pool.map(start, todo))
    if not all(ended):
        raise SystemExit(f"{ended.count(False)} of {len(ended)} trials failed")


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
