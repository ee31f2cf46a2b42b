"""The runs under a folder, watched: `GET /v1/runs` tells all of them, and what changed since a stamp.

    runs.places -> runs.signs (times and sizes) -> changed? -> runs.read_run -> curves -> kept until the signs change

What is kept of a run is what is told of it, some hundred points, whatever the length of its log. A stamp counts the changes;
it begins at the server's start in milliseconds, so that one from before a restart is older than everything.

Unusual: a look that computed for t seconds is not repeated within 10 t, so that even a huge folder costs a tenth of a core.
"""

import json
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sesame.errors import SesameError
from sesame.runs import RunState, Sign, places, read_run, signs, state, touched
from sesame.serve.curves import curves_of

MOST = 200  # runs that are told of, the newest ones
LONGEST = 200  # letters of a name that a recipe gives
REST = 1.0  # seconds between two looks at least
SHARE = 10.0  # times as long as the last look computed, at least


@dataclass
class Kept:
    """A run as it was told last."""

    signs: tuple[Sign, ...]
    state: RunState
    changed: int  # the stamp of it
    told: dict[str, Any]


class Watch:
    """Runs under one folder; safe to call from any thread, writes nothing."""

    def __init__(self, folder: Path, rest: float = REST, share: float = SHARE) -> None:
        if not folder.is_dir():
            raise SesameError(f"--runs {folder}: no such folder; name the one that holds your runs, such as runs")
        self.folder, self.rest, self.share = folder.resolve(), rest, share
        self.lock = threading.Lock()
        self.kept: dict[Path, Kept] = {}
        self.stamp, self.found, self.next = int(time.time() * 1000), 0, 0.0

    def tell(self, since: int = 0) -> bytes:
        """JSON: runs that changed after `since` whole, of the others name and age, the newest first."""
        with self.lock:
            if time.monotonic() >= self.next:
                began = time.thread_time()  # not the time that training took meanwhile
                self._look()
                self.next = time.monotonic() + max(self.rest, self.share * (time.thread_time() - began))
            stamp, found, kept = self.stamp, self.found, list(self.kept.values())
        now = time.time()
        runs = [
            {**(each.told if each.changed > since else {"name": each.told["name"]}), "age": _age(each, now)}
            for each in kept
        ]
        told = {"folder": self.folder.name or "/", "stamp": stamp, "found": found, "runs": runs}
        return json.dumps(told, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")

    def _look(self) -> None:
        seen = [(place, signs(place)) for place in places(self.folder)]
        seen.sort(key=lambda each: (-touched(each[1]), each[0]))
        self.found = len(seen)
        self.kept = {place: self._kept(place, found) for place, found in seen[:MOST]}

    def _kept(self, place: Path, found: tuple[Sign, ...]) -> Kept:
        now, before = state(place), self.kept.get(place)
        if before is not None and (before.signs, before.state) == (found, now):
            return before
        self.stamp += 1
        return Kept(found, now, self.stamp, _told(place, self.folder, now))


def _age(kept: Kept, now: float) -> float:
    return round(max(0.0, now - touched(kept.signs)), 1)


def _told(place: Path, root: Path, now: RunState) -> dict[str, Any]:
    run = read_run(place, root)
    return {
        "name": run.name,
        "recipe": run.recipe[:LONGEST],
        "size": run.size[:LONGEST],
        "state": now,
        "step": run.step,
        "steps": run.steps,
        "tokens": run.tokens,
        "seconds": run.seconds,
        "last": run.last(),
        "kept": run.kept,
        "broken": run.broken,
        **curves_of(run),
    }
