"""Many trainings on one device, each alone while its seconds count, and the device seldom idle.

    prepare a, b, c | clock a | jobs of a | clock b | jobs of b | clock c | jobs of c, prepare d, e, f | clock d | ...

A trial is prepared (text, model, compilation), waits at a gate, and is trained against a clock. While a clock runs nothing
else is begun, and no gate opens before all else has ended. Between two clocks the jobs of what was trained, its fine-tunings,
run side by side; when nobody waits at the gate any more, several trials are prepared at once beside them.

What is unusual: no locks. One loop starts everything and hears of every end, so nobody starves, and a process that dies in
whatever way is said and holds nothing up. All processes are forked from a server that has the imports behind it, and those
that do jobs live on. What they did and when, they write into LOGS/times.jsonl: [what, name, from, to] in seconds.
"""

import json
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing import connection, forkserver
from pathlib import Path
from typing import Any

FORKS = multiprocessing.get_context("forkserver")
PATIENCE = 10.0  # seconds until a process that was told to end is killed

Gate = Callable[[], None]


@dataclass(frozen=True)
class Job:
    trial: str
    what: Any
    log: Path


def warm_up(modules: list[str]) -> None:
    """Let the server that all processes come from import `modules`, while the caller goes on."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that wait leave the cores to others
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # an import must not open the GPU: forks follow
    FORKS.set_forkserver_preload(modules)
    forkserver.ensure_running()


# ---- inside the processes ---------------------------------------------------------------------------------------------


def _trial(train: Callable[[str, Gate], None], name: str, logs: Path, pipe: connection.Connection) -> None:
    _print_into(logs / f"{name}.txt")
    what, began = "prepare", time.monotonic()

    def gate() -> None:
        nonlocal what, began
        _note(logs, what, name, began)
        pipe.send("ready")
        pipe.recv()  # or EOFError: the pipeline is gone
        what, began = "clock", time.monotonic()

    train(name, gate)
    _note(logs, what, name, began)


def _worker(teach: Callable[[Any], None], logs: Path, pipe: connection.Connection) -> None:
    """One job after the other; whichever fails ends the worker, which leaves nothing broken to the next."""
    while True:
        try:
            job: Job = pipe.recv()
        except EOFError:
            return
        _print_into(job.log)
        began = time.monotonic()
        teach(job.what)
        _note(logs, "job", job.trial, began)
        pipe.send("done")


def _print_into(log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    with log.open("wb") as handle:
        os.dup2(handle.fileno(), 1)
        os.dup2(handle.fileno(), 2)


def _note(logs: Path, what: str, name: str, began: float) -> None:
    with (logs / "times.jsonl").open("a") as handle:  # a line is written at once, whoever else writes
        handle.write(json.dumps([what, name, began, time.monotonic()]) + "\n")


# ---- the one loop -----------------------------------------------------------------------------------------------------


class Child:
    """A process and a pipe to it."""

    def __init__(self, name: str, inside: Callable[..., None], *given: Any) -> None:
        self.name = name
        self.pipe, theirs = FORKS.Pipe()
        self.process = FORKS.Process(target=inside, args=(*given, theirs))
        self.process.start()
        theirs.close()

    def tell(self, what: Any) -> None:
        with suppress(BrokenPipeError):  # it is dead, as will be heard
            self.pipe.send(what)

    def heard(self) -> bool:
        """Whether it has said a word; if not, it has ended."""
        with suppress(EOFError, ConnectionResetError):
            if self.pipe.poll():
                self.pipe.recv()
                return True
        self.process.join()
        return False

    def end(self) -> None:
        self.process.terminate()
        self.process.join(PATIENCE)
        self.process.kill()
        self.process.join()


@dataclass
class Pipeline:
    train: Callable[[str, Gate], None]  # the whole of a trial in a process of its own: prepares, calls the gate, trains
    teach: Callable[[Any], None]  # one job
    jobs: Callable[[str], list[Job]]  # of a trial that is trained, the long ones first
    finished: Callable[[str, dict[str, float]], None]  # all jobs are done; the seconds of each part
    logs: Path
    workers: int = 8
    ahead: int = 3  # trials that are prepared at once
    began: float = field(default_factory=time.monotonic)
    until: float = math.inf  # seconds from then: no clock is begun that might end later, together with its jobs
    expected: float = 0.0  # seconds of a clock and its jobs, as long as none was seen

    waiting: list[str] = field(default_factory=list, init=False)
    preparing: list[Child] = field(default_factory=list, init=False)
    ready: list[Child] = field(default_factory=list, init=False)
    clock: list[Child] = field(default_factory=list, init=False)  # one at most
    queue: list[Job] = field(default_factory=list, init=False)
    busy: dict[Child, Job] = field(default_factory=dict, init=False)
    idle: list[Child] = field(default_factory=list, init=False)
    failures: dict[str, list[Job]] = field(default_factory=dict, init=False)  # of those whose jobs are under way
    parts: dict[str, list[tuple[str, float]]] = field(default_factory=dict, init=False)  # what a trial did from when on
    seen: list[float] = field(default_factory=list, init=False)

    def run(self, names: Sequence[str]) -> list[str]:
        """All of them; gives those for which there was no time. Those that failed were said."""
        self.logs.mkdir(parents=True, exist_ok=True)
        self.waiting = list(names)
        try:
            self._begin()
            while self.preparing or self.clock or self.failures:
                self._listen()
                self._begin()
        finally:
            for child in self._children():
                child.end()
        return [*(child.name for child in self.ready), *self.waiting]

    def _children(self) -> list[Child]:
        return [*self.preparing, *self.ready, *self.clock, *self.busy, *self.idle]

    def _begin(self) -> None:
        """Whatever may begin now."""
        if self.clock:
            return
        while self.queue and len(self.busy) < self.workers:
            worker = self.idle.pop() if self.idle else Child("", _worker, self.teach, self.logs)
            self.busy[worker] = self.queue.pop(0)
            worker.tell(self.busy[worker])
        if not self.preparing and not self.ready:
            count = min(self.ahead, len(self.waiting))
            while count and not self._time_for(count):
                count -= 1
            for _ in range(count):
                name = self.waiting.pop(0)
                self.preparing.append(Child(name, _trial, self.train, name, self.logs))
                self._mark(name, "prepare")
        if self.ready and not self.preparing and not self.failures and self._time_for(1):
            self.clock.append(self.ready.pop(0))
            self._mark(self.clock[0].name, "clock")
            self.clock[0].tell("go")

    def _time_for(self, count: int) -> bool:
        each = max(self.seen, default=self.expected)
        return time.monotonic() - self.began + count * each <= self.until

    def _listen(self) -> None:
        """Wait until some process says a word or ends."""
        handles: dict[Any, Child] = {child.pipe: child for child in self._children()}
        handles |= {child.process.sentinel: child for child in self._children()}
        for child in {handles[handle] for handle in connection.wait(list(handles))}:
            alive = child.heard()
            if child in self.busy:
                self._job_ended(child, alive)
            elif child in self.idle:
                self.idle.remove(child)
            elif alive:
                self.preparing.remove(child)
                self.ready.append(child)
                self._mark(child.name, "wait")
            else:
                self._trial_ended(child)

    def _trial_ended(self, child: Child) -> None:
        for place in (self.preparing, self.ready, self.clock):
            if child in place:
                place.remove(child)
        if child.process.exitcode:
            print(f"{child.name}: the training failed; see {self.logs / child.name}.txt", flush=True)
            return
        self._mark(child.name, "jobs")
        self.failures[child.name] = []
        self.queue += self.jobs(child.name)
        self._perhaps_finished(child.name)

    def _job_ended(self, worker: Child, alive: bool) -> None:
        job = self.busy.pop(worker)
        if alive:
            self.idle.append(worker)
        else:
            self.failures[job.trial].append(job)
        self._perhaps_finished(job.trial)

    def _perhaps_finished(self, name: str) -> None:
        if any(job.trial == name for job in (*self.queue, *self.busy.values())):
            return
        failed = self.failures.pop(name)
        if failed:
            print(f"{name}: {len(failed)} jobs failed; see {failed[0].log}", flush=True)
            return
        self._mark(name, "end")
        parts = self.parts[name]
        seconds = {part: later - at for (part, at), (_, later) in pairwise(parts)}
        if "clock" in seconds:
            self.seen.append(seconds["clock"] + seconds["jobs"])
        self.finished(name, seconds)

    def _mark(self, name: str, part: str) -> None:
        self.parts.setdefault(name, []).append((part, time.monotonic()))
