"""Words as bags of their letter n-grams: fastText's subwords, and how near two spellings are.

Paper: Bojanowski, Grave, Joulin & Mikolov 2017, "Enriching Word Vectors with Subword Information"
(https://arxiv.org/abs/1607.04606). A word is put between "<" and ">"; its n-grams of 3 to 6 letters each have a vector, and

    v(word) = mean of the word's own vector, if it has one, and those of its n-grams

N-grams are not stored: a hash says which row of a table of `buckets` is theirs (FNV-1a in 32 bits over UTF-8).

Unusual: fastText takes bytes for signed numbers, so that bytes above 127 are spread over the upper bits; so do we.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

LEAST, MOST = 3, 6  # letters of an n-gram, as in the paper
Matrix = npt.NDArray[np.float32]


def letter_grams(word: str, least: int = LEAST, most: int = MOST) -> list[str]:
    """All n-grams of "<word>"; the two marks alone are none."""
    marked = f"<{word}>"
    found = []
    for start in range(len(marked)):
        for size in range(max(least, 1), most + 1):  # fastText counts from one letter, whatever -minn says
            end = start + size
            if end > len(marked):
                break
            if size > 1 or 0 < start < len(marked) - 1:
                found.append(marked[start:end])
    return found


def gram_hash(gram: str) -> int:
    state = 2166136261
    for byte in gram.encode("utf-8", "ignore"):
        state = ((state ^ (byte | (0xFFFFFF00 if byte > 127 else 0))) * 16777619) & 0xFFFFFFFF
    return state


@dataclass(frozen=True)
class Subwords:
    """Vectors of n-grams."""

    matrix: Matrix  # (buckets, D)
    least: int = LEAST
    most: int = MOST

    def rows(self, word: str) -> list[int]:
        return [gram_hash(gram) % len(self.matrix) for gram in letter_grams(word, self.least, self.most)]

    def vector(self, word: str) -> Matrix | None:
        """The mean of a word's n-grams; None for a word that is too short to have one. Shape: (D,)."""
        rows = self.rows(word) if len(self.matrix) else []
        return self.matrix[rows].mean(0) if rows else None


class Spellings:
    """Finds known words that are written almost like another one: most n-grams in common (Dice's coefficient)."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self.sizes = np.zeros(len(words), dtype=np.int64)
        holders: dict[str, list[int]] = {}
        for number, word in enumerate(words):
            grams = set(letter_grams(word, LEAST, LEAST))
            self.sizes[number] = len(grams)
            for gram in grams:
                holders.setdefault(gram, []).append(number)
        self.holders = {gram: np.array(rows) for gram, rows in holders.items()}

    def near(self, word: str, count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """The numbers of at most `count` words and how near they are, in (0, 1], the nearest first."""
        grams = set(letter_grams(word, LEAST, LEAST))
        found = [self.holders[gram] for gram in sorted(grams) if gram in self.holders]
        if not found:
            return np.zeros(0, dtype=np.int64), np.zeros(0)
        rows, shared = np.unique(np.concatenate(found), return_counts=True)
        near = 2 * shared / (self.sizes[rows] + len(grams))
        order = np.lexsort((rows, -near))[:count]
        return rows[order], near[order]
