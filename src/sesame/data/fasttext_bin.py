"""fastText's .bin, read: words, their vectors, and those of their letter n-grams.

The file (version 12, little-endian), as far as it is read here:
    magic, version; 12 numbers of 32 bits (width first, buckets 9th, least and most letters 10th and 11th) and a double
    words and labels, words, labels (32 bits); tokens, pruned rows (64 bits)
    for each: name, NUL, count (64 bits), kind (8 bits; 1 is a label)
    is it quantized (8 bits)? rows, columns (64 bits), the numbers: words first, then buckets

A word's vector is the mean of its own row and those of its n-grams. Unusual: labels of classifiers are left out, and
quantized files (.ftz) are refused.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from sesame.data.letter_grams import Matrix, Subwords
from sesame.errors import SesameError

MAGIC = struct.pack("<i", 793712314)
VERSION = 12
END = "</s>"  # the end of a line is no word and has no n-grams


class _Bytes:
    """Blocks, read by number of bytes."""

    def __init__(self, path: Path, blocks: Iterator[bytes]) -> None:
        self.path, self.blocks, self.held, self.at = path, blocks, b"", 0

    def take(self, size: int) -> bytes:
        parts = [self.held[self.at : self.at + size]]
        size -= len(parts[0])
        self.at += len(parts[0])
        while size > 0:
            self.held = self._next()
            parts.append(self.held[:size])
            self.at = len(parts[-1])
            size -= len(parts[-1])
        return b"".join(parts)

    def until_nul(self) -> bytes:
        found = b""
        while (end := self.held.find(b"\0", self.at)) < 0:
            found += self.held[self.at :]
            self.held, self.at = self._next(), 0
        found += self.held[self.at : end]
        self.at = end + 1
        return found

    def numbers(self, layout: str) -> tuple[int, ...]:
        return struct.unpack(f"<{layout}", self.take(struct.calcsize(f"<{layout}")))

    def _next(self) -> bytes:
        block = next(self.blocks, None)
        if block is None:
            raise SesameError(f"{self.path}: ends in the middle; copy it again")
        return block


def read_fasttext(
    path: Path, blocks: Iterator[bytes], most: int | None = None
) -> tuple[list[str], Matrix, Subwords | None]:
    """Words, their vectors (N, D), and the n-grams, if it was trained with some."""
    given = _Bytes(path, blocks)
    _, version = given.numbers("2i")
    if version != VERSION:
        raise SesameError(
            f"{path}: is of fastText's version {version}, only {VERSION} is read; write a .vec file with it"
        )
    settings = given.numbers("12i")
    given.take(8)
    width, buckets, least, longest = settings[0], settings[8], settings[9], settings[10]
    words, known = _words(path, given)
    (quantized,) = given.numbers("?")
    if quantized:
        raise SesameError(f"{path}: its vectors are quantized; take the .bin or .vec file that it was made from")
    rows, columns = given.numbers("2q")
    if columns != width or width < 1 or rows < known:
        raise SesameError(f"{path}: says {rows} x {columns} numbers for {known} words of width {width}; copy it again")
    if rows != known and rows != known + buckets:
        raise SesameError(f"{path}: its n-grams were pruned; take the file that it was made from")
    matrix = np.frombuffer(given.take(4 * rows * columns), dtype="<f4").astype(np.float32).reshape(rows, columns)
    if not np.isfinite(matrix).all():
        raise SesameError(f"{path}: holds values that are no numbers; its training failed, or copy it again")
    words = words[: most or len(words)]
    if longest < 1 or rows == known:
        return words, matrix[: len(words)], None
    subwords = Subwords(matrix[known:], least, longest)
    return words, _joined(words, matrix, known, subwords), subwords


def _words(path: Path, given: _Bytes) -> tuple[list[str], int]:
    size, words, _ = given.numbers("3i")
    _, pruned = given.numbers("2q")
    found = []
    for _ in range(size):
        name = given.until_nul()
        _, kind = given.numbers("qb")
        if kind == 0:
            try:
                found.append(name.decode())
            except UnicodeDecodeError:
                raise SesameError(f"{path}: the word {name[:40]!r} is not UTF-8; train again on UTF-8 text") from None
    given.take(8 * max(pruned, 0))
    if not found or len(found) != words:
        raise SesameError(f"{path}: promises {words:,} words and holds {len(found):,}; copy it again")
    return found, words


def _joined(words: list[str], matrix: Matrix, known: int, subwords: Subwords) -> Matrix:
    made = np.empty((len(words), matrix.shape[1]), dtype=np.float32)
    for row, word in enumerate(words):
        grams = [] if word == END else [known + gram for gram in subwords.rows(word)]
        made[row] = matrix[[row, *grams]].mean(0)
    return made
