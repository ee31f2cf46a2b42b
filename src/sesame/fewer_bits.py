"""Do fewer bits answer the same? A model in 16 or 8 bits is asked beside itself in 32 before its answers are given out.

The texts are the user's own, at most `MOST` of them evenly spread; below `LEAST`, sentences that lie here join them. What
must agree: labels, choices, spans and the best token for a mask by the share that is equal, tags by the share of words,
numbers and similarities of vectors by Spearman's rank correlation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from sesame.data.examples import Example
from sesame.errors import SesameError
from sesame.evaluate.regression import spearman
from sesame.progress import say
from sesame.tasks import Reply
from sesame.tasks.fill import Filled
from sesame.text.samples import ENGLISH

LEAST, MOST = 20, 100
BARS = {  # the least that is taken
    "labels": 0.97, "tags": 0.97, "options": 0.95, "answers": 0.9, "tokens": 0.9, "numbers": 0.99, "similarities": 0.99
}  # fmt: skip


@dataclass(frozen=True)
class Agreement:
    what: str  # a key of BARS
    share: float  # equal answers, or Spearman's correlation
    count: int  # texts
    change: float | None = None  # the largest change of a probability

    def judge(self, precision: str, accept: bool) -> None:
        """Say it; refuse what is below the bar, unless the user accepts it."""
        ranks = self.what in ("numbers", "similarities")
        figure = f"Spearman {self.share:.4f} of {self.what}" if ranks else f"{self.share:.1%} of {self.what} equal"
        more = "" if self.change is None else f", a probability changes by {self.change:.3f} at most"
        found = f"{precision} against fp32 on {self.count} texts: {figure}{more}"
        bar = f"{BARS[self.what]:.2f}" if ranks else f"{BARS[self.what]:.0%}"
        if self.share < BARS[self.what] and not accept:
            raise SesameError(
                f"{found}; {bar} is the least: take --precision fp32, or --accept to have it all the same"
            )
        say(found)


def spread(things: Sequence[Any], most: int = MOST) -> list[Any]:
    """At most so many of them, from all over."""
    return [things[i * len(things) // min(most, len(things))] for i in range(min(most, len(things)))]


def sample_texts(texts: Sequence[str]) -> list[str]:
    return spread(texts) + (list(ENGLISH) if len(texts) < LEAST else [])


def sample_masks(texts: Sequence[str], mask: str) -> list[str]:
    """Texts with a mask; a sentence of ours loses its third word."""
    ours = [" ".join([*s.split()[:2], mask, *s.split()[3:]]) for s in ENGLISH]
    return spread(texts) + (ours if len(texts) < LEAST else [])


def sample_examples(examples: Sequence[Example], kind: str, pair: bool) -> list[Example]:
    found = [replace(example, label=None) for example in spread(examples)]
    if len(examples) >= LEAST:
        return found
    for text, other in pairwise(ENGLISH):
        if kind == "choice":
            found.append(Example("built in", text, options=(other, ENGLISH[0], ENGLISH[-1])))
        else:
            found.append(Example("built in", text, other if pair or kind == "qa" else None))
    return found


def of_vectors(ours: npt.NDArray[np.float32], theirs: npt.NDArray[np.float32]) -> Agreement:
    """Cosines of all pairs of texts, by rank."""
    upper = np.triu_indices(len(ours), 1)

    def cosines(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        unit = x.astype(np.float64) / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
        found: npt.NDArray[np.float64] = (unit @ unit.T)[upper]
        return found

    return Agreement("similarities", spearman(cosines(ours), cosines(theirs)), len(ours))


def of_masks(ours: Sequence[Sequence[Filled]], theirs: Sequence[Sequence[Filled]]) -> Agreement:
    both = [pair for a, b in zip(ours, theirs, strict=True) for pair in zip(a, b, strict=True)]
    equal = [a.tokens[0] == b.tokens[0] for a, b in both]
    change = max((abs(x - y) for a, b in both for x, y in _by_name(_chances(a), _chances(b))), default=0.0)
    return Agreement("tokens", float(np.mean(equal)), len(ours), change)


def of_replies(ours: Sequence[Reply], theirs: Sequence[Reply]) -> Agreement:
    """Answers of a task, whatever it is."""
    both = list(zip(ours, theirs, strict=True))
    if "value" in ours[0]:
        share = spearman(np.array([a["value"] for a in ours]), np.array([b["value"] for b in theirs]))
        return Agreement("numbers", share, len(both))
    if "tags" in ours[0]:
        tags = [x == y for a, b in both for x, y in zip(a["tags"], b["tags"], strict=True)]
        return Agreement("tags", float(np.mean(tags)) if tags else 1.0, len(both))
    key, what = next(pair for pair in _KEYS if pair[0] in ours[0])
    share = float(np.mean([a[key] == b[key] for a, b in both]))
    if what == "answers":
        return Agreement(what, share, len(both))
    change = max(abs(x - y) for a, b in both for x, y in _by_name(_named(a), _named(b)))
    return Agreement(what, share, len(both), change)


_KEYS = (("label", "labels"), ("labels", "labels"), ("choice", "options"), ("answer", "answers"))


def _named(reply: Reply) -> dict[Any, float]:
    found = reply["probabilities"]
    return found if isinstance(found, dict) else dict(enumerate(found))


def _chances(filled: Filled) -> dict[Any, float]:
    return dict(zip(filled.tokens, filled.probabilities, strict=True))


def _by_name(ours: dict[Any, float], theirs: dict[Any, float]) -> list[tuple[float, float]]:
    return [(chance, theirs[name]) for name, chance in ours.items() if name in theirs]
