"""Steps recorded once for each shape of a batch and played back: a small batch takes longer to launch than to compute.

    the first steps of a shape run as they are;  then one is recorded, from rounding the weights to moving them, as a CUDA
    graph;  every further batch of that shape is copied into the recording's own batch, and the graph runs

Relations: torch.compile fuses kernels, but takes half a minute; a recording takes a tenth of a second, which suits
fine-tuning. Pre-training does both: what was compiled is recorded, so that a small model does not wait for its launches
while the loaders take the interpreter. A step that is played back is five operations: a copy of the batch, the rate, the
seed, the graph, a copy of what it tells. Dropout still follows the seed and the rate its schedule: a graph reads both anew
each time. Rare shapes are never recorded, nor are steps of several micro-batches.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sesame.data.batch import Batch
from sesame.progress import say
from sesame.train.optim import Optimizer
from sesame.train.precision import Machine
from sesame.train.shadow import Shadow
from sesame.train.step import Told, count_targets, one_step

PLAIN = 2  # steps of a shape before it is recorded; they also build what must not be built while recording
MOST = 48  # recordings; they share one memory, the graphs themselves take a few megabytes each


@dataclass
class Recording:
    graph: torch.cuda.CUDAGraph
    batch: Batch
    told: Told


class Replay(Shadow):
    """A shadow whose steps are played back."""

    def __init__(
        self, model: nn.Module, dress: Callable[[nn.Module], Callable[..., Any]] = lambda model: model
    ) -> None:
        super().__init__(model, dress)
        self.seen: Counter[Hashable] = Counter()
        self.known: dict[Hashable, Recording] = {}
        self.pool = torch.cuda.graph_pool_handle()
        self.rate = torch.zeros((), device=self.pairs[0][0].device)
        self.most = MOST

    def forget(self) -> None:
        """Something that is fixed in the recordings has changed, such as dropout."""
        self.known.clear()
        self.seen.clear()
        self.pool = torch.cuda.graph_pool_handle()  # the old one ended with its last recording

    def step(self, optimizer: Optimizer, batch: Batch, clip: float, machine: Machine, seed: int) -> Told:
        trained = tuple(owner.requires_grad for owner, _ in self.pairs)
        shape = (batch.layout(), trained, optimizer.version, clip)
        found = self.known.get(shape)
        if found is None:
            self.seen[shape] += 1
            if self.seen[shape] > PLAIN and len(self.known) < self.most and optimizer.recordable:
                found = self._try_to_record(optimizer, batch, clip, machine)
            if found is None:
                return one_step(self.source, self, optimizer, [batch], count_targets([batch]), clip, machine, [seed])
            self.known[shape] = found
        _copy(batch, found.batch)
        self.rate.fill_(optimizer.rate)
        torch.manual_seed(seed)
        found.graph.replay()
        return Told(found.told.names, found.told.values.clone())

    def _try_to_record(self, optimizer: Optimizer, batch: Batch, clip: float, machine: Machine) -> Recording | None:
        """None where the memory does not suffice or a step waits for the device: steps then run as they are, from now on."""
        torch.cuda.empty_cache()  # recordings have a memory of their own: give back what plain steps had taken
        stream = torch.cuda.current_stream()
        try:
            return self._record(optimizer, batch, clip, machine)
        except RuntimeError as error:
            say(f"steps are launched one by one from here on, recording them failed: {str(error).splitlines()[0]}")
            self.most = 0
            torch.cuda.set_stream(stream)  # a recording that fails leaves its own, where nothing waits for the loaders
            optimizer.zero_grad()
            torch.cuda.empty_cache()
            return None

    def _record(self, optimizer: Optimizer, batch: Batch, clip: float, machine: Machine) -> Recording:
        batch = batch.map(Tensor.clone) if batch.whole is None else batch.over(batch.whole.clone())
        graph = torch.cuda.CUDAGraph()
        with (
            torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"),  # loaders go on meanwhile
            self._rate_on_device(optimizer),
        ):
            told = one_step(self.source, self, optimizer, [batch], count_targets([batch]), clip, machine)
        optimizer.zero_grad()  # gradients live in the recordings' memory: nobody else may hold on to them
        return Recording(graph, batch, told)

    @contextmanager
    def _rate_on_device(self, optimizer: Optimizer) -> Iterator[None]:
        groups = optimizer.groups()
        before = [dict(group) for group in groups]
        for group in groups:
            group |= {"lr": self.rate * group.get("scale", 1.0)}
            group |= {"capturable": True} if "capturable" in group else {}
        try:
            yield
        finally:
            for kept, group in zip(before, groups, strict=True):
                group |= kept


def _copy(batch: Batch, into: Batch) -> None:
    """Batches of one layout; at once where both are one array."""
    if batch.whole is not None and into.whole is not None:
        into.whole.copy_(batch.whole)
        return
    for old, fresh in zip(into.tensors(), batch.tensors(), strict=True):
        old.copy_(fresh)
