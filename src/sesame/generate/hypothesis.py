"""A text that a search found."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Hypothesis:
    ids: list[int]  # new tokens with the forced prefix, without the prompt, a start token or the end token
    logprob: float  # the model's own, before temperature and filters; the end token counts, forced tokens cost nothing
    score: float  # logprob under length and coverage penalty
    end: int | None  # the end token that came; None: cut at the greatest length, or no token was allowed any more

    @property
    def length(self) -> int:
        """As the length penalty counts."""
        return len(self.ids) + (self.end is not None)
