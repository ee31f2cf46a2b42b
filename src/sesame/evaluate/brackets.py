"""Brackets of parse trees, counted as evalb does with Collins' parameters (COLLINS.prm), the figures of all parsing papers.

    precision = right brackets / brackets said      recall = right brackets / brackets of the gold tree
    f1 = 2 right / (said + gold)                    all over the sums of the sentences, not their mean

Program: evalb by Sekine & Collins 1997 (https://nlp.cs.nyu.edu/evalb). Its rules, in order:
1. Words tagged -NONE- , : `` '' or . are taken out on both sides, by the tag of *that* side; brackets without a word go too.
   So a parser that gets those tags wrong has another sentence. Put the gold tags on (`data.trees.delinearize(..., tags)`)
   when a model says none.
2. If then nothing is left of the answer, the sentence is skipped; if the words differ, it is an error. Neither counts
   anywhere. A sentence whose words are there without any bracket does count: it lowers recall.
3. Functions are stripped (NP-SBJ is NP), TOP brackets are dropped, ADVP and PRT are the same label.
4. A bracket is right if label and span are in both trees, as often as in both: (NP (NP the man)) has two.
5. An answer's bracket crosses if it overlaps a gold bracket and neither holds the other. The label does not matter.

Unusual: because skipped sentences flatter a parser, `f1_of_all` counts the gold brackets of skipped sentences and errors as
missed; evalb has no such figure. Where evalb prints nan (no bracket is right), f1 is 0. It does not stop after ten errors.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from sesame.data.trees import Bracket, Tree
from sesame.errors import SesameError
from sesame.evaluate import check_pairs
from sesame.evaluate.classification import share
from sesame.progress import say

DELETED = frozenset(["TOP", "-NONE-", ",", ":", "``", "''", "."])
_SAME = {"PRT": "ADVP"}


@dataclass(frozen=True)
class Counted:
    """What one sentence adds; `wrong` says why it does not count, "" if it does."""

    right: int = 0
    said: int = 0
    gold: int = 0
    crossing: int = 0  # brackets said that cross a gold one
    words: int = 0
    tags: int = 0  # that are right
    wrong: str = ""

    @property
    def complete(self) -> bool:
        return self.right == self.said == self.gold


def bracket_scores(gold: Sequence[Tree], said: Sequence[Tree | None], longest: int | None = None) -> dict[str, float]:
    """precision, recall, f1, complete_match, crossing (brackets a sentence), no_crossing, two_or_less_crossing,
    tag_accuracy; sentences, errors, skipped; f1_of_all.

    None is an answer that could not be read; it is skipped. `longest` leaves out gold sentences of more words (evalb: 40);
    traces are not counted as words there. Shares of nothing are 0.
    """
    check_pairs(gold, said)
    pairs = [(one, other) for one, other in zip(gold, said, strict=True) if longest is None or _length(one) <= longest]
    if not pairs:
        raise SesameError(f"no gold sentence has {longest} words or fewer; give a larger limit, or none")
    rows = [count(one, other) for one, other in pairs]
    valid = [row for row in rows if not row.wrong]
    skipped = sum(other is None or not _without_deleted(other)[0] for _, other in pairs)
    _warn(rows, skipped)
    right, of_said, of_gold = (sum(getattr(row, name) for row in valid) for name in ("right", "said", "gold"))
    missed = sum(len(_without_deleted(one)[2]) for (one, _), row in zip(pairs, rows, strict=True) if row.wrong)
    crossing = [row.crossing for row in valid]
    return {
        "precision": float(share(right, of_said)),
        "recall": float(share(right, of_gold)),
        "f1": float(share(2 * right, of_said + of_gold)),
        "complete_match": float(share(sum(row.complete for row in valid), len(valid))),
        "crossing": float(share(sum(crossing), len(valid))),
        "no_crossing": float(share(sum(number == 0 for number in crossing), len(valid))),
        "two_or_less_crossing": float(share(sum(number <= 2 for number in crossing), len(valid))),
        "tag_accuracy": float(share(sum(row.tags for row in valid), sum(row.words for row in valid))),
        "sentences": len(rows),
        "errors": len(rows) - len(valid) - skipped,
        "skipped": skipped,
        "f1_of_all": float(share(2 * right, of_said + of_gold + missed)),
    }


def bracket_counts(gold: Sequence[Tree], said: Sequence[Tree | None]) -> NDArray[np.int64]:
    """(sentences, 3): brackets that are right, said and gold; what `statistics.micro_f1` resamples. Errors add nothing."""
    check_pairs(gold, said)
    rows = [count(one, other) for one, other in zip(gold, said, strict=True)]
    return np.array([(row.right, row.said, row.gold) for row in rows], dtype=np.int64)


def count(gold: Tree, said: Tree | None) -> Counted:
    """One sentence."""
    words, tags, wanted = _without_deleted(gold)
    said_words, said_tags, given = _without_deleted(said) if said is not None else ([], [], [])
    if not said_words:
        return Counted(wrong="the answer has no words")
    if len(words) != len(said_words):
        return Counted(wrong=f"{len(words)} words in the gold tree, {len(said_words)} in the answer")
    for one, other in zip(words, said_words, strict=True):
        if one != other:
            return Counted(wrong=f"{one!r} in the gold tree is {other!r} in the answer")
    return Counted(
        right=(Counter(wanted) & Counter(given)).total(),
        said=len(given),
        gold=len(wanted),
        crossing=sum(any(_cross(one, other) for other in set(wanted)) for one in given),
        words=len(words),
        tags=sum(_SAME.get(a, a) == _SAME.get(b, b) for a, b in zip(tags, said_tags, strict=True)),
    )


def _without_deleted(tree: Tree) -> tuple[list[str], list[str], list[Bracket]]:
    """Words, tags and brackets that count."""
    keep = [tag not in DELETED for tag in tree.tags]
    at = list(accumulate(keep, initial=0))
    brackets = []
    for full, start, end in tree.brackets:
        label = full.split("-", 1)[0].split("=", 1)[0]  # as evalb: "-X" is "" here
        if at[start] < at[end] and label not in DELETED:
            brackets.append(Bracket(_SAME.get(label, label), at[start], at[end]))
    words = [word for word, kept in zip(tree.words, keep, strict=True) if kept]
    return words, [tag for tag, kept in zip(tree.tags, keep, strict=True) if kept], brackets


def _cross(one: Bracket, other: Bracket) -> bool:
    return one.start < other.start < one.end < other.end or other.start < one.start < other.end < one.end


def _length(tree: Tree) -> int:
    return sum(tag != "-NONE-" for tag in tree.tags)


def _warn(rows: Sequence[Counted], skipped: int) -> None:
    wrong = [(number, row.wrong) for number, row in enumerate(rows, 1) if row.wrong]
    if wrong:
        say(
            f"{len(wrong):,} of {len(rows):,} sentences do not count, as in evalb: {skipped:,} without words, "
            f"{len(wrong) - skipped:,} with other words than the gold tree; the first is sentence {wrong[0][0]:,} "
            f"({wrong[0][1]}); f1_of_all counts them as missed"
        )
