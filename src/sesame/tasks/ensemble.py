"""Several taught models that answer as one, by the mean of their probabilities: p(label) = 1/M Σ_m p_m(label).

Paper: Howard & Ruder 2018, "Universal Language Model Fine-tuning for Text Classification"
(https://arxiv.org/abs/1801.06146), section 3.3: a classifier that reads forward and one that reads from the end.
Idea: whatever reads a text, and by whichever tokenizer, an answer is a probability for each label; so only labels must agree.
"""

from collections.abc import Sequence

from sesame.errors import SesameError
from sesame.tasks.base import Reply, TaskConfig


def check_alike(configs: Sequence[TaskConfig]) -> None:
    """Complain about models whose answers have no mean, before any of them is asked."""
    first, *others = configs
    if any(config.kind != "classify" for config in configs):
        kind = next(config.kind for config in configs if config.kind != "classify")
        raise SesameError(
            f"--with is for labels of texts (classify), and one of the models was taught {kind}; leave it out"
        )
    for config in others:
        if set(config.labels) != set(first.labels):
            odd = sorted(set(config.labels) ^ set(first.labels))[0]
            raise SesameError(f"--with: only one of the models knows the label {odd!r}; take models of the same labels")
        if config.multi != first.multi:
            raise SesameError("--with: one model gives one label, another several at once; take models of one way")


def mean_replies(config: TaskConfig, each: Sequence[Sequence[Reply]]) -> list[Reply]:
    """One answer for each text from those of every model, `each[model][text]`."""
    return [_mean(config, replies) for replies in zip(*each, strict=True)]


def _mean(config: TaskConfig, replies: Sequence[Reply]) -> Reply:
    chances = {name: sum(reply["probabilities"][name] for reply in replies) / len(replies) for name in config.labels}
    if config.multi:
        return {"labels": [name for name, chance in chances.items() if chance > 0.5], "probabilities": chances}
    best = max(chances, key=lambda name: chances[name])
    return {"label": best, "probability": chances[best], "probabilities": chances}
