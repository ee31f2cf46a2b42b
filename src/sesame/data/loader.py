"""The loader: batch number n of a stage, at once and always the same.

It has no state but its settings: a batch is a function of (seed, step), so a run resumes in O(1) and needs no worker
processes to be kept alive. Threads prepare the next steps while the device computes. NumPy and PyTorch release the
interpreter in the work that matters, but every operation asks for it back, and the thread that feeds the device must not
stand in a queue of eight for it: so one thread loads, and another one joins whenever the device had to wait for a batch.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue

import numpy as np
import torch

from sesame import chance
from sesame.data.batch import Batch
from sesame.data.order import Rows, locate
from sesame.data.pack import Packer

STAIRS = 8
MEASURED = 8  # steps that show how many tokens a batch has


@dataclass(frozen=True)
class Loader:
    """Draws the micro-batches of a step for one rank, and corrupts them."""

    packer: Packer
    batch: int  # examples in a step, over all ranks
    micro: int  # examples at a time
    seed: int
    corrupt: Callable[[Batch, float], Batch]
    static: int = 0  # BERT's fixed masks: the chance of an example returns after so many epochs; 0: never
    unpad: int = 0  # above 0: backbones leave the padding out, and real tokens are filled up to a multiple of this ...
    anchor: int = 0  # ... counted from here
    ramp: int = 0  # steps over which the batch grows to its size, in STAIRS equal stairs
    rank: int = 0
    ranks: int = 1

    def rows(self, step: int) -> tuple[Rows, Rows]:
        """Epochs and rows of this rank's examples in a step."""
        share = self.share(step)
        return locate(self.before(step) + self.rank * share, share, len(self.packer), self.seed)

    def share(self, step: int) -> int:
        """Examples of each rank in a step."""
        size = self.batch if step >= self.ramp else _stair(self.batch, step * STAIRS // self.ramp)
        return size // self.ranks

    def before(self, step: int) -> int:
        """Examples of all ranks in all steps before this one."""
        at, found = 0, max(0, step - self.ramp) * self.batch
        for stair in range(STAIRS if self.ramp else 0):
            end = -(-(stair + 1) * self.ramp // STAIRS)
            found += max(0, min(step, end) - at) * _stair(self.batch, stair)
            at = end
        return found

    def load(self, step: int, progress: float) -> list[Batch]:
        epochs, rows = self.rows(step)
        if self.static:
            epochs = epochs % self.static
        batches = []
        at_once = self.at_once(rows)
        for start in range(0, len(rows), at_once):
            part = slice(start, start + at_once)
            keys = np.empty(len(rows[part]), dtype=np.uint64)
            for epoch in np.unique(epochs[part]):
                here = epochs[part] == epoch
                keys[here] = chance.keys(chance.key(self.seed, int(epoch), 1), rows[part][here])
            batch = self.corrupt(self.packer.draw(rows[part], keys), progress)
            batches.append(batch.unpadded(self.unpad, self.anchor) if self.unpad and not batch.full else batch)
        return batches

    def tokens(self, steps: int) -> tuple[float, float]:
        """How many tokens a micro-batch has, as the first steps show it: mean and deviation."""
        found = []
        for step in range(steps):
            epochs, rows = self.rows(step)
            keys = chance.keys(chance.key(self.seed, int(epochs[0]), 1), rows)
            found.append(self.packer.draw(rows, keys).lengths)
        lengths = torch.cat(found).double()
        return self.micro * float(lengths.mean()), float(self.micro**0.5 * lengths.std(correction=0))

    def at_once(self, rows: Rows) -> int:
        """How many of these examples are computed together."""
        return self.micro

    def sources(self, step: int) -> list[str]:
        """Where the texts of a step come from: "file:line"."""
        _, rows = self.rows(step)
        return list(dict.fromkeys(self.packer.source(int(row)) for row in rows))


def _stair(batch: int, number: int) -> int:
    """The examples of a step on a stair, the first being 0."""
    return max(1, batch * (number + 1) // STAIRS)


def one_shape(loader: Loader, length: int) -> tuple[int, int]:
    """To what multiple, counted from where, the tokens of a batch are filled up.

    A GPU runs compiled shapes, and takes half a minute for a new one. The number of real tokens hardly varies: five
    deviations to each side of its mean are one step of the multiple, which a batch leaves once in a million. Steps of several
    sources vary by nature; two or three shapes must do.
    """
    if type(loader) is not Loader:
        return 64 * -(-loader.micro * length // 1024), 0
    mean, deviation = loader.tokens(MEASURED)
    return 64 * (1 + int(10 * deviation) // 64), 64 * (1 + int(mean + 5 * deviation) // 64)


class Prefetcher:
    """Keeps the next few steps ready, on the device."""

    def __init__(
        self,
        load: Callable[[int], list[Batch]],
        device: torch.device,
        first: int,
        threads: int = 1,
    ) -> None:
        """`threads`: at most so many load at the same time."""
        self.load_step, self.device, self.most = load, device, threads
        # Each thread of a GPU's loader computes alone: teams of threads would take the cores from the one that feeds the GPU.
        self.cores = torch.get_num_threads()
        self.each = 1 if device.type == "cuda" else self.cores
        self.threads: list[threading.Thread] = []
        self.jobs: SimpleQueue[tuple[int, Future[list[Batch]]] | None] = SimpleQueue()
        self.waiting: dict[int, Future[list[Batch]]] = {}
        self._fill(first)
        self.hurry()

    def get(self, step: int) -> list[Batch]:
        """The batches of a step; steps other than the next one are fetched anew (after a roll-back)."""
        self._fill(step)
        for old in [number for number in self.waiting if number < step]:
            self.waiting.pop(old).cancel()
        return self.waiting.pop(step).result()

    def hurry(self) -> None:
        """One more thread: the device had to wait."""
        if len(self.threads) < self.most:
            self.threads.append(threading.Thread(target=self._work, name="loader", daemon=True))
            self.threads[-1].start()

    def close(self) -> None:
        for future in self.waiting.values():
            future.cancel()
        for _ in self.threads:
            self.jobs.put(None)
        for thread in self.threads:
            thread.join()
        torch.set_num_threads(self.cores)  # threads that start later ask what the last one set

    def _fill(self, first: int) -> None:
        for step in range(first, first + self.most + 2):  # nobody is idle while two steps are ready
            if step not in self.waiting:
                self.waiting[step] = Future()
                self.jobs.put((step, self.waiting[step]))

    def _work(self) -> None:
        torch.set_num_threads(self.each)
        while (job := self.jobs.get()) is not None:
            step, future = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                pin = self.device.type == "cuda"
                future.set_result([batch.to(self.device, pin=pin) for batch in self.load_step(step)])
            except BaseException as error:  # whoever asks for the step is told
                future.set_exception(error)
