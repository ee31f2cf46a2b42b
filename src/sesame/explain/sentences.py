"""Sentence vectors from static ones: the mean of the words'."""

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sesame.data.vectors import Vectors

_WORD = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s]")


def words_of(text: str) -> list[str]:
    return _WORD.findall(text)


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
