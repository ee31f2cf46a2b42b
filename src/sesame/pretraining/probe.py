"""Trying a training step on this machine: how many rows fit, how many are fastest, how fast that is.

Steps are real ones, of real text, with the optimiser's memory and the loop's snapshot in place; the weights that they move
are thrown away afterwards. On a GPU the number of rows doubles until memory runs out, then the border is halved in.
On a CPU memory is estimated by formula (to run out of it would end the process) and a few sizes are timed.
"""

import gc
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.train.accounting import peak_memory
from sesame.train.loop import Window, take_step
from sesame.train.optim import Optimizer
from sesame.train.precision import Machine
from sesame.train.state import Snapshot, State

HEADROOM = 0.92  # share of a GPU's memory that may be used: evaluation and torn memory need some
MOST_TOKENS = 1 << 20  # at a time; no device gains from more, and kernels count in 32 bits
CPU_TOKENS = (1024, 2048, 4096, 8192, 16384)  # sizes that are timed on a CPU
BETTER, TURNS = 1.1, 3  # another size than the usual one must be so much faster, in the best of three tries
LEAST, SECONDS = 3.0, 20.0  # for each measurement, once the first step is done

DRAWN = 64  # steps whose rows are counted, in a tenth of that time at most

Load = Callable[[int], list[Batch]]
"""The micro-batches of a step, from the store."""


@dataclass(frozen=True)
class Speed:
    """What a few steps showed."""

    tokens_per_second: float
    tokens_per_row: float
    padding: float
    first: float  # seconds of the first step beyond those of the others: compilation
    loading: float  # seconds that one thread takes to make the batches of a second of training
    memory: int


class Probe:
    """A model that may be spoilt, and the machine it runs on. `call` is the model as it will be run, perhaps compiled."""

    def __init__(
        self, model: nn.Module, call: Callable[[Batch], object], optimizer: Optimizer, machine: Machine, clip: float
    ) -> None:
        self.model, self.call, self.optimizer, self.machine, self.clip = model, call, optimizer, machine, clip
        self.snapshot: Snapshot | None = None
        model.train()

    def step(self, batches: list[Batch], call: Callable[..., object] | None = None) -> float:
        """Seconds of one step of the optimiser."""
        return self.run([batches], call)

    def run(self, steps: list[list[Batch]], call: Callable[..., object] | None = None) -> float:
        """Seconds of some steps, one after the other. Their rate is nought: the weights stay, the work is the same."""
        self.optimizer.set_rate(0.0)
        ready = [[batch.to(self.machine.device) for batch in batches] for batches in steps]
        self._wait()
        began = time.perf_counter()
        for batches in ready:
            take_step(self.model, call or self.call, self.optimizer, batches, self.clip, self.machine, 0, Window())  # type: ignore[arg-type]
        self._wait()
        seconds = time.perf_counter() - began
        if self.snapshot is None:  # the loop keeps one, so its memory is gone
            self.snapshot = Snapshot(self.model, self.optimizer, State())
        return seconds

    def _wait(self) -> None:
        if self.machine.device.type == "cuda":
            torch.cuda.synchronize(self.machine.device)

    # ---- what fits -------------------------------------------------------------------------------------------------

    def largest(self, rows: Callable[[int], list[Batch]], length: int, first: int) -> int:
        """The most rows at a time whose step fits into a GPU's memory; `rows` makes a batch of so many.

        The model runs as it is, not compiled: a compiled one keeps less, so what is found here fits there.
        """
        device = self.machine.device
        torch.cuda.set_per_process_memory_fraction(HEADROOM, device)
        try:
            if not self._fits(rows(1)):
                raise SesameError(
                    f"one row of {length} tokens does not fit into the memory of this GPU; "
                    "take a smaller --size or a shorter length (--set stages.NAME.length=N)"
                )
            return largest(lambda count: self._fits(rows(count)), first, max(1, MOST_TOKENS // length))
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0, device)

    def _fits(self, batches: list[Batch]) -> bool:
        try:
            self.step(batches, self.model)
            fits = True
        except torch.OutOfMemoryError:
            fits = False
        self.optimizer.zero_grad()
        gc.collect()
        torch.cuda.empty_cache()
        return fits

    def fastest(self, rows: Callable[[int], list[Batch]], sizes: list[int], usual: int) -> int:
        """The number of rows with the most tokens a second; `usual` unless another one is clearly better.

        The sizes take turns and the best moment of each counts, so that other work on the machine hits all alike.
        """
        rates: dict[int, float] = {}
        deadline = time.perf_counter() + SECONDS
        batches = {count: rows(count) for count in (usual, *sorted({*sizes} - {usual}))}
        self.step(batches[usual])  # the first one is slower
        for _ in range(TURNS):
            for count, found in batches.items():
                if time.perf_counter() > deadline:
                    break
                rates[count] = max(rates.get(count, 0.0), _tokens(found) / self.step(found))
        best = max(rates, key=rates.__getitem__, default=usual)
        return best if best != usual and rates[best] > BETTER * rates[usual] else usual

    # ---- how fast --------------------------------------------------------------------------------------------------

    def speed(self, load: Load, steps: int) -> Speed:
        """Measure `steps` steps or more; of steps too long for that, as many micro-batches as there is time for."""
        began = time.perf_counter()
        batches = load(0)
        loading = time.perf_counter() - began
        if self.machine.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.machine.device)
        first = self.step(batches[:1])
        again = self.step(batches[:1]) if first < SECONDS else first
        taken = max(1, min(len(batches), int(SECONDS / (steps * again))))
        together = steps if self.machine.device.type == "cuda" else 1  # a GPU is not to wait between two steps
        rates: list[float] = []
        seconds, number = 0.0, 1
        while (number <= steps or seconds < LEAST) and seconds < SECONDS:
            parts = [load(number + ahead)[:taken] for ahead in range(together)]
            took = self.run(parts)
            rates.append(sum(map(_tokens, parts)) / took)
            seconds, number = seconds + took, number + together
        rate, (tokens, rows, places) = statistics.median(rates), _sizes(load)
        return Speed(
            tokens_per_second=rate,
            tokens_per_row=tokens / rows,
            padding=1 - tokens / places,
            first=max(first - again, 0.0),
            loading=loading * rate / _tokens(batches),
            memory=peak_memory(self.machine.device),
        )


def _sizes(load: Load) -> tuple[int, int, int]:
    """Tokens, rows and places of several steps: a single one may have rows of one length, or of one language."""
    began, tokens, rows, places = time.perf_counter(), 0, 0, 0
    for step in range(DRAWN):
        for batch in load(step):
            tokens += int(batch.lengths.sum())
            rows += batch.size
            places += batch.ids.numel()
        if time.perf_counter() - began > SECONDS / 10:
            break
    return tokens, rows, places


def _tokens(batches: list[Batch]) -> int:
    return sum(int(batch.lengths.sum()) for batch in batches)


def largest(fits: Callable[[int], bool], first: int, most: int) -> int:
    """The largest number up to `most` that fits, to a sixteenth; 1 is known to fit. Doubling, then halving the gap."""
    good, bad = 1, most + 1
    count = min(max(first, 1), most)
    while good < most:
        if fits(count):
            good = max(good, count)
        else:
            bad = min(bad, count)
        if bad - good <= max(1, good // 16):
            break
        count = min(2 * good, most) if bad > most else (good + bad) // 2
    return good


def even(batch: int, most: int) -> int:
    """Rows at a time, at most `most`, so that all micro-batches of a step have nearly the same shape."""
    parts = -(-batch // min(most, batch))
    return -(-batch // parts)


def free_memory() -> int:
    """Bytes that a process may still take on this computer."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):  # not Linux
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
