"""Beam search: follow the `beams` likeliest beginnings of each source, keep the best that end.

    score = logprob / divisor(length) + beta * sum_i log(min(sum_j p_ij, 1))      (settings.py)

At each step the (1 + end tokens) * beams likeliest continuations of a source are looked at. Those among the first `beams`
that end are finished hypotheses; the first `beams` that do not end run on. At the greatest length all of the first `beams`
are finished. This is transformers' rule, which is fairseq's.
Paper of the penalties: Wu et al. 2016 (https://arxiv.org/abs/1609.08144). When a source is done: `finished.py`.
Unusual: the coverage penalty ranks finished hypotheses only. A place that was never looked at counts as looked at by 1e-6,
for the logarithm of nothing would forbid every text that is short. Sources that are done leave the computation, and so do
places of the grid that no source fills (the first step, a forced prefix).
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.generate.base import Heard, Speaker
from sesame.generate.blocking import Rules
from sesame.generate.finished import Finished
from sesame.generate.hypothesis import Hypothesis
from sesame.generate.top import continuations, normalizers

UNSEEN = 1e-6


@dataclass(frozen=True)
class Front:
    """The hypotheses that run, S sources and n each; minus infinity where a source has fewer."""

    sources: Tensor  # (S,) numbers in the batch
    running: Tensor  # (S, n) log-probabilities, the best first
    said: Tensor  # (S, n, t)
    seen: Tensor | None  # (S, n, L) how much each place of the source was looked at


@dataclass(frozen=True)
class Found:
    """The likeliest continuations of each source, K each, the likeliest first."""

    logprobs: Tensor  # (S, K)
    parents: Tensor  # (S, K) hypotheses, 0 to n - 1
    tokens: Tensor  # (S, K)
    ended: Tensor  # (S, K)


def beam(speaker: Speaker, batch: Batch, rules: Rules) -> list[list[Hypothesis]]:
    settings, looks = rules.settings, rules.settings.coverage > 0
    finished = [Finished(settings) for _ in range(batch.size)]
    heard = speaker.begin(batch, looks)
    front = _start(heard, batch)
    while True:
        front = _look(front, heard, batch) if looks else front
        found = _search(heard.logits, front, rules)
        _finish(finished, front, found, rules, batch)
        rows, front = _go_on(finished, front, found, rules)
        if not front.running.numel():
            return [one.kept[: settings.best] for one in finished]
        heard = speaker.next(front.said[..., -1].flatten(), heard.memory.select(rows), looks)


def _start(heard: Heard, batch: Batch) -> Front:
    device = batch.ids.device
    running = heard.logits.new_zeros(batch.size, 1)
    said = torch.empty(batch.size, 1, 0, dtype=torch.long, device=device)
    return Front(torch.arange(batch.size, device=device), running, said, None)


def _look(front: Front, heard: Heard, batch: Batch) -> Front:
    if heard.looked is None:
        raise SesameError("generate.coverage needs a model that looks at a source (an encoder-decoder); set it to 0")
    missing = batch.ids.shape[1] - heard.looked.shape[1]  # a memory may forget padding when the longest source leaves
    looked = F.pad(heard.looked, (0, missing)).view(*front.running.shape, -1)
    return Front(front.sources, front.running, front.said, looked if front.seen is None else front.seen + looked)


def _search(logits: Tensor, front: Front, rules: Rules) -> Found:
    settings, n = rules.settings, front.running.shape[1]
    norms = normalizers(logits)
    rules.apply(logits, norms, front.sources.repeat_interleave(n), front.said.flatten(0, 1))
    count = settings.beams * (1 + max(len(rules.ends), 1))
    logprobs, parents, tokens = continuations(logits, norms, front.running, count)
    ended = torch.isin(tokens, rules.ends)
    return Found(logprobs, parents, tokens, ended)


def _finish(finished: list[Finished], front: Front, found: Found, rules: Rules, batch: Batch) -> None:
    """Keep those of the first `beams` that end here."""
    settings, step = rules.settings, front.said.shape[2] + 1
    logprobs = found.logprobs[:, : settings.beams]
    over = found.ended[:, : settings.beams] if step < settings.most else torch.ones_like(logprobs, dtype=torch.bool)
    lines, ranks = (over & (logprobs > -torch.inf)).nonzero(as_tuple=True)
    if not len(lines):
        return
    parents = found.parents[lines, ranks]
    facts = (front.sources[lines], logprobs[lines, ranks], found.tokens[lines, ranks], found.ended[lines, ranks])
    covered = _covered(front, lines, parents, batch, settings.coverage)
    said = front.said[lines, parents].tolist()
    rows = zip(*(fact.tolist() for fact in facts), covered, said, strict=True)
    for source, logprob, token, ended, bonus, ids in rows:
        score = settings.score(logprob, step) + bonus
        if finished[source].welcomes(score):
            whole = ids if ended else [*ids, token]
            finished[source].add(Hypothesis(whole, logprob, score, token if ended else None))


def _covered(front: Front, lines: Tensor, parents: Tensor, batch: Batch, beta: float) -> list[float]:
    """The coverage penalty of some hypotheses."""
    if front.seen is None:
        return [0.0] * len(lines)
    seen = front.seen[lines, parents]
    lengths = batch.lengths[front.sources[lines]]
    real = torch.arange(seen.shape[1], device=seen.device) < lengths[:, None]
    costs: list[float] = (beta * (seen.clamp(UNSEEN, 1).log() * real).sum(1)).tolist()
    return costs


def _go_on(finished: list[Finished], front: Front, found: Found, rules: Rules) -> tuple[Tensor, Front]:
    """The hypotheses of the next step, and where they stand today: rows (S', n')."""
    n, step = front.running.shape[1], front.said.shape[2] + 1
    logprobs = found.logprobs.masked_fill(found.ended, -torch.inf)
    order = (logprobs == -torch.inf).to(torch.uint8).argsort(dim=1, stable=True)[:, : rules.settings.beams]
    running, parents, tokens = (table.gather(1, order) for table in (logprobs, found.parents, found.tokens))
    stay = _stay(finished, front, running[:, 0].tolist(), step, rules)
    live = (
        (running[stay] > -torch.inf).any(0).nonzero()[:, 0]
    )  # places of the grid that some source fills: the first ones
    running, parents, tokens = (table[stay][:, : len(live)] for table in (running, parents, tokens))
    rows = stay[:, None] * n + parents
    said = torch.cat([front.said.flatten(0, 1)[rows], tokens[..., None]], 2)
    seen = None if front.seen is None else front.seen.flatten(0, 1)[rows]
    return rows, Front(front.sources[stay], running, said, seen)


def _stay(finished: list[Finished], front: Front, best: list[float], step: int, rules: Rules) -> Tensor:
    """The lines of the sources that are not done."""
    stay = []
    for line, (source, running) in enumerate(zip(front.sources.tolist(), best, strict=True)):
        if running == -torch.inf or step == rules.settings.most:
            _strand(finished[source], front, line, rules)
        elif not finished[source].settled(running, step):
            stay.append(line)
    return torch.tensor(stay, dtype=torch.long, device=front.sources.device)


def _strand(finished: Finished, front: Front, line: int, rules: Rules) -> None:
    """Nothing may follow (all is forbidden): a source without any finished hypothesis keeps those that ran, cut."""
    if finished.kept:
        return
    for logprob, ids in zip(front.running[line].tolist(), front.said[line].tolist(), strict=True):
        if logprob > -torch.inf:
            score = rules.settings.score(logprob, max(len(ids), 1))
            finished.add(Hypothesis(ids, logprob, score, None))
