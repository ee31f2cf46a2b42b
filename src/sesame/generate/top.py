"""The likeliest continuations of many hypotheses, in about two passes over the logits.

    logprob(h, v) = logprob(h) + logits[h, v] - norms[h],   norms = log sum exp logits

Unusual: no table of log-probabilities is written and searched. On a CPU `topk` visits 58,000 numbers one by one; here the
vocabulary is cut into pieces of 128, vector instructions find each piece's greatest, and only the `count` pieces with the
greatest ones are looked into. That loses nothing: a token among the `count` best has fewer than `count` better ones, so
fewer than `count` pieces have a greater peak than its own.
"""

import torch
from torch import Tensor

from sesame.errors import SesameError

PIECE = 128
SMALL = 4096  # below, a plain search is as fast


def normalizers(logits: Tensor) -> Tensor:
    """The log of the sum of exponentials: (R, V) -> (R,).

    `log_softmax` is one kernel on a CPU, `logsumexp` is several; the greatest of its numbers tells the sum.
    """
    norms = logits.amax(1) - logits.log_softmax(1).amax(1)
    if norms.isnan().any():
        raise SesameError(
            "the model's logits hold numbers that are none (NaN); its weights are broken, take another checkpoint"
        )
    return norms


def continuations(logits: Tensor, norms: Tensor, running: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The best of each source, the best first: logprob, hypothesis (0 to n - 1), token.

    Shape: logits (S n, V), norms (S n,), running (S, n) -> three times (S, K).
    A token never raises the log-probability, not even by rounding: early stopping relies on it.
    """
    sources, n = running.shape
    vocab = logits.shape[1]
    flat = running.reshape(-1, 1)
    if vocab < SMALL or logits.device.type != "cpu":
        every = ((logits - norms[:, None]).clamp(max=0) + flat).view(sources, n * vocab)
        found, at = every.topk(min(count, n * vocab), 1)
        return found, at // vocab, at % vocab
    rows, tokens = _peaks(logits, flat - norms[:, None], sources, count)
    first = torch.arange(sources, device=logits.device)[:, None] * n
    values = logits[(rows + first)[..., None], tokens.clamp(max=vocab - 1)].masked_fill(tokens >= vocab, -torch.inf)
    values = (values - norms[rows + first][..., None]).clamp(max=0) + flat[rows + first]
    found, at = values.flatten(1).topk(min(count, n * vocab), 1)
    return found, rows.gather(1, at // PIECE), tokens.flatten(1).gather(1, at)


def _peaks(logits: Tensor, shift: Tensor, sources: int, count: int) -> tuple[Tensor, Tensor]:
    """The pieces to look into: their hypothesis (S, K) and their tokens (S, K, PIECE), some beyond the vocabulary."""
    vocab = logits.shape[1]
    whole = vocab // PIECE * PIECE
    peaks = logits[:, :whole].view(len(logits), -1, PIECE).amax(2)
    if whole < vocab:
        peaks = torch.cat([peaks, logits[:, whole:].amax(1, keepdim=True)], 1)
    pieces = peaks.shape[1]
    peaks = (peaks + shift).view(sources, -1)
    chosen = peaks.topk(min(count, peaks.shape[1]), 1).indices
    tokens = (chosen % pieces * PIECE)[..., None] + torch.arange(PIECE, device=logits.device)
    return chosen // pieces, tokens
