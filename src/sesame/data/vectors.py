"""Static vectors: one vector a word, whatever stands around it; and what an unknown word gets.

Papers: Mikolov et al. 2013 (word2vec, https://arxiv.org/abs/1301.3781); Pennington, Socher & Manning 2014 (GloVe,
https://aclanthology.org/D14-1162); Bojanowski et al. 2017 (fastText, https://arxiv.org/abs/1607.04606).

A word that is unknown gets, by `policy`:
    unk       the vector of the file's <unk>, or else the mean of all vectors
    letters   what its letters say: fastText's n-grams where the file has them, else the mean of the known words that are
              spelled most like it, each by how near it is
    lookup    the file's vector even if training never saw the word (Dhingra et al. 2017); else as unk
    random    a vector of its own by hash of the word: always the same, so that two equal unknown words are equal
    class     the mean vector of its class: number, punctuation, upper, capitalized or other

"Unknown" is a word without a vector; and, for all but `lookup`, one outside of `trained`, if the words of a training are
given: a model that has never read a vector of the file may not profit from it by accident.

Unusual: a word that only its lower-case form has a vector for is known by that one, since many files are lower-cased.
"""

import unicodedata
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from sesame import chance
from sesame.config import unknown
from sesame.data.letter_grams import Spellings, Subwords
from sesame.errors import SesameError

Matrix = npt.NDArray[np.float32]
POLICIES = ("unk", "letters", "lookup", "random", "class")
CLASSES = ("number", "punctuation", "upper", "capitalized", "other")
UNKNOWN = ("<unk>", "[UNK]", "<UNK>", "UNK", "unk")  # how files write it; the first that is there counts
SPELLED_LIKE = 5  # known words whose mean stands for an unknown one


def word_class(word: str) -> str:
    """One of `CLASSES`: the first that fits."""
    if any(letter.isdigit() for letter in word) and not any(letter.isalpha() for letter in word):
        return "number"
    if all(unicodedata.category(letter)[0] in "PS" for letter in word):
        return "punctuation"
    if len(word) > 1 and word.isupper():
        return "upper"
    return "capitalized" if word[:1].isupper() else "other"


@dataclass(frozen=True)
class Vectors:
    """Words and their vectors, in the order of the file: usually the most frequent first."""

    words: tuple[str, ...]
    matrix: Matrix = field(repr=False)  # (N, D)
    policy: str = "unk"  # for unknown words
    subwords: Subwords | None = field(default=None, repr=False)  # of a fastText .bin

    def __post_init__(self) -> None:
        _check_policy(self.policy)
        if self.matrix.ndim != 2 or len(self.words) != len(self.matrix) or not self.words:
            raise SesameError(
                f"{len(self.words)} words and a matrix of shape {self.matrix.shape}: vectors need one row for each word"
            )

    @property
    def width(self) -> int:
        return int(self.matrix.shape[1])

    @cached_property
    def index(self) -> dict[str, int]:
        return {word: row for row, word in enumerate(self.words)}

    def _at(self, row: int) -> Matrix:
        found: Matrix = self.matrix[row]
        return found

    def row(self, word: str) -> int | None:
        """Where a word's vector stands; that of its lower-case form if it has none itself."""
        return self.index.get(word, self.index.get(word.lower()))

    def vector(self, word: str, policy: str | None = None, trained: Collection[str] | None = None) -> Matrix:
        """The vector of any word (D,); `trained`: the words that a model was trained with, if that matters."""
        policy = self.policy if policy is None else policy
        _check_policy(policy)
        row = self.row(word)
        if row is not None and (trained is None or policy == "lookup" or word in trained or word.lower() in trained):
            return self._at(row)
        if policy == "letters":
            return self._by_letters(word, trained)
        if policy == "random":
            return self._by_hash(word)
        return self._class_means[word_class(word)] if policy == "class" else self._unknown

    def table(self, words: Sequence[str], policy: str | None = None, trained: Collection[str] | None = None) -> Matrix:
        """A matrix for words, known or not. Shape: (len(words), D)."""
        found = [self.vector(word, policy, trained) for word in words]
        return np.stack(found) if found else np.empty((0, self.width), np.float32)

    # ---- unknown words ---------------------------------------------------------------------------------------------

    @cached_property
    def _unknown(self) -> Matrix:
        for name in UNKNOWN:
            if name in self.index:
                return self._at(self.index[name])
        return _mean(self.matrix)

    @cached_property
    def _class_means(self) -> dict[str, Matrix]:
        kinds = np.array([CLASSES.index(word_class(word)) for word in self.words])
        means = {}
        for number, name in enumerate(CLASSES):
            of_class = self.matrix[kinds == number]
            means[name] = _mean(of_class) if len(of_class) else self._unknown
        return means

    @cached_property
    def _spellings(self) -> Spellings:
        return Spellings(self.words)

    def _by_letters(self, word: str, trained: Collection[str] | None) -> Matrix:
        if self.subwords is not None:
            found = self.subwords.vector(word)
            return self._unknown if found is None else found
        rows, near = self._spellings.near(word, SPELLED_LIKE if trained is None else len(self.words))
        if trained is not None:  # the word itself, which has a vector, and others that training never saw
            allowed = np.array([self.words[row] in trained for row in rows.tolist()], dtype=bool)
            rows, near = rows[allowed][:SPELLED_LIKE], near[allowed][:SPELLED_LIKE]
        if not len(rows):
            return self._unknown
        return _mean(self.matrix[rows], near)

    @cached_property
    def _spread(self) -> float:
        return float(self.matrix.std(dtype=np.float64))

    def _by_hash(self, word: str) -> Matrix:
        """Uniform, with the deviation of the known vectors."""
        data = word.encode("utf-8", "surrogatepass")
        key = np.array([chance.key(len(data), zlib.crc32(data), zlib.adler32(data))], dtype=np.uint64)
        drawn = chance.uniform(key, "vectors.unknown", self.width)[0]
        scaled: npt.NDArray[np.float64] = (2 * drawn - 1) * (3**0.5 * self._spread)
        return scaled.astype(np.float32)

    # ---- neighbours ------------------------------------------------------------------------------------------------

    @cached_property
    def _lengths(self) -> npt.NDArray[np.float32]:
        lengths: npt.NDArray[np.float32] = np.linalg.norm(self.matrix, axis=1)
        return np.maximum(lengths, np.float32(1e-12))

    def neighbors(self, word: str, count: int = 10) -> list[tuple[str, float]]:
        """The words whose vectors have the greatest cosine with that of `word`, without itself."""
        vector = self.vector(word).astype(np.float32)
        near = (self.matrix @ vector) / (self._lengths * max(float(np.linalg.norm(vector)), 1e-12))
        own = self.row(word)
        if own is not None:
            near[own] = -np.inf
        order = np.lexsort((np.arange(len(near)), -near))[: min(count, len(near) - (own is not None))]
        return [
            (self.words[row], min(float(near[row]), 1.0)) for row in order.tolist()
        ]  # rounding may give a little more


def _mean(rows: Matrix, weights: npt.NDArray[np.float64] | None = None) -> Matrix:
    mean: Matrix = np.average(rows.astype(np.float64), axis=0, weights=weights).astype(np.float32)
    return mean


def _check_policy(policy: str) -> None:
    if policy not in POLICIES:
        raise SesameError(unknown(policy, dict.fromkeys(POLICIES), "--unknown", "policy"))
