"""A watch over replaced-token detection, which fails in silence: the loss falls a little, and nothing is learnt.

Two signs, each read from figures that the training makes anyway (see `objectives/rtd.py`):
- the generator is no better than one who knows frequencies only. With H the entropy of the tokens asked for so far
  (Miller & Madow 1955: -Σ p log p + (kinds - 1) / 2N), and `mask` the share of them that is hidden while the rest can be
  copied, that reader's loss is mask * H. To be healthy is to be clearly below it.
- the discriminator finds none of the replaced tokens: recall near 0, and a loss no better than that of one who knows only
  which share r of all tokens is replaced, -r log r - (1 - r) log (1 - r). Recall alone is no sign: where few tokens are
  replaced, a discriminator that ranks them well may not yet call any of them more likely replaced than not.

A sign that lasts for `patience` steps after the warm-up stops the run with a sentence. Counting starts anew with each
process; what is learnt never depends on it.
"""

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sesame.data.batch import IGNORE, Batch
from sesame.errors import SesameError
from sesame.objectives.base import Term
from sesame.objectives.rtd import ReplacedConfig
from sesame.train.optim import OptimConfig
from sesame.train.schedule import Schedule

CLEARLY = 0.97  # of the loss of one who knows frequencies only; the sketch that failed stood above all of it
NONE = 0.01  # recall that is as good as none
SMOOTH = 0.8  # share of the past in the running means of windows
RARE = 0.02  # share of replaced tokens under which there is little to find


class Frequencies:
    """The tokens that a generator was asked for. Loader threads call `see`."""

    def __init__(self, vocab: int) -> None:
        self.counts = np.zeros(vocab, dtype=np.int64)
        self.lock = threading.Lock()

    def see(self, batches: list[Batch]) -> list[Batch]:
        for batch in batches:
            labels = batch.targets["mlm"].labels.numpy()
            found = np.bincount(labels[labels != IGNORE], minlength=len(self.counts))
            with self.lock:
                self.counts += found
        return batches

    def entropy(self) -> float:
        """In nats; 0 before anything was seen."""
        with self.lock:
            seen = self.counts[self.counts > 0].astype(np.float64)
        total = float(seen.sum())
        if not total:
            return 0.0
        return float(math.log(total) - (seen * np.log(seen)).sum() / total + (len(seen) - 1) / (2 * total))


@dataclass
class Sign:
    """Since which step something is seen without a break."""

    since: int | None = None

    def lasts(self, step: int, seen: bool, patience: int) -> bool:
        if not seen:
            self.since = None
        elif self.since is None:
            self.since = step
        return self.since is not None and step - self.since >= patience


class Health:
    def __init__(self, config: ReplacedConfig, optimizer: OptimConfig, schedule: Schedule, vocab: int) -> None:
        self.config, self.optimizer, self.schedule = config, optimizer, schedule
        self.frequencies = Frequencies(vocab)
        self.generator, self.discriminator = Sign(), Sign()
        self.means: dict[str, float] = {}  # running: a single window of small batches says little

    def check(
        self,
        step: int,
        progress: float,
        figures: Mapping[str, float],
        agree: Callable[[Sequence[float]], Sequence[float]] = lambda values: values,
    ) -> None:
        """Take in a window; raises when a sign has lasted too long. `agree`: ranks have seen different tokens."""
        if not self.config.patience:
            return
        for name in ("mlm", "rtd", "rtd_recall", "replaced"):
            self.means[name] = SMOOTH * self.means.get(name, figures[name]) + (1 - SMOOTH) * figures[name]
        loss, recall, patience = self.means["mlm"], self.means["rtd_recall"], self.config.patience
        warm = progress >= self.schedule.warmup and step >= self.schedule.warmup_steps
        known = self.config.mask * agree([self.frequencies.entropy()])[0]
        if self.generator.lasts(step, warm and loss > CLEARLY * known, patience):
            raise SesameError(
                f"step {step}: the generator's loss of {loss:.2f} is not clearly below the {known:.2f} of one "
                f"who knows only how frequent each token is, {self._since()}: {self._generator_cause()}"
            )
        blind = recall < NONE and self.means["rtd"] > CLEARLY * two_sided(self.means["replaced"])
        if self.discriminator.lasts(step, warm and blind, patience):
            raise SesameError(
                f"step {step}: the discriminator finds {recall:.1%} of the replaced tokens and knows no more than how many "
                f"there are, {self._since()}: {self._discriminator_cause()}"
            )

    def _since(self) -> str:
        return f"{self.config.patience:,} steps after the warm-up (objectives.rtd.patience=0 would go on regardless)"

    def _generator_cause(self) -> str:
        """The likeliest cause, by the settings, and what to change."""
        if not self.config.clip_apart:
            return (
                "clipped together, the discriminator's gradient drowns the generator's, the more so the higher the rate; "
                "clip them apart (--set objectives.rtd.clip_apart=true), and if the rate was raised lower it (--set "
                f"optimizer.rate={self.optimizer.rate / 2:g}), in a new --out"
            )
        return self._rate_cause()

    def _discriminator_cause(self) -> str:
        if self.means["replaced"] < RARE:
            return (
                f"only {self.means['replaced']:.1%} of the tokens are replaced, the generator is too good; make it smaller "
                f"(--set objectives.rtd.generator_width={self.config.generator_width / 2:g}) in a new --out"
            )
        if self.config.weight < 10 * self.config.mlm_weight:
            return "its loss weighs too little; raise it (--set objectives.rtd.weight=50) in a new --out"
        return self._rate_cause()

    def _rate_cause(self) -> str:
        longer = min(0.5, max(0.1, 2 * self.schedule.warmup))
        return (
            f"the rate {self.optimizer.rate:g} is likely too high for this depth; halve it (--set optimizer.rate="
            f"{self.optimizer.rate / 2:g}) or lengthen the warm-up (--set schedule.warmup={longer:g}) in a new --out"
        )


def two_sided(share: float) -> float:
    """The entropy of a yes or no, in nats."""
    return -sum(p * math.log(p) for p in (share, 1 - share) if p > 0)


def note(figures: Mapping[str, float]) -> str:
    """The same for the bar; empty where there is no generator."""
    if "rtd_recall" not in figures:
        return ""
    shown = {
        "generator right": figures["mlm_accuracy"],
        "replaced": figures["replaced"],
        "recall": figures["rtd_recall"],
        "precision": figures["rtd_precision"],
    }
    return " · ".join(f"{name} {100 * value:.0f} %" for name, value in shown.items())


class Look:
    """A model that notes the figures of its terms while it is called on held-out text."""

    def __init__(self, call: Callable[[Batch], list[Term]]) -> None:
        self.call = call
        self.weights: dict[str, float] = {}  # of the terms' losses
        self.shares: dict[str, Tensor] = {}
        self.ranked: dict[str, list[tuple[Tensor, Tensor]]] = {}

    def __call__(self, batch: Batch) -> list[Term]:
        terms = self.call(batch)
        for term in terms:
            self.weights[term.name] = term.weight
            for name, share in term.figures.items():
                self.shares[name] = self.shares.get(name, torch.zeros(2)) + share.float().cpu()
            if term.ranking is not None:
                scores, truths = term.ranking
                self.ranked.setdefault(term.name, []).append((scores.float().cpu(), truths.cpu()))
        return terms

    def figures(self) -> dict[str, float]:
        found = {name: float(part) / max(1.0, float(of)) for name, (part, of) in self.shares.items()}
        for name, pieces in self.ranked.items():
            scores, truths = (torch.cat(column) for column in zip(*pieces, strict=True))
            found[f"{name}_average_precision"] = average_precision(scores, truths)
        return found


def average_precision(scores: Tensor, truths: Tensor) -> float:
    """Σ_n (R_n - R_{n-1}) P_n over the thresholds from high to low, equal scores together; 0 where nothing is true."""
    if not len(scores):
        return 0.0
    order = scores.argsort(descending=True, stable=True)
    scores, hits = scores[order], truths[order].double().cumsum(0)
    ends = torch.cat([scores[1:] != scores[:-1], scores.new_ones(1, dtype=torch.bool)]).nonzero()[:, 0]
    precision, recalled = hits[ends] / (ends + 1), hits[ends]
    gained = torch.diff(recalled, prepend=recalled.new_zeros(1))
    return float((gained * precision).sum() / hits[-1].clamp(min=1))
