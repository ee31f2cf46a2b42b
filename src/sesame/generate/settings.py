"""What a user may ask of a search.

Length penalty: logprob / divisor(length), where the length counts the new tokens and the end token, not the prompt.
    plain (as transformers):  length ^ alpha
    gnmt  (Wu et al. 2016, https://arxiv.org/abs/1609.08144):  ((5 + length) / 6) ^ alpha
Coverage penalty (the same paper): + beta * sum over source places i of log(min(sum over steps j of p_ij, 1)).

Lengths are numbers of new tokens, the end token among them: transformers' `max_new_tokens` and `min_new_tokens`. (Its
`max_length` adds the decoder's start token or the prompt with its padding, so it depends on the batch; its length penalty
counts, since version 5, new tokens only, as ours does.)

Beams 1 without sampling is greedy, as in transformers: the first end token ends the text.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from sesame.errors import SesameError

Penalty = Literal["plain", "gnmt"]
Early = Literal["provable", "full", "present", "never"]


@dataclass(frozen=True)
class Settings:
    beams: int = 1  # hypotheses that a search follows; 1: greedy
    best: int = 1  # answers for each source: the best of a beam, or as many samples
    most: int = 128  # new tokens, with the end token
    fewest: int = 0  # new tokens before the end token may come
    sample: bool = False  # draw tokens instead of searching
    seed: int = 0
    temperature: float = 1.0  # below 1: bolder, above: wilder
    top_k: int = 0  # draw from the k likeliest tokens; 0: from all
    top_p: float = 1.0  # draw from the fewest tokens that hold this share of the probability (after top_k)
    penalty: Penalty = "plain"
    alpha: float = 1.0  # strength of the length penalty; 0: none; below 0 it prefers short texts
    coverage: float = 0.0  # GNMT's beta
    no_repeat: int = 0  # no n-gram of this size comes twice; 0: they may
    never: tuple[int | tuple[int, ...], ...] = ()  # tokens, or rows of them, that are never said (Marian: its padding)
    force_end: bool = False  # the last token allowed is the end token, at no cost (BART)
    early: Early = "provable"  # when a beam search leaves a source: see `finished.py`

    def __post_init__(self) -> None:
        for name, least in (("beams", 1), ("best", 1), ("most", 1), ("fewest", 0), ("top_k", 0), ("no_repeat", 0)):
            if getattr(self, name) < least:
                raise SesameError(f"generate.{name} is {getattr(self, name)}; it must be at least {least}")
        self._check_ranges()
        self._check_together()

    def divisor(self, length: int) -> float:
        """What the log-probability of a text of this length is divided by."""
        base = float(length) if self.penalty == "plain" else (5 + length) / 6
        return float(base**self.alpha)

    def score(self, logprob: float, length: int) -> float:
        return logprob / self.divisor(length)

    def _check_ranges(self) -> None:
        if not self.temperature > 0:
            raise SesameError(
                f"generate.temperature is {self.temperature}; it must be above 0 (--greedy takes the likeliest token always)"
            )
        if not 0 < self.top_p <= 1:
            raise SesameError(f"generate.top_p is {self.top_p}; it must lie above 0 and be at most 1")
        if not self.coverage >= 0:
            raise SesameError(f"generate.coverage is {self.coverage}; it must be 0 (off) or above")
        if not abs(self.alpha) < 100:
            raise SesameError(f"generate.alpha is {self.alpha}; take a number such as 0.6, 1 or 2")
        for name, value, known in (("penalty", self.penalty, Penalty), ("early", self.early, Early)):
            if value not in get_args(known):
                raise SesameError(f"generate.{name} is {value!r}; choose one of {', '.join(get_args(known))}")

    def _check_together(self) -> None:
        if self.fewest >= self.most:
            raise SesameError(
                f"generate.fewest is {self.fewest}, which leaves no room for the end token in generate.most = {self.most}; "
                "make most larger"
            )
        if self.sample and self.beams > 1:
            raise SesameError(
                f"generate.sample does not go with generate.beams = {self.beams}; for several samples set generate.best"
            )
        if not self.sample and self.best > self.beams:
            raise SesameError(
                f"generate.best is {self.best}, but generate.beams = {self.beams} hypotheses are followed; "
                f"set beams to {self.best} or more"
            )
        if not self.sample and (self.temperature != 1 or self.top_k or self.top_p != 1):
            raise SesameError("generate.temperature, top_k and top_p choose among samples; set generate.sample = true")
        if self.coverage and self.beams == 1:
            raise SesameError("generate.coverage ranks the hypotheses of a beam; set generate.beams to 2 or more")
