"""Many small requests, computed together: one queue and one working thread for each model.

    submit -> queue -> a batch: the oldest request and those after it with the same key -> work -> futures

A batch closes when it holds enough tokens or its oldest request has waited long enough; what waits while another batch is
computed has waited already. The queue is bounded: who finds it full is sent away at once and told when to come again.

Unusual: a future that is cancelled before its turn costs nothing more, so a client that leaves is forgotten. If a batch of
several fails, each of its requests is computed alone: one that cannot be answered does not spoil the others.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from sesame.progress import quiet
from sesame.serve.figures import Figures
from sesame.serve.limits import Limits

Work = Callable[[Sequence[Any]], list[Any]]
"""What was asked by requests of one key -> an answer for each of them."""


class Full(Exception):
    """The queue is full; `seconds` is when to come again."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"the queue is full; come again in {seconds} s")
        self.seconds = seconds


class Stopping(Exception):
    """Nothing new is taken."""


@dataclass(frozen=True)
class Item:
    asked: Any
    key: Hashable  # those of one key are computed together; None: alone
    tokens: int
    future: "Future[Any]" = field(default_factory=Future)
    arrived: float = field(default_factory=time.monotonic)


class Batcher:
    def __init__(self, work: Work, limits: Limits, name: str = "model", figures: Figures | None = None) -> None:
        self.work, self.limits, self.name, self.figures = work, limits, name, figures
        self.waiting: deque[Item] = deque()
        self.change = threading.Condition()
        self.stopping = False
        self.pace = 0.05  # seconds a request takes, a running mean
        self.thread = threading.Thread(target=self._run, name=f"batches of {name}", daemon=True)
        self.thread.start()
        if figures is not None:
            figures.queues[name] = lambda: len(self.waiting)

    def submit(self, asked: Any, key: Hashable, tokens: int) -> "Future[Any]":
        with self.change:
            if self.stopping:
                raise Stopping
            if len(self.waiting) >= self.limits.queue:
                raise Full(max(1, math.ceil(len(self.waiting) * self.pace)))
            item = Item(asked, key, tokens)
            self.waiting.append(item)
            self.change.notify()
        return item.future

    def stop(self, wait: bool = True) -> None:
        """Take nothing more; what was taken is computed without waiting for company."""
        with self.change:
            self.stopping = True
            self.change.notify()
        if wait:
            self.thread.join()

    # ---- the working thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        with quiet():  # what the library would tell a person at the terminal
            while (batch := self._take()) is not None:
                started = time.monotonic()
                self._compute(batch)
                self.pace += 0.2 * ((time.monotonic() - started) / len(batch) - self.pace)

    def _take(self) -> list[Item] | None:
        """The next batch, when it is full or due; None at the end."""
        with self.change:
            while True:
                while self.waiting and self.waiting[0].future.cancelled():
                    self._forget(self.waiting.popleft())
                if not self.waiting and self.stopping:
                    return None
                if not self.waiting:
                    self.change.wait()
                    continue
                batch, closed = self._together()
                left = batch[0].arrived + self.limits.deadline - time.monotonic()
                if closed or self.stopping or left <= 0:
                    return self._leave(batch)
                self.change.wait(left)

    def _together(self) -> tuple[list[Item], bool]:
        """The oldest request and its company, and whether there is no room for more."""
        first = self.waiting[0]
        if first.key is None:
            return [first], True
        batch, tokens = [first], first.tokens
        for item in list(self.waiting)[1:]:
            if item.key != first.key or item.future.cancelled():
                continue
            if tokens + item.tokens > self.limits.batch:
                return batch, True
            batch.append(item)
            tokens += item.tokens
        return batch, tokens >= self.limits.batch

    def _leave(self, batch: list[Item]) -> list[Item]:
        chosen = {id(item) for item in batch}
        self.waiting = deque(item for item in self.waiting if id(item) not in chosen)
        return batch

    def _forget(self, item: Item) -> None:
        item.future.set_running_or_notify_cancel()
        if self.figures is not None:
            self.figures.left(self.name)

    def _compute(self, batch: list[Item]) -> None:
        live = []
        for item in batch:
            if item.future.set_running_or_notify_cancel():
                live.append(item)
            elif self.figures is not None:
                self.figures.left(self.name)
        if not live:
            return
        if self.figures is not None:
            self.figures.batch(self.name, len(live), sum(item.tokens for item in live))
        try:
            answers = self.work([item.asked for item in live])
        except Exception as error:
            if len(live) == 1:
                live[0].future.set_exception(error)
                return
            for item in live:
                self._alone(item)
            return
        for item, answer in zip(live, answers, strict=True):
            item.future.set_result(answer)

    def _alone(self, item: Item) -> None:
        try:
            (answer,) = self.work([item.asked])
        except Exception as error:
            item.future.set_exception(error)
        else:
            item.future.set_result(answer)
