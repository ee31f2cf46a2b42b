"""The order of examples: a shuffle that is never stored.

A Feistel network over the row numbers, walked until it lands inside the range, is a permutation of any size that can be
entered at any point: the example at position n of epoch e is found in O(1), whatever the size of the corpus.
"""

import numpy as np
import numpy.typing as npt

from sesame import chance

Rows = npt.NDArray[np.int64]
ROUNDS = 6


def shuffled(positions: Rows, count: int, key: int) -> Rows:
    """Row numbers at `positions` of the permutation of `range(count)` that `key` names."""
    half = max(1, (max(count - 1, 1).bit_length() + 1) // 2)
    rows = _feistel(positions.astype(np.uint64), half, key)
    outside = rows >= count
    while outside.any():
        rows[outside] = _feistel(rows[outside], half, key)
        outside = rows >= count
    return rows.astype(np.int64)


def _feistel(x: npt.NDArray[np.uint64], half: int, key: int) -> npt.NDArray[np.uint64]:
    mask = np.uint64((1 << half) - 1)
    left, right = x >> np.uint64(half), x & mask
    for number in range(ROUNDS):
        turned = chance.keys(chance.key(key, number), right.astype(np.int64)) & mask
        left, right = right, left ^ turned
    return (left << np.uint64(half)) | right


def locate(first: int, count: int, rows: int, seed: int) -> tuple[npt.NDArray[np.int64], Rows]:
    """Examples number `first` to `first + count` of an endless run over `rows` rows: their epochs and their rows."""
    numbers = np.arange(first, first + count, dtype=np.int64)
    epochs, positions = np.divmod(numbers, rows)
    found = np.empty(count, dtype=np.int64)
    for epoch in np.unique(epochs):
        here = epochs == epoch
        found[here] = shuffled(positions[here], rows, chance.key(seed, int(epoch)))
    return epochs, found
