"""Scores of names: one for each example, or several.

All scores come from three numbers of each class, how often it is right, said and gold, so that thousands of resamples are
scored at once (`resampled`), whatever the number of classes. For a class:

    precision = right / said,  recall = right / gold,  F1 = 2 right / (said + gold);   0 / 0 = 0

The classes are those of `labels`, in that order, then all others that occur (a label the model never saw counts as a class
that is always missed). A class that neither gold nor said has is left out of the macro mean, as scikit-learn does: rows that
lack a class say nothing about it. Of several labels at once all count, with F1 = 0 where one does not occur, as there too: a
column of its table of labels stays a column.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sesame.errors import SesameError
from sesame.evaluate import check_pairs

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Counts = tuple[Ints, Ints, Ints]
"""Right, said and gold of each class. Shape: each (..., K)."""
_LARGEST_BLOCK = 1 << 21  # drawn examples and counts that are held at once


def classification_scores(gold: Sequence[str], said: Sequence[str], labels: Sequence[str]) -> dict[str, float]:
    """accuracy, macro_f1, weighted_f1 (by gold counts), matthews, and for two labels f1 of the positive one.

    The positive label is "1" where there is one, else the last of `labels` (as in GLUE's MRPC and QQP). Matthews is the
    correlation of gold and said (for several classes Gorodkin's R_K), 0 where one of them is constant.
    """
    counts = _sides(gold, said, labels)
    return {name: float(score(counts)) for name, score in _scores(labels).items()}


def per_class(gold: Sequence[str], said: Sequence[str], labels: Sequence[str]) -> list[dict[str, Any]]:
    """label, precision, recall, f1 and count (in gold) of each class."""
    return _table(all_labels(gold, said, labels), *_sides(gold, said, labels))


def confusion(gold: Sequence[str], said: Sequence[str], labels: Sequence[str]) -> list[list[int]]:
    """How often a row's label was taken for a column's; the order is that of `all_labels`."""
    g, s, size = _numbers(gold, said, labels)
    counts: list[list[int]] = np.bincount(g * size + s, minlength=size * size).reshape(size, size).tolist()
    return counts


def all_labels(gold: Sequence[str], said: Sequence[str], labels: Sequence[str]) -> list[str]:
    """`labels`, then what else occurs, sorted."""
    return [*dict.fromkeys(labels), *sorted({*gold, *said} - set(labels))]


def resampled(gold: Sequence[str], said: Sequence[str], labels: Sequence[str], score: str) -> Callable[[Ints], Floats]:
    """One of the scores above as a function of which examples are taken: (rounds, examples) -> (rounds,)."""
    known = _scores(labels)
    if score not in known:
        raise SesameError(f"there is no score {score!r} here; known are {', '.join(known)}")
    g, s, size = _numbers(gold, said, labels)
    rows = max(1, _LARGEST_BLOCK // (len(g) + size))

    def block(taken: Ints) -> Floats:
        return known[score](_counts(g[taken], s[taken], size))

    return lambda taken: np.concatenate([block(taken[at : at + rows]) for at in range(0, len(taken), rows)])


# ---- several labels at once -----------------------------------------------------------------------------------------


def multilabel_scores(
    gold: Sequence[Collection[str]], said: Sequence[Collection[str]], labels: Sequence[str]
) -> dict[str, float]:
    """micro_f1 (over all pairs of example and label), macro_f1 (mean over labels), exact_match (all labels right)."""
    _, right, of_said, of_gold = _multilabel(gold, said, labels)
    return {
        "micro_f1": float(share(2 * right.sum(), of_said.sum() + of_gold.sum())),
        "macro_f1": _mean(share(2 * right, of_said + of_gold)),
        "exact_match": sum(set(g) == set(s) for g, s in zip(gold, said, strict=True)) / len(gold),
    }


def multilabel_per_class(
    gold: Sequence[Collection[str]], said: Sequence[Collection[str]], labels: Sequence[str]
) -> list[dict[str, Any]]:
    """label, precision, recall, f1 and count (in gold) of each label."""
    return _table(*_multilabel(gold, said, labels))


def multilabel_counts(gold: Sequence[Collection[str]], said: Sequence[Collection[str]]) -> Ints:
    """(examples, 3): labels that are right, said and gold; what `statistics.micro_f1` resamples."""
    check_pairs(gold, said)
    pairs = [(set(g), set(s)) for g, s in zip(gold, said, strict=True)]
    return np.array([(len(g & s), len(s), len(g)) for g, s in pairs], dtype=np.int64)


def _multilabel(
    gold: Sequence[Collection[str]], said: Sequence[Collection[str]], labels: Sequence[str]
) -> tuple[list[str], Ints, Ints, Ints]:
    check_pairs(gold, said)
    flat = [[label for names in side for label in set(names)] for side in (gold, said)]
    both = [label for g, s in zip(gold, said, strict=True) for label in set(g) & set(s)]
    names = all_labels(flat[0], flat[1], labels)
    number = {name: at for at, name in enumerate(names)}
    right, of_said, of_gold = (
        np.bincount(np.array([number[name] for name in side], dtype=np.int64), minlength=len(names))
        for side in (both, flat[1], flat[0])
    )
    return names, right, of_said, of_gold


# ---- scores of counts (..., classes) ----------------------------------------------------------------------------------


def share(part: Any, whole: Any) -> Floats:
    """part / whole, 0 where the whole is 0."""
    part, whole = np.broadcast_arrays(np.asarray(part, dtype=np.float64), np.asarray(whole, dtype=np.float64))
    return np.asarray(np.divide(part, whole, out=np.zeros(part.shape), where=whole != 0))


def _scores(labels: Sequence[str]) -> dict[str, Callable[[Counts], Floats]]:
    scores: dict[str, Callable[[Counts], Floats]] = {
        "accuracy": _accuracy,
        "macro_f1": _macro_f1,
        "weighted_f1": _weighted_f1,
        "matthews": _matthews,
    }
    names = list(dict.fromkeys(labels))
    if len(names) == 2:
        positive = names.index("1") if "1" in names else 1
        scores["f1"] = lambda counts: _f1(counts)[..., positive]
    return scores


def _f1(counts: Counts) -> Floats:
    right, said, gold = counts
    return share(2 * right, said + gold)


def _accuracy(counts: Counts) -> Floats:
    right, _, gold = counts
    return share(right.sum(-1), gold.sum(-1))


def _macro_f1(counts: Counts) -> Floats:
    """The mean over the classes that occur, be it in gold or in said; of resamples each has its own."""
    _, said, gold = counts
    return share(_f1(counts).sum(-1), (said + gold > 0).sum(-1))


def _weighted_f1(counts: Counts) -> Floats:
    gold = counts[2]
    return share((_f1(counts) * gold).sum(-1), gold.sum(-1))


def _matthews(counts: Counts) -> Floats:
    """R_K = (n right - sum_k gold_k said_k) / sqrt((n^2 - sum_k said_k^2) (n^2 - sum_k gold_k^2))."""
    right, said, gold = (side.astype(np.float64) for side in counts)
    n = gold.sum(-1)
    spread = (n**2 - (said**2).sum(-1)) * (n**2 - (gold**2).sum(-1))
    return share(n * right.sum(-1) - (gold * said).sum(-1), np.sqrt(spread))


def _numbers(gold: Sequence[str], said: Sequence[str], labels: Sequence[str]) -> tuple[Ints, Ints, int]:
    """Gold and said as numbers of `all_labels`, and how many of these there are."""
    check_pairs(gold, said)
    names = all_labels(gold, said, labels)
    number = {name: at for at, name in enumerate(names)}
    g, s = (np.array([number[name] for name in side], dtype=np.int64) for side in (gold, said))
    return g, s, len(names)


def _sides(gold: Sequence[str], said: Sequence[str], labels: Sequence[str]) -> Counts:
    g, s, size = _numbers(gold, said, labels)
    right, of_said, of_gold = _counts(g[None], s[None], size)
    return right[0], of_said[0], of_gold[0]


def _counts(gold: Ints, said: Ints, size: int) -> Counts:
    """Shape: (draws, examples) -> each (draws, size)."""
    draws = len(gold)
    first = size * np.arange(draws)[:, None]

    def each(places: Ints) -> Ints:
        return np.bincount(places.ravel(), minlength=draws * size).reshape(draws, size)

    return each((gold + first)[gold == said]), each(said + first), each(gold + first)


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else 0.0


def _table(names: Sequence[str], right: Ints, said: Ints, gold: Ints) -> list[dict[str, Any]]:
    columns = share(right, said), share(right, gold), share(2 * right, said + gold), gold
    return [
        {"label": name, "precision": float(p), "recall": float(r), "f1": float(f), "count": int(count)}
        for name, p, r, f, count in zip(names, *columns, strict=True)
    ]
