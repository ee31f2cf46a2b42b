"""Sentence vectors from static ones: the mean of the words'."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sesame.data.plain_words import words_of
from sesame.data.vectors import Vectors
from sesame.progress import say


def mean_vectors(vectors: Vectors, texts: Sequence[str]) -> npt.NDArray[np.float32]:
    """Words without a vector do not count; a text of such words alone gets what their policy says, and how many do so is
    told: in a picture they lie on each other. Shape: (N, D)."""
    found = np.zeros((len(texts), vectors.width), dtype=np.float32)
    unknown = 0
    for row, text in enumerate(texts):
        words = words_of(text)
        known = [at for word in words if (at := vectors.row(word)) is not None]
        unknown += not known
        made = vectors.matrix[known] if known else vectors.table(words)
        if len(made):
            found[row] = made.mean(0)
    if unknown:
        say(f"{unknown:,} of {len(texts):,} texts hold no word that has a vector; what is shown of them says nothing")
    return found
