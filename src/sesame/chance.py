"""Randomness without state: every draw is a hash of where it is used.

A number is drawn from `(key, stream, index)`, where the key names the example (seed, epoch, row). So the corruption of an
example does not depend on the batch it travels in, on the number of processes, or on what was drawn before it: a run can
stop anywhere and continue in O(1), and 4 batches of 8 are corrupted exactly as 1 batch of 32.

The hash is splitmix64 (Steele, Lea & Flood 2014), once for NumPy (the data room) and once for PyTorch (objectives, on any
device); a test holds the two equal.
"""

import zlib

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

GOLDEN = 0x9E3779B97F4A7C15
_MULTIPLY = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_SHIFT = (30, 27, 31)
_MASK = (1 << 64) - 1

Words = npt.NDArray[np.uint64]


def stream(name: str) -> int:
    """A number for a named use of chance ("mlm.pick"), so that two uses never share their draws."""
    return (zlib.crc32(name.encode()) + 1) * GOLDEN & _MASK


def key(*parts: int) -> int:
    """Fold whole numbers into one 64-bit key."""
    state = 0
    for part in parts:
        state = _mix_int((state + part * GOLDEN + GOLDEN) & _MASK)
    return state


def keys(base: int, rows: npt.NDArray[np.int64]) -> Words:
    """A key for each row: (B,) -> (B,)."""
    with np.errstate(over="ignore"):
        return _mix(np.uint64(base) + (rows.astype(np.uint64) + np.uint64(1)) * np.uint64(GOLDEN))


def uniform(row_keys: Words, name: str, count: int) -> npt.NDArray[np.float64]:
    """Uniform numbers in [0, 1): (B,) -> (B, count)."""
    return _uniform_at(row_keys, name, np.arange(count, dtype=np.uint64)[None, :])


def _uniform_at(row_keys: Words, name: str, at: Words) -> npt.NDArray[np.float64]:
    with np.errstate(over="ignore"):
        starts = _mix(row_keys + np.uint64(stream(name)))[:, None]
        mixed = _mix(starts + (at + np.uint64(1)) * np.uint64(GOLDEN))
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def uniform_tensor(row_keys: Tensor, name: str, count: int) -> Tensor:
    """The same numbers on any device: int64 (B,) -> float64 (B, count)."""
    if row_keys.device.type == "cpu":  # NumPy multiplies 64-bit integers six times as fast
        return torch.from_numpy(uniform(row_keys.numpy().view(np.uint64), name, count))
    at = torch.arange(1, count + 1, device=row_keys.device, dtype=torch.int64) * _signed(GOLDEN)
    mixed = _mix_tensor(_mix_tensor(row_keys + _signed(stream(name)))[:, None] + at[None, :])
    return _shift(mixed, 11).double() * 2.0**-53


def uniform_at(row_keys: Tensor, name: str, at: Tensor) -> Tensor:
    """Those at some places only: int64 (B,), (B, K) -> float64 (B, K)."""
    if row_keys.device.type == "cpu":
        return torch.from_numpy(_uniform_at(row_keys.numpy().view(np.uint64), name, at.numpy().view(np.uint64)))
    starts = _mix_tensor(row_keys + _signed(stream(name)))[:, None]
    return _shift(_mix_tensor(starts + (at + 1) * _signed(GOLDEN)), 11).double() * 2.0**-53


def _mix_int(x: int) -> int:
    for multiply, shift in zip(_MULTIPLY, _SHIFT[:2], strict=True):
        x = ((x ^ (x >> shift)) * multiply) & _MASK
    return x ^ (x >> _SHIFT[2])


def _mix(x: Words) -> Words:
    for multiply, shift in zip(_MULTIPLY, _SHIFT[:2], strict=True):
        x = x ^ (x >> np.uint64(shift))
        x *= np.uint64(multiply)
    return x ^ (x >> np.uint64(_SHIFT[2]))


def _mix_tensor(x: Tensor) -> Tensor:
    for multiply, shift in zip(_MULTIPLY, _SHIFT[:2], strict=True):
        x = (x ^ _shift(x, shift)) * _signed(multiply)
    return x ^ _shift(x, _SHIFT[2])


def _shift(x: Tensor, by: int) -> Tensor:
    """A logical shift: PyTorch's `>>` on int64 drags the sign along."""
    return (x >> by) & ((1 << (64 - by)) - 1)


def _signed(x: int) -> int:
    return x - (1 << 64) if x >= 1 << 63 else x
