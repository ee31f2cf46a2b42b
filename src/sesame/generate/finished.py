"""The finished hypotheses of one source, and whether those that still run can change them.

`early` names when a source is left:
    provable  when no running hypothesis can come among the `best` any more (proof below)
    full      as soon as `beams` are finished: transformers' early_stopping=True
    present   when `beams` are finished and the best running one, at its present length, scores no better than the worst of
              them: transformers' early_stopping=False, a guess where alpha > 0
    never     the same at the greatest length where alpha > 0: transformers' early_stopping="never"

Proof for "provable". Let r be the log-probability of the best running hypothesis after t tokens. A token's log-probability
is at most 0 (`top.continuations` sees to it against rounding; forced tokens count 0), so each hypothesis that finishes later
has a log-probability l <= r <= 0 and a length n with t < n <= most, and more than `fewest` unless n = most. Its score is
l / d(n) + c with a coverage penalty c <= 0, d > 0. If alpha >= 0, d grows with n, and as r <= 0: l / d(n) <= r / d(n) <=
r / d(most). If alpha < 0, d falls with n, so r / d(n) is greatest at the least n. Either number, `attainable`, is a bound. If
`best` hypotheses are kept and the last of them scores at least as much, whatever comes later has no better score, and of
equal ones the earlier stays: what is returned is fixed. Each inequality holds for rounded numbers too, for rounding is
monotone. So the result is that of a search which never stops before `most`, and also that of "never".
"""

from bisect import bisect_right

from sesame.generate.hypothesis import Hypothesis
from sesame.generate.settings import Settings


class Finished:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.room = settings.best if settings.early == "provable" else settings.beams
        self.kept: list[Hypothesis] = []  # the best first

    def welcomes(self, score: float) -> bool:
        return len(self.kept) < self.room or score > self.kept[-1].score

    def add(self, hypothesis: Hypothesis) -> None:
        at = bisect_right(self.kept, -hypothesis.score, key=lambda one: -one.score)
        self.kept.insert(at, hypothesis)
        del self.kept[self.room :]

    def settled(self, running: float, step: int) -> bool:
        """Whether the source is done, when the best running hypothesis has this log-probability after `step` tokens."""
        if len(self.kept) < self.room:
            return False
        return self.settings.early == "full" or self.attainable(running, step) <= self.kept[-1].score

    def attainable(self, running: float, step: int) -> float:
        settings = self.settings
        if settings.early == "present":
            return settings.score(running, step)
        if settings.alpha > 0:
            return settings.score(running, settings.most)
        if settings.early == "never":
            return settings.score(running, step)
        return settings.score(running, min(max(step, settings.fewest) + 1, settings.most))
