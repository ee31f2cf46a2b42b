"""Units larger than words: phrases and entities, for masks that hide them whole.

Paper: Sun et al. 2019, "ERNIE: Enhanced Representation through Knowledge Integration", section 3.2. The authors take phrases
from taggers and entities from a knowledge base, of Chinese and English. Here any language will do:

- phrases: words that stand together far more often than by chance, up to four of them (joined twice, in pairs):
      NPMI(x, y) = log(p(xy) / (p(x) p(y))) / -log p(xy)  >= THRESHOLD        (Bouma 2009; 1: they always go together)
- entities: a user's list; every place where their pieces stand, as whole words, longer ones first.

A unit never leaves its sentence. The answer is an array like the store's `word_starts`, with fewer ones: whoever masks whole
words then masks whole units. What is unusual: words are told apart by a 64-bit hash of their pieces, so that counting is
sorting numbers, whatever the language and the tokenizer.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sesame.data.store import Store

THRESHOLD = 0.5  # "New York" has 0.8, "of the" 0.3
LEAST = 8  # occurrences: rarer pairs go together by accident
ROUNDS = 2  # pairs of words, then pairs of those
SAMPLE = 20_000_000  # tokens that are counted; all are marked
CHUNK = 1_000_000  # tokens at a time

Starts = npt.NDArray[np.uint8]
Keys = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
_PRIME, _STEP = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
_BITS = 20
_LONGEST = 64  # pieces of a unit that count in its hash


def phrase_starts(store: Store, joins: npt.NDArray[np.bool_], words: Starts | None = None) -> Starts:
    """Where units start when phrases are joined. `joins` (V,): pieces that may stand in a phrase, such as letters;
    `words`: where words start, unless as the store has it."""
    found = np.array(store.word_starts if words is None else words, dtype=np.uint8)
    for _ in range(ROUNDS):
        chosen = _strong_pairs(store, found, joins)
        if len(chosen) == 0:
            break
        for part in _chunks(store, int(store.sentences[-1])):
            parts = _words(store, found, joins, part)
            together = parts.together & _among(parts.pairs, chosen)
            found[parts.first[1:][_every_other(together)]] = 0
    return found


def entity_starts(store: Store, words: Starts, entities: Sequence[Sequence[int]], base: Starts | None = None) -> Starts:
    """Where units start when these sequences of pieces, whole words, are each one unit.

    `base`: the units of all other text, such as phrases; one that an entity cuts ends or starts there.
    """
    found = np.array(words if base is None else base, dtype=np.uint8)
    by_size: dict[int, list[Sequence[int]]] = {}
    for entity in entities:
        if len(entity) > 1:
            by_size.setdefault(len(entity), []).append(entity)
    taken = np.zeros(len(found), dtype=bool)
    for size in sorted(by_size, reverse=True):
        wanted = _Wanted(np.array(by_size[size], dtype=np.int64), store.meta["vocabulary"])
        for part in _chunks(store, int(store.sentences[-1])):
            for place in _places(store, words, wanted, part):
                end = place + size
                if not taken[place:end].any():
                    taken[place:end] = True
                    found[place + 1 : end] = 0
                    found[place : end + 1 : size] = 1
    return found


# ---- words as numbers ----------------------------------------------------------------------------------------------------


class _Words:
    """The units of some sentences: where each starts, and for each two neighbours a key and whether they may join."""

    def __init__(self, first: Ints, keys: Keys, sentence: Ints, may: npt.NDArray[np.bool_]) -> None:
        self.first, self.keys = first, keys
        self.together = (sentence[1:] == sentence[:-1]) & may[1:] & may[:-1]
        self.pairs = _pair(keys[:-1], keys[1:])


def _words(store: Store, starts: Starts, joins: npt.NDArray[np.bool_], part: tuple[int, int]) -> _Words:
    low, high = part
    begin, end = int(store.sentences[low]), int(store.sentences[high])
    tokens = np.asarray(store.tokens[begin:end], dtype=np.int64)
    heads = np.asarray(store.sentences[low : high + 1]) - begin
    mark = np.array(starts[begin:end], dtype=bool)
    mark[heads[:-1][heads[:-1] < len(mark)]] = True  # whatever starts a sentence starts a unit
    first = np.flatnonzero(mark)
    sizes = np.diff(np.append(first, len(tokens)))
    within = np.minimum(np.arange(len(tokens)) - np.repeat(first, sizes), _LONGEST - 1)
    mixed = _mix(np.arange(len(joins), dtype=np.uint64))[tokens]
    keys = np.add.reduceat(mixed * _powers()[within], first) if len(first) else _none()
    may = np.logical_and.reduceat(joins[tokens], first) if len(first) else np.zeros(0, dtype=bool)
    return _Words(first + begin, keys, np.searchsorted(heads, first, side="right"), may)


def _strong_pairs(store: Store, starts: Starts, joins: npt.NDArray[np.bool_]) -> Keys:
    """Keys of neighbours whose NPMI reaches the threshold, sorted."""
    keys, together = [], []
    for part in _chunks(store, SAMPLE):
        words = _words(store, starts, joins, part)
        keys.append(words.keys)
        together.append(np.append(words.together, False))  # the last of a chunk is the last of its sentence
    names, numbers, counts = _numbered(np.concatenate(keys))
    near = np.flatnonzero(np.concatenate(together))
    both, often = np.unique(numbers[near] * len(names) + numbers[near + 1], return_counts=True)
    both, often = both[often >= LEAST], often[often >= LEAST]
    left, right = np.divmod(both, len(names))
    total = counts.sum()
    joint = often / total
    npmi = np.log(joint / ((counts[left] / total) * (counts[right] / total))) / -np.log(joint)
    strong = npmi >= THRESHOLD
    return np.unique(_pair(names[left[strong]], names[right[strong]]))


def _numbered(keys: Keys) -> tuple[Keys, Ints, Ints]:
    """The different keys, the number of each place's key among them, and how often each is there."""
    names, counts = np.unique(keys, return_counts=True)
    return names, np.searchsorted(names, keys), counts


class _Wanted:
    """Entities of one size: their keys, and the pieces (V,) that one of them starts with."""

    def __init__(self, rows: Ints, vocabulary: int) -> None:
        self.size = rows.shape[1]
        self.keys = np.unique(_sequence_keys(rows))
        self.first = np.zeros(vocabulary, dtype=bool)
        self.first[rows[:, 0]] = True


def _places(store: Store, starts: Starts, wanted: _Wanted, part: tuple[int, int]) -> list[int]:
    """Where such a sequence of pieces starts and ends with a word, inside a sentence."""
    size = wanted.size
    low, high = part
    begin, end = int(store.sentences[low]), int(store.sentences[high])
    tokens = np.asarray(store.tokens[begin:end], dtype=np.int64)
    if len(tokens) < size:
        return []
    windows = np.lib.stride_tricks.sliding_window_view(tokens, size)
    opens = np.append(np.asarray(starts[begin:end], dtype=bool), True)
    heads = np.asarray(store.sentences[low : high + 1]) - begin
    opens[heads] = True
    at = np.flatnonzero(opens[: len(windows)] & opens[size:] & wanted.first[tokens[: len(windows)]])
    at = at[np.searchsorted(heads, at, side="right") == np.searchsorted(heads, at + size - 1, side="right")]
    return [int(place) + begin for place in at[_among(_sequence_keys(windows[at]), wanted.keys)]]


def _chunks(store: Store, tokens: int) -> Iterator[tuple[int, int]]:
    """Ranges of sentences of about CHUNK tokens, the first `tokens` of the text."""
    offsets = np.asarray(store.sentences)
    last = min(int(np.searchsorted(offsets, tokens, side="left")), len(offsets) - 1)
    low = 0
    while low < last:
        high = int(np.searchsorted(offsets, offsets[low] + CHUNK, side="left"))
        high = min(max(high, low + 1), last)
        yield low, high
        low = high


def _every_other(together: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Of a run of neighbours that may all join, the first with the second, the third with the fourth ..."""
    places = np.arange(len(together))
    run = places - np.maximum.accumulate(np.where(together, -1, places))  # 1 at the first of a run
    found: npt.NDArray[np.bool_] = together & (run % 2 == 1)
    return found


def _sequence_keys(rows: Ints) -> Keys:
    """Shape: (N, size) -> (N,)."""
    found: Keys = (_mix(rows.astype(np.uint64)) * _powers()[np.minimum(np.arange(rows.shape[1]), _LONGEST - 1)]).sum(1)
    return found


def sequence_keys(tokens: npt.NDArray[Any], offsets: Ints) -> Keys:
    """A number for each stretch between two offsets, equal where the pieces are. Shape: (T,), (S+1,) -> (S,)."""
    mixed = np.append(_mix(tokens.astype(np.uint64)), np.uint64(0))
    within = (
        np.arange(len(tokens)) - np.repeat(offsets[:-1], np.diff(offsets)) if len(tokens) else np.zeros(0, np.int64)
    )
    mixed[:-1] = _mix(mixed[:-1] + within.astype(np.uint64) * _STEP)
    sums: Keys = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed[:-1], dtype=np.uint64)])
    return sums[offsets[1:]] - sums[offsets[:-1]]


def _among(keys: Keys, wanted: Keys) -> npt.NDArray[np.bool_]:
    """Whether each is one of these, which are sorted. A look at the first bits leaves few to be searched for."""
    known = np.zeros(1 << _BITS, dtype=bool)
    known[wanted >> np.uint64(64 - _BITS)] = True
    found: npt.NDArray[np.bool_] = known[keys >> np.uint64(64 - _BITS)]
    likely = np.flatnonzero(found)
    at = np.minimum(np.searchsorted(wanted, keys[likely]), len(wanted) - 1)
    found[likely] = wanted[at] == keys[likely]
    return found


def _pair(left: Keys, right: Keys) -> Keys:
    found: Keys = _mix(left) * _STEP + right
    return found


def _mix(x: Keys) -> Keys:
    x = (x + np.uint64(1)) * _PRIME
    x = (x ^ (x >> np.uint64(31))) * _STEP
    found: Keys = x ^ (x >> np.uint64(29))
    return found


def _powers() -> Keys:
    found: Keys = np.cumprod(np.full(_LONGEST, _STEP | np.uint64(1), dtype=np.uint64), dtype=np.uint64)
    return found


def _none() -> Keys:
    return np.zeros(0, dtype=np.uint64)
