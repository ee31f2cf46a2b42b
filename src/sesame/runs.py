"""All runs under a folder: what they are, how far, how well, and whether somebody works on them.

A run is a folder with recipe.toml, as `checkpoint/run.py` writes it; a run within another one (a seed of a fine-tuning, text
that was read first) is a part of it. A run is done when it has its final folder, running while its lock is held, else it
waits to be gone on with.

Unusual: the lock is asked for in passing, shared and not waiting, and let go at once. Nothing is written, a file that is
being written may end in half a line, which is left for the next look, and one that goes away meanwhile is not there.
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
Sign = tuple[str, int, int]  # a file, when it was last written (ns), its bytes
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
    rate: tuple[Point, ...] = ()  # of learning
    clock: tuple[tuple[int, int, float], ...] = ()  # step, tokens and seconds until then; 0 where nobody counted
    kept: int | None = None  # the step of the look whose weights the finished model has, if it is not the last one
    broken: int = 0  # lines of the log that could not be read, and the recipe if it could not

    def last(self) -> dict[str, float]:
        """The newest held-out figures; of a run that kept an earlier look, what the finished model has."""
        end = math.inf if self.kept is None else self.kept
        until = {name: [value for step, value in points if step <= end] for name, points in self.held_out.items()}
        return {name: values[-1] for name, values in until.items() if values}

    def to_json(self) -> dict[str, Any]:
        curves = {name: [list(point) for point in getattr(self, name)] for name in ("loss", "rate", "clock")}
        held_out = {name: [list(point) for point in points] for name, points in self.held_out.items()}
        kept = {key: value for key, value in vars(self).items() if key != "folder"}
        return {**kept, **curves, "held_out": held_out}


def find_runs(folder: Path, parts: bool = False) -> list[RunLine]:
    """All runs under a folder, or the folder's own, the newest first; `parts`: also those within other runs."""
    if not folder.is_dir():
        raise SesameError(f"{folder}: no such folder; name the one that holds your runs, such as runs")
    found = [read_run(place, folder) for place in places(folder, parts)]
    return sorted(found, key=lambda run: (run.age, run.name))


def places(folder: Path, parts: bool = False) -> list[Path]:
    """The folders of the runs, as `find_runs` finds them."""
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
    planned = recipe
    if not log and (newest := _newest_part(folder)) is not None:
        log, broken = _log(newest / "metrics.jsonl")
        planned = _recipe(newest)  # what a fine-tuning's own recipe says of steps is not what its parts were given
    relative = folder.relative_to(root) if root is not None and folder != root else Path(folder.name)
    last, clock = log[-1] if log else {}, _clock(log)
    return RunLine(
        folder,
        str(relative),
        str(recipe.get("name") or _of(recipe, "transfer", "name") or _of(recipe, "run", "task") or "?"),
        _size(recipe),
        state(folder),
        int(last.get("step", 0)),
        planned["steps"] if isinstance(planned.get("steps"), int) and not _of(planned, "run", "budget") else None,
        clock[-1][1] if clock else 0,
        clock[-1][2] if clock else 0.0,
        max(0.0, time.time() - touched(signs(folder))),
        _points(log, "loss"),
        _held_out(log, recipe),
        _points(log, "rate"),
        clock,
        kept if isinstance(kept := last.get("kept"), int) and _stat(folder / "final" / "config.json") else None,
        broken + (not recipe),
    )


def signs(folder: Path) -> tuple[Sign, ...]:
    """The files that tell of a run: while these stay equal, so does what `read_run` gives, but for state and age."""
    newest = _newest_part(folder)
    files = [folder / "recipe.toml", folder / "metrics.jsonl", folder / "final" / "config.json"]
    files += [] if newest is None else [newest / "metrics.jsonl"]
    found = ((str(file), _stat(file)) for file in files)
    return tuple((name, told.st_mtime_ns, told.st_size) for name, told in found if told is not None)


def touched(found: Sequence[Sign]) -> float:
    """When a run last gave a sign of life, in seconds since 1970."""
    return max((written for _, written, _ in found), default=0) / 1e9


def _stat(file: Path) -> os.stat_result | None:
    try:
        return file.stat()
    except OSError:
        return None  # not there, gone meanwhile, or not ours to see


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
    start = Path(str(_of(recipe, "run", "model") or _of(recipe, "run", "start") or ""))
    name = start.parent.name if start.name == "final" else start.name
    return f"from {name}" if name else ""


def state(folder: Path) -> RunState:
    if _stat(folder / "final" / "config.json") is not None:
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


def _newest_part(folder: Path) -> Path | None:
    # A seed that is trained again, since it collapsed, has each further try in a folder within its own.
    logs = [log for each in ("*", "*/again-*") for log in folder.glob(f"{each}/metrics.jsonl")]
    logs = [log for log in logs if _stat(log.parent / "recipe.toml") is not None]
    parts = [(told.st_mtime, log) for log in logs if (told := _stat(log)) is not None]
    return max(parts)[1].parent if parts else None


def _log(file: Path) -> tuple[list[dict[str, Any]], int]:
    """Lines with a step, and how many others there are; the last may be half written."""
    try:
        lines = file.read_bytes().split(b"\n")
    except OSError:
        return [], 0
    found, broken = [], 0
    for number, line in enumerate(lines):
        try:
            value = json.loads(line) if line.strip() else None
        except (ValueError, RecursionError):
            broken += number < len(lines) - 1
            continue
        if isinstance(value, dict) and isinstance(value.get("step"), int):
            found.append(value)
        elif value is not None:
            broken += 1
    return found, broken


def _is_number(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer beyond all floats
        return False


def _points(log: Sequence[Mapping[str, Any]], name: str) -> tuple[Point, ...]:
    return tuple((line["step"], float(line[name])) for line in log if _is_number(line.get(name)))


def _clock(log: Sequence[Mapping[str, Any]]) -> tuple[tuple[int, int, float], ...]:
    """Tokens and seconds at each step; a line that does not tell them stands where the one before it stood."""
    found: dict[int, tuple[int, float]] = {}
    tokens, seconds = 0, 0.0
    for line in log:
        tokens = max(tokens, int(line["tokens"]) if _is_number(line.get("tokens")) else 0)
        seconds = max(seconds, float(line["seconds"]) if _is_number(line.get("seconds")) else 0.0)
        found[line["step"]] = (tokens, seconds)
    return tuple((step, *told) for step, told in found.items())


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
