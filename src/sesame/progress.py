"""Progress that people and logs can read: a bar with rate and time left on a terminal, plain lines when piped.

Of the processes that `torchrun` starts, only the first one speaks.
"""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Protocol


class Bar(Protocol):
    def advance(self, amount: float = 1) -> None: ...

    def note(self, text: str) -> None:
        """Show `text` behind the bar: losses, rates."""


def speaks() -> bool:
    """Whether this process speaks to the user: it is alone, or the first of many."""
    return os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("RANK", "0") == "0"


_here = threading.local()


@contextmanager
def quiet() -> Iterator[None]:
    """Nothing is said within, in this thread: a server's log must not grow with every request."""
    _here.quiet = True
    try:
        yield
    finally:
        _here.quiet = False


def say(text: str) -> None:
    """One line for the user, on stderr, so that stdout stays free for answers."""
    if speaks() and not getattr(_here, "quiet", False):
        print(text, file=sys.stderr, flush=True)


@contextmanager
def bar(what: str, total: float | None, unit: str = "") -> Iterator[Bar]:
    """Show the progress of `what`. `unit` "B" counts in megabytes; `total` None means that the end is not known."""
    if sys.stderr.isatty() and speaks():
        with _TerminalBar(what, total, unit) as shown:
            yield shown
    else:
        yield _Lines(what, total, unit)


class _Lines:
    """A line at most every ten seconds."""

    every = 10.0

    def __init__(self, what: str, total: float | None, unit: str) -> None:
        self.what, self.total, self.unit = what, total, unit
        self.done, self.text = 0.0, ""
        self.started = self.shown = time.monotonic()

    def advance(self, amount: float = 1) -> None:
        self.done += amount
        now = time.monotonic()
        if now - self.shown >= self.every:
            self.shown = now
            rate = self.done / (now - self.started)
            share = f"{100 * self.done / self.total:.0f} %" if self.total else _amount(self.done, self.unit)
            left = f", {_clock((self.total - self.done) / rate)} left" if self.total and rate else ""
            behind = f"  {self.text}" if self.text else f"  {_amount(rate, self.unit)}/s"
            say(f"{self.what}: {share}{left}{behind}")

    def note(self, text: str) -> None:
        self.text = text


class _TerminalBar:
    def __init__(self, what: str, total: float | None, unit: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self.unit, self.started, self.done = unit, time.monotonic(), 0.0
        self.noted = False
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %" if total else ""),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[behind]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self.task = self.progress.add_task(what, total=total, behind="")

    def __enter__(self) -> "_TerminalBar":
        self.progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.progress.stop()

    def advance(self, amount: float = 1) -> None:
        self.done += amount
        self.progress.advance(self.task, amount)
        if not self.noted:
            rate = self.done / max(time.monotonic() - self.started, 1e-6)
            self.progress.update(self.task, behind=f"{_amount(rate, self.unit)}/s")

    def note(self, text: str) -> None:
        self.noted = True
        self.progress.update(self.task, behind=text)


def _amount(value: float, unit: str) -> str:
    return f"{value / 1e6:.1f} MB" if unit == "B" else f"{value:,.0f} {unit}".rstrip()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def many_steps(count: int) -> str:
    return f"{count:,} step" + ("" if count == 1 else "s")


def duration(seconds: float) -> str:
    """As people say it."""
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{seconds:.0f} s"
