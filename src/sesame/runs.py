"""All runs under a folder: what they are, how far, how well, and whether somebody works on them.

A run is a folder with recipe.toml, as `checkpoint/run.py` writes it; a run within another one (a seed of a fine-tuning, text
that was read first) is a part of it. A run is done when it has its final folder, running while its lock is held, else it
waits to be gone on with.

Unusual: the lock is asked for in passing, shared and not waiting, and let go at once. Nothing is written, and a file that is
being written may end in half a line, which is left for the next look.
"""

import fcntl
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from sesame.config import read_toml
from sesame.errors import SesameError

RunState = Literal["done", "running", "interrupted"]
Point = tuple[int, float]  # step, value
BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class RunLine:
    """A run as a table shows it."""

    folder: Path
    name: str  # its folder, from where one looked
    recipe: str
    size: str  # layers x width, where the recipe says it; of a fine-tuning the model that it began with
    state: RunState
    step: int = 0
    steps: int | None = None  # planned; None: nobody said, as under a budget
    tokens: int = 0
    seconds: float = 0.0  # of training, over all restarts
    age: float = 0.0  # seconds since it last gave a sign of life
    loss: tuple[Point, ...] = ()
    held_out: Mapping[str, tuple[Point, ...]] = field(default_factory=dict)  # by objective; "valid": a task's score
    broken: int = 0  # lines of the log that could not be read, and the recipe if it could not

    def last(self) -> dict[str, float]:
        """The newest held-out figures."""
        return {name: points[-1][1] for name, points in self.held_out.items() if points}

    def to_json(self) -> dict[str, Any]:
        found = {key: value for key, value in vars(self).items() if key not in ("folder", "held_out", "loss")}
        curves = {name: [list(point) for point in points] for name, points in self.held_out.items()}
        return {**found, "loss": [list(point) for point in self.loss], "held_out": curves}


def find_runs(folder: Path, parts: bool = False) -> list[RunLine]:
    """All runs under a folder, or the folder's own, the newest first; `parts`: also those within other runs."""
    if not folder.is_dir():
        raise SesameError(f"{folder}: no such folder; name the one that holds your runs, such as runs")
    found = [read_run(place, folder) for place in _places(folder, parts)]
    return sorted(found, key=lambda run: (run.age, run.name))


def _places(folder: Path, parts: bool) -> list[Path]:
    found: list[Path] = []
    for place, inner, names in os.walk(folder):
        here = Path(place)
        run = "recipe.toml" in names
        if run:
            found.append(here)
        skipped = ("final", "checkpoints", "events", "tokenizer") if run else ()
        inner[:] = [] if run and not parts else sorted(n for n in inner if n not in skipped and not n.startswith("."))
    return found


def read_run(folder: Path, root: Path | None = None) -> RunLine:
    """One run; a fine-tuning has no log of its own and shows that of its newest part."""
    recipe = _recipe(folder)
    log, broken = _log(folder / "metrics.jsonl")
    if not log and (newest := _newest_part(folder)) is not None:
        log, broken = _log(newest / "metrics.jsonl")
    relative = folder.relative_to(root) if root is not None and folder != root else Path(folder.name)
    last = log[-1] if log else {}
    return RunLine(
        folder,
        str(relative),
        str(recipe.get("name") or _of(recipe, "transfer", "name") or _of(recipe, "run", "task") or "?"),
        _size(recipe),
        _state(folder),
        int(last.get("step", 0)),
        recipe["steps"] if isinstance(recipe.get("steps"), int) and not _of(recipe, "run", "budget") else None,
        max((int(line["tokens"]) for line in log if isinstance(line.get("tokens"), int)), default=0),
        max((float(line["seconds"]) for line in log if _is_number(line.get("seconds"))), default=0.0),
        max(0.0, time.time() - _touched(folder)),
        tuple((int(line["step"]), float(line["loss"])) for line in log if _is_number(line.get("loss"))),
        _held_out(log, recipe),
        broken + (not recipe),
    )


def _recipe(folder: Path) -> dict[str, Any]:
    try:
        return read_toml(folder / "recipe.toml")
    except (SesameError, OSError):
        return {}  # its line says "?"


def _of(recipe: Mapping[str, Any], table: str, key: str) -> Any:
    inner = recipe.get(table)
    return inner.get(key) if isinstance(inner, Mapping) else None


def _size(recipe: Mapping[str, Any]) -> str:
    depth, width = _of(recipe, "backbone", "depth"), _of(recipe, "backbone", "width")
    if depth and width:
        return f"{depth} × {width}"
    start = Path(str(_of(recipe, "run", "model") or ""))
    name = start.parent.name if start.name == "final" else start.name
    return f"from {name}" if name else ""


def _state(folder: Path) -> RunState:
    if (folder / "final" / "config.json").is_file():
        return "done"
    return "running" if _locked(folder / ".lock") else "interrupted"


def _locked(lock: Path) -> bool:
    try:
        with lock.open("rb") as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass  # no lock, or none that we may look at
    return False


def _touched(folder: Path) -> float:
    newest = _newest_part(folder)
    files = [folder / "recipe.toml", folder / "metrics.jsonl", folder / "final" / "config.json"]
    files += [] if newest is None else [newest / "metrics.jsonl"]
    return max((file.stat().st_mtime for file in files if file.is_file()), default=0.0)


def _newest_part(folder: Path) -> Path | None:
    parts = [log for log in folder.glob("*/metrics.jsonl") if (log.parent / "recipe.toml").is_file()]
    return max(parts, key=lambda log: (log.stat().st_mtime, log)).parent if parts else None


def _log(file: Path) -> tuple[list[dict[str, Any]], int]:
    """Lines with a step, and how many others there are; the last may be half written."""
    if not file.is_file():
        return [], 0
    lines = file.read_bytes().split(b"\n")
    found, broken = [], 0
    for number, line in enumerate(lines):
        try:
            value = json.loads(line) if line.strip() else None
        except ValueError:
            broken += number < len(lines) - 1
            continue
        if isinstance(value, dict) and isinstance(value.get("step"), int):
            found.append(value)
        elif value is not None:
            broken += 1
    return found, broken


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _held_out(log: Sequence[Mapping[str, Any]], recipe: Mapping[str, Any]) -> dict[str, tuple[Point, ...]]:
    """Losses by objective, and a task's score; of a line's other figures nothing."""
    objectives = recipe.get("objectives")
    names = set(objectives) if isinstance(objectives, Mapping) else set()
    found: dict[str, list[Point]] = {}
    for line in log:
        told = line.get("held_out")
        told = told if isinstance(told, Mapping) else {}
        some = {name: value for name, value in told.items() if name in names} or dict(list(told.items())[:1])
        if "valid" in line:
            some["valid"] = line["valid"]
        for name, value in some.items():
            if _is_number(value):
                found.setdefault(name, []).append((line["step"], float(value)))
    return {name: tuple(points) for name, points in found.items()}


def sparkline(values: Sequence[float], width: int = 20) -> str:
    """A curve in one line of letters, low to high; more values than letters are averaged."""
    kept = [value for value in values if math.isfinite(value)]
    if not kept:
        return ""
    count = min(width, len(kept))
    cuts = [round(number * len(kept) / count) for number in range(count + 1)]
    means = [sum(kept[a:b]) / (b - a) for a, b in pairwise(cuts)]
    low, high = min(means), max(means)
    span = high - low
    return "".join(BARS[0 if span <= 0 else min(7, int(8 * (mean - low) / span))] for mean in means)
