"""What a model thinks of given texts: log-probability of each token, perplexity.

    logprob(text) = sum_t log p(text_t | source, text_<t),    perplexity = exp(-sum of logprobs / number of tokens)

A source is read once for all the texts that are asked about (the answers of a multiple choice, an n-best list).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.generate.base import Speaker
from sesame.generate.top import normalizers


@dataclass(frozen=True)
class Judged:
    tokens: list[float]  # the log-probability of each token of a text

    @property
    def logprob(self) -> float:
        return math.fsum(self.tokens)


def judge(
    speaker: Speaker, batch: Batch, texts: Sequence[Sequence[Sequence[int]]], end: int | None = None
) -> list[list[Judged]]:
    """For each source, what the model thinks of some texts; `end` is counted behind each of them where it is given."""
    if len(texts) != batch.size:
        raise SesameError(f"there are texts for {len(texts)} sources, but {batch.size} sources; give a list for each")
    wanted = [([*ids] if end is None else [*ids, end]) for some in texts for ids in some]
    owners = [source for source, some in enumerate(texts) for _ in some]
    for ids, source in zip(wanted, owners, strict=True):
        if any(not 0 <= id < speaker.vocab for id in ids):
            raise SesameError(
                f"a text of source {source + 1} has a token beyond the model's {speaker.vocab}; check the tokenizer"
            )
    with torch.inference_mode():
        found = iter(_walk(speaker, batch, wanted, owners) if any(wanted) else [[] for _ in wanted])
    return [[Judged(next(found)) for _ in some] for some in texts]


def perplexity(judged: Iterable[Judged]) -> float:
    """Of all tokens together."""
    tokens = [logprob for one in judged for logprob in one.tokens]
    if not tokens:
        raise SesameError("there is no token to compute a perplexity from; give texts that are not empty")
    return math.exp(-math.fsum(tokens) / len(tokens))


def _walk(speaker: Speaker, batch: Batch, wanted: list[list[int]], owners: list[int]) -> list[list[float]]:
    device = batch.ids.device
    found: list[list[float]] = [[] for _ in wanted]
    lines = [line for line, ids in enumerate(wanted) if ids]
    heard = speaker.begin(batch)
    rows = torch.tensor([owners[line] for line in lines], device=device)
    logits, memory = heard.logits[rows], heard.memory.select(rows[:, None])
    for step in range(max(map(len, wanted))):
        ids = torch.tensor([wanted[line][step] for line in lines], device=device)
        for line, logprob in zip(lines, _logprobs(logits, ids), strict=True):
            found[line].append(logprob)
        stay = [row for row, line in enumerate(lines) if len(wanted[line]) > step + 1]
        if not stay:
            break
        if len(stay) < len(lines):
            rows = torch.tensor(stay, device=device)
            ids, memory, lines = ids[rows], memory.select(rows[:, None]), [lines[row] for row in stay]
        heard = speaker.next(ids, memory)
        logits, memory = heard.logits, heard.memory
    return found


def _logprobs(logits: Tensor, ids: Tensor) -> list[float]:
    logprobs: list[float] = (logits.gather(1, ids[:, None])[:, 0] - normalizers(logits)).clamp(max=0).tolist()
    return logprobs
