"""A Unigram vocabulary that is the same each time.

Kudo (2018), "Subword Regularization": start with more pieces than wanted, give each the probability that explains the
text best, drop those that the text would miss least, and again until the size is right.

What is unusual here: the trainer of the `tokenizers` library walks over hash tables in random order, so two runs on one
text give two vocabularies. Here the first pieces come from its BPE trainer, which is stable, and each round counts the
best segmentation of every word (hard EM) instead of all of them. Segmenting is left to the library.
"""

import math
from collections import Counter

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from sesame.text.learning import learn

SEED_RATIO = 3  # first pieces for each piece wanted
SHRINK = 0.75  # pieces kept in each round, as in Kudo (2018)
LONGEST = 16  # characters of a piece, as in SentencePiece
COVERAGE = 0.9998  # of the letters of the text; the rest are typos and lone signs of far scripts
_BATCH = 10_000

# A text may contain the name of a byte, as in "<0x41>"; it must always be cheaper to spell it in letters.
SPELLING = frozenset("<0123456789xABCDEF>")


def train_unigram(
    texts: list[str],
    normalizer: normalizers.Normalizer,
    pre_tokenizer: pre_tokenizers.PreTokenizer,
    size: int,
    min_count: int,
) -> list[tuple[str, float]]:
    """At most `size` pieces with their log probabilities, best first; all frequent letters are among them."""
    words: Counter[str] = Counter()
    for text in texts:
        words.update(word for word, _ in pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(text)))
    letters: Counter[str] = Counter()
    for word, count in words.items():
        for letter in word:
            letters[letter] += count
    required = set(frequent_letters(letters, size // 2)) | SPELLING
    scores = _scores(_seed(texts, normalizer, pre_tokenizer, required, size * SEED_RATIO, min_count), required)
    while True:
        for _ in range(2):
            scores = _scores(_count(words, scores), required)
        if len(scores) <= size:
            # Short numbers, because the library reads long ones from a file with an error in the last digit.
            return sorted(((piece, round(score, 6)) for piece, score in scores.items()), key=lambda p: (-p[1], p[0]))
        scores = _prune(_count(words, scores), scores, required, max(size, int(len(scores) * SHRINK)))


def frequent_letters(counts: Counter[str], most: int) -> list[str]:
    """The most frequent letters first, at most `most`, until they cover nearly all of the text."""
    spare = counts.total() * (1 - COVERAGE)
    order = sorted(counts, key=lambda letter: (-counts[letter], letter))
    while order and counts[order[-1]] <= spare:
        spare -= counts[order.pop()]
    return order[:most]


def _seed(
    texts: list[str],
    normalizer: normalizers.Normalizer,
    pre_tokenizer: pre_tokenizers.PreTokenizer,
    letters: set[str],
    size: int,
    min_count: int,
) -> Counter[str]:
    """Frequent substrings: the merges of BPE, the early ones weighing more; the first count sets this right."""
    backend = Tokenizer(models.BPE())
    backend.normalizer, backend.pre_tokenizer = normalizer, pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=min_count,
        show_progress=False,
        initial_alphabet=sorted(letters),
        limit_alphabet=len(letters),
        max_token_length=LONGEST,
    )
    learn(backend, texts, trainer)
    vocab = backend.get_vocab()
    return Counter({token: 1 + len(vocab) - id for token, id in vocab.items()})


def _count(words: Counter[str], scores: dict[str, float]) -> Counter[str]:
    """How often each piece is used when every word takes its best path."""
    order = sorted(scores)
    backend = Tokenizer(models.Unigram([("", 0.0), *((piece, scores[piece]) for piece in order)], 0, False))
    counts = [0] * (len(order) + 1)
    items = list(words.items())
    for start in range(0, len(items), _BATCH):
        batch = items[start : start + _BATCH]
        for encoding, (_, count) in zip(backend.encode_batch([word for word, _ in batch]), batch, strict=True):
            for id in encoding.ids:
                counts[id] += count
    return Counter(dict(zip(order, counts[1:], strict=True)))


def _scores(counts: Counter[str], required: set[str]) -> dict[str, float]:
    """Log probabilities; a piece that nothing uses goes, unless it is a letter of the alphabet."""
    total = math.log(max(1, counts.total()))
    kept = {piece: count for piece, count in counts.items() if count > 0 or piece in required}
    return {piece: math.log(max(count, 0.5)) - total for piece, count in sorted(kept.items())}


def _prune(counts: Counter[str], scores: dict[str, float], required: set[str], size: int) -> dict[str, float]:
    """Keep the alphabet and the pieces whose loss would cost the text the most probability."""
    losses = []
    for piece, score in scores.items():
        if piece not in required:
            losses.append((counts[piece] * (score - _without(piece, scores)), piece))
    losses.sort(key=lambda loss: (-loss[0], loss[1]))
    kept = required | {piece for _, piece in losses[: size - len(required)]}
    return {piece: score for piece, score in scores.items() if piece in kept}


def _without(piece: str, scores: dict[str, float]) -> float:
    """The log probability of the best path through `piece` that does not use it."""
    best = [0.0] + [-math.inf] * len(piece)
    for end in range(1, len(piece) + 1):
        for start in range(end):
            part = piece[start:end]
            if end - start < len(piece) and part in scores:
                best[end] = max(best[end], best[start] + scores[part])
    return best[-1]
