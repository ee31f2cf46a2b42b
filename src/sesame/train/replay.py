"""Passes recorded once for each shape of a batch and played back: a small batch takes longer to launch than to compute.

    the first passes of a shape run as they are;  then forward, loss and backward are recorded as one CUDA graph
    every further batch of that shape is copied into the recording's own batch, and the graph runs

Relations: torch.compile also fuses kernels, but takes half a minute; a recording takes a tenth of a second, which suits
fine-tuning. Dropout still follows the seed: a graph reads it anew each time. Rare shapes are never recorded.
"""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sesame.data.batch import Batch
from sesame.objectives.base import Term
from sesame.train.passes import Counts, learn
from sesame.train.precision import Machine
from sesame.train.shadow import Shadow

PLAIN = 2  # passes of a shape before it is recorded; they also build what must not be built while recording
MOST = 32  # recordings; they share one memory, the graphs themselves take a few megabytes each


@dataclass
class Recording:
    graph: torch.cuda.CUDAGraph
    batch: Batch
    counts: Counts
    loss: Tensor
    terms: list[Term]
    learning: list[int]  # the weights that get gradients


class Replay(Shadow):
    """A shadow that plays its passes back. Gradients of all recordings arrive in the same arrays."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.gradients = [torch.empty_like(copy) if copy.requires_grad else None for _, copy in self.pairs]
        self.seen: Counter[Hashable] = Counter()
        self.known: dict[Hashable, Recording] = {}
        self.pool = torch.cuda.graph_pool_handle()

    def learn(self, batch: Batch, counts: Counts, machine: Machine) -> tuple[Tensor, list[Term]]:
        """Forward and backward. What it gives is good until the next call."""
        self.mirror()
        shape = (batch.layout(), tuple(copy.requires_grad for _, copy in self.pairs))
        found = self.known.get(shape)
        if found is None:
            self.seen[shape] += 1
            if self.seen[shape] <= PLAIN or len(self.known) >= MOST:
                return learn(self, batch, counts, machine)
            found = self.known[shape] = self._record(batch, counts, machine)
        for into, fresh in zip(found.batch.tensors(), batch.tensors(), strict=True):
            into.copy_(fresh)
        for name, count in counts.items():
            found.counts[name].copy_(count)
        found.graph.replay()
        for number in found.learning:
            self.pairs[number][1].grad = self.gradients[number]
        return found.loss, found.terms

    def _record(self, batch: Batch, counts: Counts, machine: Machine) -> Recording:
        """Only what gets a gradient in a plain pass gets one in the recording: idle weights must not decay."""
        batch, counts = batch.map(Tensor.clone), {name: count.clone() for name, count in counts.items()}
        learn(self, batch, counts, machine)
        learning = [number for number, (_, copy) in enumerate(self.pairs) if copy.grad is not None]
        for number in learning:
            if self.gradients[number] is None:  # unfrozen since
                self.gradients[number] = torch.empty_like(self.pairs[number][1])
            self.pairs[number][1].grad = self.gradients[number]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):  # loaders go on meanwhile
            torch._foreach_zero_([grad for number in learning if (grad := self.gradients[number]) is not None])
            loss, terms = learn(self, batch, counts, machine)
        torch.cuda.manual_seed(torch.cuda.initial_seed())  # as if this had been the first thing after the seed
        return Recording(graph, batch, counts, loss, terms, learning)
