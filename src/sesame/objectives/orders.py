"""Which tokens a permutation language model is asked for, and in which order (`plm.py` says why).

Unusual: NumPy and not PyTorch. This runs in the loader for every batch, and a small XLNet on a fast GPU waited for it half of
its time: NumPy sorts and scans rows of a few hundred numbers several times as fast, and its small steps cost less.
"""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Flags: TypeAlias = npt.NDArray[np.bool_]
Counts: TypeAlias = npt.NDArray[np.int64]
Luck: TypeAlias = npt.NDArray[np.float64]
"""Uniform numbers; two of a row are never equal, but by a chance of 2^-53."""


def ranks(luck: Luck) -> Counts:
    """The place of each number in the order of its row: (B, L) -> (B, L)."""
    found = np.empty(luck.shape, dtype=np.int64)
    np.put_along_axis(found, luck.argsort(axis=1), np.arange(luck.shape[1])[None, :], axis=1)
    return found


def places(flags: Flags, slots: int, nowhere: int, begin: int = 0) -> Counts:
    """Where flags stand, from left to right, counted from `begin`; slots left over say `nowhere`: (B, L) -> (B, slots)."""
    found = np.full((len(flags), slots), nowhere, dtype=np.int64)
    row, column = flags.nonzero()
    number = flags.cumsum(axis=1)[row, column] - 1
    kept = number < slots
    found[row[kept], number[kept]] = column[kept] + begin
    return found


def choose(starts: Flags, real: Flags, goal: Counts, every: int, span: int, luck: dict[str, Luck]) -> Flags:
    """`goal` tokens of each row: spans from left to right, then single ones. Shape: (B, L) -> (B, L)."""
    chosen, have = _spans(starts, real.sum(axis=1), goal, every, span, luck)
    return chosen | _lowest(np.where(real & ~chosen, luck["fill"], 2.0), goal - have)


def _spans(
    starts: Flags, size: Counts, goal: Counts, every: int, span: int, luck: dict[str, Luck]
) -> tuple[Flags, Counts]:
    """Spans of n <= `span` tokens, p(n) ~ 1/n, each somewhere in a context of `every` * n; and how many tokens they hold."""
    rows, width = np.arange(len(goal)), starts.shape[1]
    most = min(width // (every + 1) + 1, width)  # each span, with its context, takes at least K + 1 places
    shares = 1 / np.arange(1, span + 1)
    lengths = 1 + np.searchsorted((shares.cumsum() / shares.sum())[:-1], luck["length"][:, :most], side="right")
    following = _following(starts)
    at, have = np.zeros_like(goal), np.zeros_like(goal)
    edges = np.zeros((len(goal), width + 1), dtype=np.int64)
    going = goal > 0
    for number in range(most):
        size_now = np.minimum(lengths[:, number], goal - have)
        left = (luck["left"][:, number] * (size_now * every)).astype(np.int64)
        begin = following[rows, np.minimum(at + left, width)]
        end = begin + size_now
        going = going & (have < goal) & (end < size)
        if not going.any():
            break
        edges[rows, np.minimum(begin, width)] += going
        edges[rows, np.minimum(end, width)] -= going
        have += size_now * going
        at = np.where(going, end + size_now * every - left, at)
    return edges.cumsum(axis=1)[:, :width] > 0, have


def _following(starts: Flags) -> Counts:
    """The next place from here on where a word begins, L if there is none: (B, L) -> (B, L + 1)."""
    width = starts.shape[1]
    here = np.full((len(starts), width + 1), width, dtype=np.int64)
    here[:, :width] = np.where(starts, np.arange(width), width)
    return np.minimum.accumulate(here[:, ::-1], axis=1)[:, ::-1]


def _lowest(values: Luck, count: Counts) -> Flags:
    """So many of the lowest values of each row: (B, L), (B,) -> (B, L)."""
    last = np.sort(values, axis=1)[np.arange(len(count)), np.clip(count - 1, 0, None)]
    return (values <= last[:, None]) & (count > 0)[:, None]
