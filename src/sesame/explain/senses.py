"""Near occurrences of a word, and its senses: occurrences that lie together.

    near(a, b) = cosine(v_a - m, v_b - m),  m the mean of all occurrences

States of one word share a large common part (Ethayarajh 2019, https://aclanthology.org/D19-1006); without it what differs,
the sense, is seen. Senses are the clusters of these cosines, joined by average link until as many as wanted are left. If
their number is not given, the one with the best silhouette is taken.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Near:
    """The nearest other occurrences of each one."""

    rows: Numbers  # (N, K)
    cosines: Matrix  # (N, K), raw, as they are usually told


def unit(vectors: Matrix, center: bool = True) -> Matrix:
    """Vectors of length 1, with or without their common part."""
    moved = vectors - vectors.mean(0) if center and len(vectors) > 2 else vectors
    found: Matrix = moved / np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-12)
    return found


def nearest(vectors: Matrix, count: int) -> Near:
    """Ordered by the centered cosine; with less than three occurrences there is no common part to take away."""
    count = max(min(count, len(vectors) - 1), 0)
    moved, plain = unit(vectors), unit(vectors, center=False)
    near = moved @ moved.T
    np.fill_diagonal(near, -np.inf)
    rows = np.argsort(-near, axis=1, kind="stable")[:, :count]
    return Near(rows, np.take_along_axis(plain @ plain.T, rows, 1).clip(-1, 1))


def senses(vectors: Matrix, count: int | None = None, most: int = 8) -> Numbers:
    """The number of each occurrence's sense, the most frequent first."""
    moved = unit(vectors)
    if count is not None:
        return _ordered(_clusters(moved, count))
    best, score = np.zeros(len(moved), dtype=np.int64), 0.0
    for tried in range(2, min(most, len(moved) - 1) + 1):
        found = _clusters(moved, tried)
        value = _silhouette(moved, found)
        if value > score:
            best, score = found, value
    return _ordered(best)


def _clusters(moved: Matrix, count: int) -> Numbers:
    from sklearn.cluster import AgglomerativeClustering  # type: ignore[import-untyped]

    if len(moved) <= 1 or count <= 1:
        return np.zeros(len(moved), dtype=np.int64)
    maker = AgglomerativeClustering(min(count, len(moved)), metric="cosine", linkage="average")
    found: Numbers = maker.fit_predict(moved.astype(np.float64) + 1e-12).astype(np.int64)
    return found


def _silhouette(moved: Matrix, found: Numbers) -> float:
    from sklearn.metrics import silhouette_score  # type: ignore[import-untyped]

    return float(silhouette_score(moved, found, metric="cosine"))


def _ordered(found: Numbers) -> Numbers:
    names, first, sizes = np.unique(found, return_index=True, return_counts=True)
    order = np.lexsort((first, -sizes))
    rank = np.empty(len(names), dtype=np.int64)
    rank[order] = np.arange(len(names))
    return rank[np.searchsorted(names, found)]
