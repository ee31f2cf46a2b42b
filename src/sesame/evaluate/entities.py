"""Entities from tags, and their F1: an entity counts only if its type and both its ends are right.

Reads IOB1, IOB2 and BIOES (BILOU's L and U are E and S) by one lenient rule, that of the CoNLL-2000 script conlleval: a
word goes on with the entity before it if its tag is I or E, the tag before is B or I, and both have the same type; any
other tag than O starts a new entity. So `I-PER` after `O`, or after `I-LOC`, starts one.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sesame.errors import SesameError
from sesame.evaluate import check_pairs
from sesame.evaluate.classification import share

Entity = tuple[str, int, int]
_KINDS = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S"}


def entities(tags: Sequence[str]) -> list[Entity]:
    """(type, first word, word after the last one) of each entity, in order. The type of a bare tag ("B") is "_"."""
    found: list[Entity] = []
    kind_before, type_before = "O", ""
    for at, tag in enumerate(tags):
        kind, type_ = _parts(tag)
        if kind in "IE" and kind_before in "BI" and type_ == type_before:
            found[-1] = (type_, found[-1][1], at + 1)
        elif kind != "O":
            found.append((type_, at, at + 1))
        kind_before, type_before = kind, type_
    return found


def entity_scores(gold: Sequence[Sequence[str]], said: Sequence[Sequence[str]]) -> dict[str, float]:
    """precision, recall and f1 over the entities of all sentences, and the accuracy of the tags; 0 / 0 = 0."""
    right, of_said, of_gold = entity_counts(gold, said).sum(0)
    same = sum(g == s for one, other in zip(gold, said, strict=True) for g, s in zip(one, other, strict=True))
    return {
        "precision": float(share(right, of_said)),
        "recall": float(share(right, of_gold)),
        "f1": float(share(2 * right, of_said + of_gold)),
        "accuracy": float(share(same, sum(map(len, gold)))),
    }


def entity_table(gold: Sequence[Sequence[str]], said: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """label, precision, recall, f1 and count (in gold) of each type that occurs, sorted by name."""
    counts: dict[str, list[int]] = {}
    for wanted, given in _sentences(gold, said):
        for at, group in enumerate((wanted & given, given, wanted)):
            for type_, _, _ in group:
                counts.setdefault(type_, [0, 0, 0])[at] += 1
    return [
        {
            "label": type_,
            "precision": float(share(right, of_said)),
            "recall": float(share(right, of_gold)),
            "f1": float(share(2 * right, of_said + of_gold)),
            "count": of_gold,
        }
        for type_, (right, of_said, of_gold) in sorted(counts.items())
    ]


def entity_counts(gold: Sequence[Sequence[str]], said: Sequence[Sequence[str]]) -> NDArray[np.int64]:
    """(sentences, 3): entities that are right, said and gold; what `statistics.micro_f1` resamples."""
    rows = [(len(wanted & given), len(given), len(wanted)) for wanted, given in _sentences(gold, said)]
    return np.array(rows, dtype=np.int64)


def _sentences(
    gold: Sequence[Sequence[str]], said: Sequence[Sequence[str]]
) -> list[tuple[frozenset[Entity], frozenset[Entity]]]:
    check_pairs(gold, said)
    for at, (one, other) in enumerate(zip(gold, said, strict=True)):
        if len(one) != len(other):
            raise SesameError(
                f"sentence {at + 1} has {len(one)} words but {len(other)} tags; give one tag for each word"
            )
    return [(frozenset(entities(one)), frozenset(entities(other))) for one, other in zip(gold, said, strict=True)]


def _parts(tag: str) -> tuple[str, str]:
    """ "B-PER" -> B, PER. Only the first hyphen divides: types may have some of their own."""
    prefix, _, type_ = tag.partition("-")
    if prefix == "O":
        return "O", ""
    if prefix not in _KINDS:
        raise SesameError(f"{tag!r} is not a tag of IOB or BIOES; write O, or B-, I-, E-, S- and a type")
    return _KINDS[prefix], type_ or "_"
