"""GloVe: word vectors whose products are the logarithms of how often words stand together.

Paper: Pennington, Socher & Manning 2014, "GloVe: Global Vectors for Word Representation" (https://aclanthology.org/D14-1162).

    J = sum over pairs of f(X_ij) (w_i . c_j + b_i + d_j - log X_ij)^2,    f(x) = min(1, (x / 100)^0.75)

X_ij counts j within a window around i, a word at distance d as 1/d. The vector of a word is w + c. By AdaGrad at 0.05, whose
sums of squares begin at 1, as in the authors' program.

Unusual: many pairs are one step, and the gradients of a word that is in several of them are added first; the authors take
pair after pair, in several threads at once. Their squares are those of gradients times the rate, so that it falls much later;
with added gradients that diverges where words are few (53 of them: after three passes), so ours are AdaGrad's own.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sesame import chance

Ints = npt.NDArray[np.int64]
CHUNK = 1 << 20  # words whose pairs are counted at once
PAIRS = 8192  # of a step
RATE, FULL, POWER = 0.05, 100.0, 0.75  # the paper's


@dataclass(frozen=True)
class Pairs:
    """Words that stood together; (N,) each."""

    rows: Ints
    columns: Ints
    counts: npt.NDArray[np.float32]


def count_pairs(texts: Iterable[Ints], vocab: int, window: int = 10) -> Pairs:
    """From texts as word numbers; -1 is a word without a number, which takes its place."""
    from scipy import sparse  # type: ignore[import-untyped]

    total = sparse.csr_matrix((vocab, vocab), dtype=np.float64)
    gap = np.full(window, -1, dtype=np.int64)
    held: list[Ints] = []
    size = 0
    for text in texts:
        held += [text, gap]
        size += len(text) + window
        if size >= CHUNK:
            total, held, size = total + _near(np.concatenate(held), vocab, window), [], 0
    if held:
        total = total + _near(np.concatenate(held), vocab, window)
    both = (total + total.T).tocoo()
    return Pairs(both.row.astype(np.int64), both.col.astype(np.int64), both.data.astype(np.float32))


def _near(ids: Ints, vocab: int, window: int) -> object:
    from scipy import sparse

    found = sparse.csr_matrix((vocab, vocab), dtype=np.float64)
    for step in range(1, window + 1):
        left, right = ids[:-step], ids[step:]
        real = (left >= 0) & (right >= 0)
        weights = np.full(int(real.sum()), 1 / step)
        found = found + sparse.coo_matrix((weights, (left[real], right[real])), shape=(vocab, vocab)).tocsr()
    return found


class GloVe:
    """Two vectors and two biases for each word, and AdaGrad's sums of squares."""

    def __init__(self, vocab: int, width: int, seed: int = 0) -> None:
        keys = chance.keys(chance.key(seed), np.arange(2 * vocab))
        start = torch.from_numpy(chance.uniform(keys, "glove.start", width + 1)).float()
        self.sides = [(part - 0.5) / width for part in (start[:vocab], start[vocab:])]  # (V, D + 1): with biases
        self.squares = [torch.ones_like(side) for side in self.sides]

    def step(self, rows: Tensor, columns: Tensor, counts: Tensor, rate: float = RATE) -> float:
        """One step down the loss of some pairs; gives that loss, a half of J as in the authors' program."""
        words, context = self.sides[0][rows], self.sides[1][columns]
        wrong = (words[:, :-1] * context[:, :-1]).sum(1) + words[:, -1] + context[:, -1] - counts.log()
        pull = (counts / FULL).pow(POWER).clamp(max=1.0) * wrong
        slopes = [torch.cat([pull[:, None] * other[:, :-1], pull[:, None]], 1) for other in (context, words)]
        for side, squares, places, slope in zip(self.sides, self.squares, (rows, columns), slopes, strict=True):
            met, which = torch.unique(places, return_inverse=True)
            total = torch.zeros(len(met), slope.shape[1]).index_add_(0, which, slope)
            side[met] -= rate * total / squares[met].sqrt()
            squares[met] += total.square()
        return float(0.5 * (pull * wrong).sum())

    def vectors(self) -> npt.NDArray[np.float32]:
        found: npt.NDArray[np.float32] = (self.sides[0] + self.sides[1])[:, :-1].numpy()
        return found


def train_glove(
    pairs: Pairs, vocab: int, width: int, epochs: int, seed: int = 0, told: Callable[[int, float], None] | None = None
) -> npt.NDArray[np.float32]:
    """`told` hears how many pairs were taken, and their mean loss. Shape: (V, D)."""
    model = GloVe(vocab, width, seed)
    rows, columns, counts = (torch.from_numpy(part) for part in (pairs.rows, pairs.columns, pairs.counts))
    for epoch in range(epochs):
        luck = chance.uniform(np.array([chance.key(seed, epoch)], dtype=np.uint64), "glove.order", len(rows))[0]
        order = torch.from_numpy(luck.argsort())
        for begin in range(0, len(order), PAIRS):
            some = order[begin : begin + PAIRS]
            loss = model.step(rows[some], columns[some], counts[some])
            if told is not None:
                told(len(some), loss / len(some))
    return model.vectors()
