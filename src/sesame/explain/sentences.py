"""Sentence vectors from static ones: the mean of the words'."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sesame.data.plain_words import words_of
from sesame.data.vectors import Vectors


def mean_vectors(vectors: Vectors, texts: Sequence[str]) -> npt.NDArray[np.float32]:
    """Words without a vector do not count; a text of such words alone gets what their policy says. Shape: (N, D)."""
    found = np.zeros((len(texts), vectors.width), dtype=np.float32)
    for row, text in enumerate(texts):
        words = words_of(text)
        known = [at for word in words if (at := vectors.row(word)) is not None]
        made = vectors.matrix[known] if known else vectors.table(words)
        if len(made):
            found[row] = made.mean(0)
    return found
