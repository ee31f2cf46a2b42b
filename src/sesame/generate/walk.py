"""One hypothesis a line, one token after another: what greedy search and sampling share.

A line that ended leaves the computation. Samples of one source are lines of their own, so that each can leave alone.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from sesame.data.batch import Batch
from sesame.generate.base import Heard, Memory, Speaker
from sesame.generate.blocking import Rules
from sesame.generate.hypothesis import Hypothesis
from sesame.generate.top import normalizers

Choose = Callable[[Tensor, Tensor], Tensor]
"""logits (R, V) and the lines' numbers (R,) -> the next tokens (R,)."""


class Walk:
    """The lines that go on; line i belongs to source i // copies."""

    def __init__(self, batch: Batch, rules: Rules, copies: int) -> None:
        self.rules, self.copies = rules, copies
        count, device = batch.size * copies, batch.ids.device
        self.lines = torch.arange(count, device=device)
        self.said = torch.empty(count, 0, dtype=torch.long, device=device)
        self.total: Tensor | None = None  # (R,) log-probabilities
        self.found: list[Hypothesis | None] = [None] * count

    def run(self, speaker: Speaker, batch: Batch, choose: Choose) -> list[list[Hypothesis]]:
        heard = speaker.begin(batch)
        logits, memory = heard.logits, heard.memory
        if self.copies > 1:
            rows = self.lines // self.copies
            logits, memory = logits[rows], memory.select(rows[:, None])
        memory = self._step(Heard(logits, memory), choose)
        while len(self.lines):
            memory = self._step(speaker.next(self.said[:, -1], memory), choose)
        done = [hypothesis for hypothesis in self.found if hypothesis is not None]
        return [done[first : first + self.copies] for first in range(0, len(done), self.copies)]

    def _step(self, heard: Heard, choose: Choose) -> Memory:
        logits, memory, rules = heard.logits, heard.memory, self.rules
        self.total = logits.new_zeros(len(logits)) if self.total is None else self.total
        norms = normalizers(logits)
        rules.apply(logits, norms, self.lines // self.copies, self.said)
        stuck = logits.amax(1) == -torch.inf
        if stuck.any():
            self._finish(stuck, torch.zeros_like(stuck))
            logits, norms, memory = logits[~stuck], norms[~stuck], self._leave(stuck, memory)
        if not len(logits):
            return memory
        ids = choose(logits, self.lines)
        self.total = self.total + (logits.gather(1, ids[:, None])[:, 0] - norms).clamp(max=0)
        self.said = torch.cat([self.said, ids[:, None]], 1)
        ended = torch.isin(ids, rules.ends)
        over = ended | (self.said.shape[1] == rules.settings.most)
        if over.any():
            self._finish(over, ended)
            memory = self._leave(over, memory)
        return memory

    def _finish(self, over: Tensor, ended: Tensor) -> None:
        assert self.total is not None
        facts = (self.lines, self.said, self.total, ended)
        for line, ids, logprob, end in zip(*(fact[over].tolist() for fact in facts), strict=True):
            score = self.rules.settings.score(logprob, max(len(ids), 1))
            self.found[line] = Hypothesis(ids[:-1] if end else ids, logprob, score, ids[-1] if end else None)

    def _leave(self, over: Tensor, memory: Memory) -> Memory:
        assert self.total is not None
        stay = ~over
        self.lines, self.said, self.total = self.lines[stay], self.said[stay], self.total[stay]
        return memory.select(stay.nonzero()) if len(self.lines) else memory
