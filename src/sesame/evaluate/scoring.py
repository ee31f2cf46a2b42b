"""Answers of a task against its labels: the scores, what counts most, and the comparison of two models.

| task | scores | the one that decides |
|---|---|---|
| classify | accuracy, macro and weighted F1, Matthews, F1 of the positive of two classes | accuracy |
| classify, several labels | micro and macro F1, exact match | micro F1 |
| regress | Pearson, Spearman, squared and absolute error | Pearson |
| tag | precision, recall, F1 of whole entities | F1 |
| qa | exact match, F1 by the SQuAD rules | F1 |
| choice | accuracy | accuracy |
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sesame.data.examples import Example
from sesame.evaluate.answers import answer_scores, squad_scores
from sesame.evaluate.classification import (
    classification_scores,
    multilabel_counts,
    multilabel_scores,
    resampled,
)
from sesame.evaluate.entities import entity_counts, entity_scores
from sesame.evaluate.regression import SCORES, regression_scores
from sesame.evaluate.statistics import Metric, each, micro_f1, paired_bootstrap_metric
from sesame.tasks.base import Reply, TaskConfig
from sesame.tasks.classify import as_trained

LOWER_IS_BETTER = ("mse", "mae")
RANGES = dict.fromkeys(("matthews", "pearson", "spearman"), (-1.0, 1.0)) | dict.fromkeys(
    LOWER_IS_BETTER, (0.0, math.inf)
)


def range_of(metric: str) -> tuple[float, float]:
    """The least and the most that a score can be."""
    return RANGES.get(metric, (0.0, 1.0))


def figure(metric: str, value: float) -> str:
    """A score as a line of text has it: four decimals, but an error, which is as large as the numbers are, four digits.
    Beside the scores of questions stands how many there are."""
    if metric.endswith("total"):
        return f"{value:,.0f}"
    four = metric not in LOWER_IS_BETTER or value == 0 or 0.1 <= abs(value) < 1e6
    return f"{value:.4f}" if four else f"{value:.4g}"


def main_score(config: TaskConfig) -> str:
    if config.kind == "classify":
        return "micro_f1" if config.multi else "accuracy"
    return {"regress": "pearson", "tag": "f1", "qa": "f1", "choice": "accuracy"}[config.kind]


def gold_of(config: TaskConfig, examples: Sequence[Example]) -> list[Any]:
    if config.kind == "qa":
        return [[answer.text for answer in example.label] for example in examples]
    if config.kind == "classify":
        return [as_trained(example, config.multi) for example in examples]
    return [example.label for example in examples]


def said_of(config: TaskConfig, replies: Sequence[Reply]) -> list[Any]:
    """The bare answers: a name, names, a number, tags, a text, the number of an option."""
    if config.kind == "classify":
        return [tuple(reply["labels"]) if config.multi else reply["label"] for reply in replies]
    key = {"regress": "value", "tag": "tags", "qa": "answer", "choice": "choice"}[config.kind]
    return [reply[key] for reply in replies]


def score(config: TaskConfig, gold: Sequence[Any], said: Sequence[Any]) -> dict[str, float]:
    """All scores of a task; `gold` and `said` as the two functions above give them."""
    if config.kind == "classify":
        if config.multi:
            return _numbers(multilabel_scores(gold, said, config.labels))
        return classification_scores(gold, said, config.labels)
    if config.kind == "regress":
        return regression_scores(gold, said)
    if config.kind == "tag":
        return _numbers(entity_scores(gold, said))
    if config.kind == "qa":
        return squad_scores(*_by_number(gold, said))
    return {"accuracy": float(np.mean([a == b for a, b in zip(gold, said, strict=True)]))}


def compare(
    config: TaskConfig, metric: str, gold: Sequence[Any], a: Sequence[Any], b: Sequence[Any]
) -> dict[str, float]:
    """Paired bootstrap over examples: by how much a is better than b, its 95 % interval, and p."""
    rounds = 10_000 if len(gold) <= 5_000 else 2_000
    one, other = (_metric(config, metric, gold, said) for said in (a, b))
    return paired_bootstrap_metric(one, other, len(gold), rounds, differing=_differing(metric, gold, a, b))


def _differing(metric: str, gold: Sequence[Any], a: Sequence[Any], b: Sequence[Any]) -> int:
    """Of how many examples the answers differ; two wrong ones are alike to a score that counts what is right."""
    if metric == "accuracy":
        a, b = ([g == x for g, x in zip(gold, said, strict=True)] for said in (a, b))
    return sum(x != y for x, y in zip(a, b, strict=True))


def interval(config: TaskConfig, metric: str, gold: Sequence[Any], said: Sequence[Any]) -> tuple[float, float]:
    """The middle 95 % of the score when examples are drawn again."""
    rounds = 1_000 if len(gold) <= 5_000 else 300
    drawn = np.random.default_rng(0).integers(len(gold), size=(rounds, len(gold)))
    low, high = np.quantile(_metric(config, metric, gold, said)(drawn), [0.025, 0.975])
    return float(low), float(high)


def collapsed(config: TaskConfig, gold: Sequence[Any], said: Sequence[Any]) -> bool:
    """Whether a model gives everything the same answer where the labels differ: a run that failed to train."""
    if config.kind == "regress":
        spread = float(np.std(gold))
        return spread > 0 and float(np.std(said)) < 1e-3 * spread
    if config.kind == "tag":
        return any(tag != "O" for tags in gold for tag in tags) and len({tag for tags in said for tag in tags}) == 1
    if config.kind == "qa":
        return any(answers for answers in gold) and len(gold) > 1 and not any(said)
    if config.kind == "choice":
        return len(gold) >= 20 and len(set(gold)) > 1 and len(set(said)) == 1
    different = {tuple(sorted(g)) if config.multi else g for g in gold}
    return len(different) > 1 and len({tuple(sorted(s)) if config.multi else s for s in said}) == 1


def _metric(config: TaskConfig, metric: str, gold: Sequence[Any], said: Sequence[Any]) -> Metric:
    if config.kind == "classify" and not config.multi:
        return resampled(gold, said, config.labels, metric)
    if config.kind == "tag" and metric == "f1":
        return micro_f1(entity_counts(gold, said))
    if config.kind == "classify" and metric == "micro_f1":
        return micro_f1(multilabel_counts(gold, said))
    if config.kind == "qa":
        both = answer_scores(*_by_number(gold, said))
        column = 0 if metric == "exact" else 1
        return _mean_of(np.array([pair[column] for pair in both.values()]))
    if config.kind == "regress":
        x, y, one = np.asarray(gold), np.asarray(said), SCORES[metric]  # of ten thousand draws this score alone
        return each(lambda taken: one(x[taken], y[taken]))
    if config.kind == "choice":
        return _mean_of(np.array([float(g == s) for g, s in zip(gold, said, strict=True)]))
    return each(_of_rows(config, metric, gold, said))


def _mean_of(values: NDArray[np.float64]) -> Metric:
    return lambda taken: values[taken].mean(1)


def _of_rows(config: TaskConfig, metric: str, gold: Sequence[Any], said: Sequence[Any]) -> Callable[[Any], float]:
    return lambda rows: score(config, [gold[i] for i in rows], [said[i] for i in rows])[metric]


def _by_number(gold: Sequence[Any], said: Sequence[Any]) -> tuple[dict[str, list[str]], dict[str, str]]:
    """SQuAD's rules go by question; ids may be missing or double in a user's file, places in it are not."""
    names = [str(number) for number in range(len(gold))]
    return dict(zip(names, gold, strict=True)), dict(zip(names, said, strict=True))


def _numbers(scores: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in scores.items() if isinstance(value, int | float)}
