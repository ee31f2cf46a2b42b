"""Static vectors trained on a text: word2vec and fastText by gensim, GloVe by our own few lines (`glove.py`).

Papers: Mikolov et al. 2013 (https://arxiv.org/abs/1310.4546: skip-gram with negative samples); Bojanowski et al. 2017;
Pennington et al. 2014. Words that are rarer than `min_count` are left out, which is counted and told.

Unusual: with more than one thread gensim's vectors differ from run to run; with one they are the same bits.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sesame.config import unknown
from sesame.data.corpus_files import corpus_size
from sesame.data.glove import Ints, count_pairs, train_glove
from sesame.data.plain_words import words_of
from sesame.data.readers import read_documents
from sesame.data.vectors import Vectors
from sesame.errors import SesameError
from sesame.progress import Bar, bar, say

KINDS = ("word2vec", "fasttext", "glove")
WINDOWS = {"word2vec": 5, "fasttext": 5, "glove": 10}  # the papers'
EPOCHS = {
    "word2vec": 5,
    "fasttext": 5,
    "glove": 25,
}  # the authors' programs; GloVe's paper: 50, from 300 numbers on 100


@dataclass(frozen=True)
class Training:
    kind: str = "word2vec"
    width: int = 100
    window: int = 0  # words to each side; 0: the paper's
    epochs: int = 0  # likewise
    min_count: int = 5
    most: int = 400_000  # words
    lowercase: bool = True
    seed: int = 0
    threads: int = 1
    field: str = "text"  # of .jsonl and .parquet

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise SesameError(unknown(self.kind, dict.fromkeys(KINDS), "--kind", "choice"))
        if min(self.width, self.min_count, self.most, self.threads) < 1 or min(self.window, self.epochs) < 0:
            raise SesameError("--width, --min-count, --most and --threads must be at least 1")
        if not 0 <= self.seed < 2**32:
            raise SesameError(f"--seed {self.seed}: lies from 0 to {2**32 - 1}")


class Sentences:
    """Paragraphs as lists of words, read anew in every pass; those of more than `longest` words in several parts."""

    def __init__(self, files: Sequence[str | Path], how: Training, longest: int = sys.maxsize) -> None:
        self.files, self.how, self.longest = files, how, longest
        self.shown: Bar | None = None

    def __iter__(self) -> Iterator[list[str]]:
        progress = None if self.shown is None else self.shown.advance
        for document in read_documents(self.files, self.how.field, progress):
            for line in document.text.split("\n"):
                words = words_of(line.lower() if self.how.lowercase else line)
                for begin in range(0, len(words), self.longest):
                    yield words[begin : begin + self.longest]


def train_vectors(files: Sequence[str | Path], how: Training) -> tuple[Vectors, Any]:
    """The vectors, most frequent words first; and gensim's model, if one was made."""
    sentences = Sentences(files, how)
    with bar("count words", corpus_size(files), "B") as shown:
        sentences.shown = shown
        counts = Counter(word for words in sentences for word in words)
    words = [word for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    kept = [word for word in words if counts[word] >= how.min_count][: how.most]
    if len(kept) < 2:
        raise SesameError(
            f"only {len(kept)} words stand {how.min_count} times in the text; give more of it, or --min-count 1"
        )
    left = sum(counts.values()) - sum(counts[word] for word in kept)
    say(
        f"{len(kept):,} words get a vector; {len(words) - len(kept):,} rarer ones do not "
        f"({left / sum(counts.values()):.1%} of the text)"
    )
    if how.kind == "glove":
        return Vectors(tuple(kept), _glove(sentences, kept, how)), None
    model = _gensim(sentences, {word: counts[word] for word in kept}, sum(counts.values()), how)
    return Vectors(tuple(kept), np.array([model.wv[word] for word in kept], dtype=np.float32)), model


def _glove(sentences: Sentences, kept: list[str], how: Training) -> "np.ndarray[Any, np.dtype[np.float32]]":
    numbers = {word: number for number, word in enumerate(kept)}
    window, epochs = how.window or WINDOWS[how.kind], how.epochs or EPOCHS[how.kind]

    def texts() -> Iterator[Ints]:
        for words in sentences:
            yield np.array([numbers.get(word, -1) for word in words], dtype=np.int64)

    with bar("count pairs", corpus_size(sentences.files), "B") as shown:
        sentences.shown = shown
        pairs = count_pairs(texts(), len(kept), window)
    with bar("glove", epochs * len(pairs.rows), "pairs") as shown:

        def told(taken: int, loss: float) -> None:
            shown.note(f"loss {loss:.4f}")
            shown.advance(taken)

        return train_glove(pairs, len(kept), how.width, epochs, how.seed, told)


def _gensim(sentences: Sentences, counts: dict[str, int], size: int, how: Training) -> Any:
    """`size`: words of the text, those without a vector too, for the rate falls by how many were read."""
    try:
        from gensim.models import FastText, Word2Vec
        from gensim.models.word2vec import MAX_WORDS_IN_BATCH
    except ImportError:
        raise SesameError(f"--kind {how.kind} needs a package; pip install 'sesame-nlp[vectors]'") from None
    epochs = how.epochs or EPOCHS[how.kind]
    maker = FastText if how.kind == "fasttext" else Word2Vec
    model = maker(
        vector_size=how.width, window=how.window or WINDOWS[how.kind], min_count=1, sg=1, negative=5, seed=how.seed,
        workers=how.threads, epochs=epochs, sample=1e-4 if how.kind == "fasttext" else 1e-3,
    )  # fmt: skip
    model.build_vocab_from_freq(counts)
    sentences = Sentences(sentences.files, how, MAX_WORDS_IN_BATCH)  # of a longer one gensim reads that many, silently
    with bar(how.kind, epochs * corpus_size(sentences.files), "B") as shown:
        sentences.shown = shown
        model.train(sentences, total_words=size, epochs=epochs)
    return model
