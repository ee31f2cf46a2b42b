"""Scores of names: one for each example, or several.

All scores come from the confusion counts n[g, s] (rows: gold, columns: said), so that a thousand resamples are scored as
fast as one (`resampled`). For a class k with right = n[k, k]:

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
_LARGEST_BLOCK = 1 << 23  # confusion cells that are held at once


def classification_scores(gold: Sequence[str], said: Sequence[str], labels: Sequence[str]) -> dict[str, float]:
    """accuracy, macro_f1, weighted_f1 (by gold counts), matthews, and for two labels f1 of the positive one.

    The positive label is "1" where there is one, else the last of `labels` (as in GLUE's MRPC and QQP). Matthews is the
    correlation of gold and said (for several classes Gorodkin's R_K), 0 where one of them is constant.
    """
    counts = np.asarray(confusion(gold, said, labels))
    return {name: float(score(counts)) for name, score in _scores(labels).items()}


def per_class(gold: Sequence[str], said: Sequence[str], labels: Sequence[str]) -> list[dict[str, Any]]:
    """label, precision, recall, f1 and count (in gold) of each class."""
    counts = np.asarray(confusion(gold, said, labels))
    return _table(all_labels(gold, said, labels), np.diagonal(counts), counts.sum(0), counts.sum(1))


def confusion(gold: Sequence[str], said: Sequence[str], labels: Sequence[str]) -> list[list[int]]:
    """How often a row's label was taken for a column's; the order is that of `all_labels`."""
    cells, size = _cells(gold, said, labels)
    counts: list[list[int]] = np.bincount(cells, minlength=size * size).reshape(size, size).tolist()
    return counts


def all_labels(gold: Sequence[str], said: Sequence[str], labels: Sequence[str]) -> list[str]:
    """`labels`, then what else occurs, sorted."""
    return [*dict.fromkeys(labels), *sorted({*gold, *said} - set(labels))]


def resampled(gold: Sequence[str], said: Sequence[str], labels: Sequence[str], score: str) -> Callable[[Ints], Floats]:
    """One of the scores above as a function of which examples are taken: (rounds, examples) -> (rounds,)."""
    known = _scores(labels)
    if score not in known:
        raise SesameError(f"there is no score {score!r} here; known are {', '.join(known)}")
    cells, size = _cells(gold, said, labels)
    rows = max(1, _LARGEST_BLOCK // size**2)

    def block(taken: Ints) -> Floats:
        places = cells[taken] + size**2 * np.arange(len(taken))[:, None]
        counts = np.bincount(places.ravel(), minlength=len(taken) * size**2)
        return known[score](counts.reshape(len(taken), size, size))

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


# ---- scores of confusion counts (..., classes, classes) --------------------------------------------------------------


def share(part: Any, whole: Any) -> Floats:
    """part / whole, 0 where the whole is 0."""
    part, whole = np.broadcast_arrays(np.asarray(part, dtype=np.float64), np.asarray(whole, dtype=np.float64))
    return np.asarray(np.divide(part, whole, out=np.zeros(part.shape), where=whole != 0))


def _scores(labels: Sequence[str]) -> dict[str, Callable[[Ints], Floats]]:
    scores: dict[str, Callable[[Ints], Floats]] = {
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


def _right(counts: Ints) -> Ints:
    return np.diagonal(counts, axis1=-2, axis2=-1)


def _f1(counts: Ints) -> Floats:
    return share(2 * _right(counts), counts.sum(-2) + counts.sum(-1))


def _accuracy(counts: Ints) -> Floats:
    return share(_right(counts).sum(-1), counts.sum((-2, -1)))


def _macro_f1(counts: Ints) -> Floats:
    """The mean over the classes that occur, be it in gold or in said; of resamples each has its own."""
    occurs = (counts.sum(-2) + counts.sum(-1)) > 0
    return share(_f1(counts).sum(-1), occurs.sum(-1))


def _weighted_f1(counts: Ints) -> Floats:
    gold = counts.sum(-1)
    return share((_f1(counts) * gold).sum(-1), gold.sum(-1))


def _matthews(counts: Ints) -> Floats:
    """R_K = (n right - sum_k gold_k said_k) / sqrt((n^2 - sum_k said_k^2) (n^2 - sum_k gold_k^2))."""
    said, gold = counts.sum(-2).astype(np.float64), counts.sum(-1).astype(np.float64)
    n, right = gold.sum(-1), _right(counts).sum(-1)
    spread = (n**2 - (said**2).sum(-1)) * (n**2 - (gold**2).sum(-1))
    return share(n * right - (gold * said).sum(-1), np.sqrt(spread))


def _cells(gold: Sequence[str], said: Sequence[str], labels: Sequence[str]) -> tuple[Ints, int]:
    """For each example the number of its confusion cell, row by row."""
    check_pairs(gold, said)
    names = all_labels(gold, said, labels)
    number = {name: at for at, name in enumerate(names)}
    cells = [number[g] * len(names) + number[s] for g, s in zip(gold, said, strict=True)]
    return np.array(cells, dtype=np.int64), len(names)


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else 0.0


def _table(names: Sequence[str], right: Ints, said: Ints, gold: Ints) -> list[dict[str, Any]]:
    columns = share(right, said), share(right, gold), share(2 * right, said + gold), gold
    return [
        {"label": name, "precision": float(p), "recall": float(r), "f1": float(f), "count": int(count)}
        for name, p, r, f, count in zip(names, *columns, strict=True)
    ]
