"""Everything that was seen in a fine-tuning, as one table that JSON can hold: what report.html draws."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from torch import Tensor

from sesame.data.examples import Example
from sesame.evaluate.answers import best_null_threshold
from sesame.evaluate.calibration import ece, fit_temperature, reliability, softmax
from sesame.evaluate.classification import confusion, multilabel_per_class, per_class
from sesame.evaluate.entities import entity_table
from sesame.evaluate.scoring import LOWER_IS_BETTER, compare, figure, gold_of, range_of, said_of, score
from sesame.evaluate.statistics import summary
from sesame.tasks.answer import answer
from sesame.tasks.base import Item, Reply, Task, TaskConfig

SHOWN_MISTAKES = 20
MANY = 100  # with more classes the confusions are told of those that occur: thousands squared fill a disk with zeros
Results = dict[str, Any]


def collect(
    config: TaskConfig,
    metric: str,
    examples: Mapping[str, Sequence[Example]],
    items: Mapping[str, Sequence[Item]],
    task: Task,
    logits: Mapping[str, Sequence[Tensor]],
    seeds: Sequence[Mapping[str, Any]],
    best: int,
    plain: Mapping[str, Any],
    adapted: bool = False,
    adaptable: bool = True,
) -> Results:
    """`logits` are the best seed's; `plain` the baselines' scores and answers; `adapted`: to texts without labels, before, if
    the model is of a kind that is `adaptable` so."""
    split = "test" if "test" in logits else "valid"
    tuned = tune(config, examples["valid"], items["valid"], task, logits["valid"])
    task.config = replace(task.config, **tuned)
    replies = answer(task, examples[split], items[split], logits[split])
    gold, said = gold_of(config, examples[split]), said_of(config, replies)
    scores = {part: _over_seeds([seed["scores"][part] for seed in seeds]) for part in logits}
    results: Results = {
        "task": config.kind,
        "metric": metric,
        "data": {
            "rows": {part: len(rows) for part, rows in examples.items()},
            "adapted": adapted,
            "adaptable": adaptable,
        },
        "scores": scores,
        "baselines": {name: entry["scores"] for name, entry in plain.items()},
        "seeds": list(seeds),
        "best": best,
        "tuned": tuned,
        "mistakes": mistakes(config, examples[split], replies),
        "predictions": [_line(example, reply) for example, reply in zip(examples[split], replies, strict=True)],
    }
    results |= tables(config, gold, said)
    if config.kind == "classify" and not config.multi:
        results["calibration"] = _calibration(config, examples[split], logits[split], tuned["temperature"])
    rival = strongest(plain, split, metric)
    if rival is not None:
        found = compare(config, metric, gold, said, _lists(plain[rival]["said"][split]))
        results["versus"] = {"baseline": rival, "split": split, **found}
    results["summary"] = _summary(results, split, metric)
    results["next"] = results["summary"][-1]
    return results


def tune(
    config: TaskConfig, examples: Sequence[Example], items: Sequence[Item], task: Task, logits: Sequence[Tensor]
) -> dict[str, Any]:
    """What is set after training, on validation data alone: the temperature, and when to say "no answer"."""
    if config.kind == "classify" and not config.multi:
        rows, labels = _labelled(config, examples, logits)
        return {"temperature": fit_temperature(rows, labels) if len(rows) else 1.0}
    if config.kind == "qa" and config.null:
        # With a threshold out of reach every question is answered; the scores of silence come beside.
        task.config = replace(config, threshold=float("inf"))
        replies = answer(task, examples, items, logits)
        names = [str(number) for number in range(len(examples))]
        gold = dict(zip(names, gold_of(config, examples), strict=True))
        said = dict(zip(names, said_of(config, replies), strict=True))
        above = {name: float(reply["null_score"]) for name, reply in zip(names, replies, strict=True)}
        return {"threshold": best_null_threshold(gold, said, above)[0]}
    return {}


def mistakes(config: TaskConfig, examples: Sequence[Example], replies: Sequence[Reply]) -> list[dict[str, Any]]:
    """The answers that are wrong and most sure of themselves; of numbers those that are farthest off."""
    rows = []
    for example, reply, gold, said in zip(
        examples, replies, gold_of(config, examples), said_of(config, replies), strict=True
    ):
        worth = _wrong(config, reply, gold, said)
        if worth is None:
            continue
        rows.append((worth, {
            "text": example.text, "pair": example.pair, "gold": _words(config, example, gold),
            "said": _words(config, example, said), "probability": reply.get("probability"), "place": example.place,
        }))  # fmt: skip
    rows.sort(key=lambda row: -row[0])
    return [row for _, row in rows[:SHOWN_MISTAKES]]


def _wrong(config: TaskConfig, reply: Reply, gold: Any, said: Any) -> float | None:
    """How bad a mistake is; None: it is none."""
    if config.kind == "regress":
        return abs(float(gold) - float(said))
    if config.kind == "tag":
        missed = sum(a != b for a, b in zip(gold, said, strict=True))
        return float(missed) or None
    if config.kind == "qa":
        return None if score(config, [gold], [said])["f1"] > 0 else float(reply["probability"])
    if config.kind == "choice":
        return None if gold == said else float(max(reply["probabilities"]))
    if config.multi:
        return float(len(set(gold) ^ set(said))) or None
    return None if gold == said else float(reply["probability"])


def _words(config: TaskConfig, example: Example, value: Any) -> str:
    if config.kind == "tag":
        named = zip(example.words, value, strict=True)
        return " ".join(f"{example.text[a:b]}/{tag}" for (a, b), tag in named if tag != "O") or "O"
    if config.kind == "choice":
        return str(example.options[value])
    if config.kind == "regress":
        return f"{value:.3g}"
    if config.kind == "qa":
        return (str(value) if isinstance(value, str) else " | ".join(dict.fromkeys(value))) or "(no answer)"
    return str(value) if isinstance(value, str) else ", ".join(value) or "(none)"


def tables(config: TaskConfig, gold: Sequence[Any], said: Sequence[Any]) -> Results:
    if config.kind == "classify" and config.multi:
        return {"per_class": multilabel_per_class(gold, said, config.labels)}
    if config.kind == "classify":
        labels = list(dict.fromkeys([*config.labels, *gold]))
        seen = {*gold, *said}
        some = labels if len(labels) <= MANY else [label for label in labels if label in seen]
        return {
            "per_class": per_class(gold, said, labels),
            "confusion": {"labels": some, "counts": confusion(gold, said, some)},
        }
    return {"per_class": entity_table(gold, said)} if config.kind == "tag" else {}


def _calibration(
    config: TaskConfig, examples: Sequence[Example], logits: Sequence[Tensor], temperature: float
) -> Results:
    rows, labels = _labelled(config, examples, logits)
    if not len(rows):
        return {}
    before, after = softmax(rows), softmax(rows, temperature)
    return {
        "ece": ece(before, labels),
        "ece_scaled": ece(after, labels),
        "temperature": temperature,
        "bins": reliability(after, labels),
    }


def _labelled(config: TaskConfig, examples: Sequence[Example], logits: Sequence[Tensor]) -> tuple[Any, Any]:
    """Logits and classes of the examples whose label was trained on."""
    index = {label: number for number, label in enumerate(config.labels)}
    pairs = [(row.numpy(), index[e.label]) for row, e in zip(logits, examples, strict=True) if e.label in index]
    return np.array([row for row, _ in pairs], dtype=np.float64), np.array([n for _, n in pairs], dtype=np.int64)


def _over_seeds(scores: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    return {
        name: {
            **asdict(summary([seed[name] for seed in scores], *range_of(name))),
            "values": [seed[name] for seed in scores],
        }
        for name in scores[0]
        if all(name in seed for seed in scores)
    }


def strongest(plain: Mapping[str, Any], split: str, metric: str) -> str | None:
    """The baseline with the best score."""
    usable = {name: entry["scores"][split][metric] for name, entry in plain.items() if metric in entry["scores"][split]}
    best = min if metric in LOWER_IS_BETTER else max
    return best(usable, key=lambda name: usable[name]) if usable else None


def _lists(said: Sequence[Any]) -> list[Any]:
    """Answers that went through JSON: tuples came back as lists."""
    return [tuple(answer) if isinstance(answer, list) else answer for answer in said]


def _line(example: Example, reply: Reply) -> dict[str, Any]:
    return {"place": example.place, **({"id": example.id} if example.id else {}), **reply}


def _summary(results: Results, split: str, metric: str) -> list[str]:
    """For the terminal: the score, what it stands beside, what to try next."""
    found = results["scores"][split][metric]
    lines = [f"{split} {metric} {_interval(metric, found)} over {found['n']} seed{'s' if found['n'] > 1 else ''}"]
    for name, scores in results["baselines"].items():
        if metric in scores[split]:
            lines.append(f"{split} {metric} {figure(metric, scores[split][metric])} baseline {name}")
    return [*lines, advice(results, split, metric)]


def _interval(metric: str, found: Mapping[str, Any]) -> str:
    if found["std"] is None:
        return figure(metric, found["mean"])
    mean, std, low, high = (figure(metric, found[name]) for name in ("mean", "std", "low", "high"))
    return f"{mean} ± {std} (95 %: {low} to {high})"


def advice(results: Results, split: str, metric: str) -> str:
    """One sentence on what to try next, from what was seen."""
    if "seeds" in results and results["seeds"][results["best"]].get("collapsed"):
        return "next: the model gives every text the same answer; train longer (--epochs), or with another --rate"
    versus, rows = results.get("versus"), results["data"]["rows"]["train"]
    found = results["scores"][split][metric]
    sign = -1 if metric in LOWER_IS_BETTER else 1
    least, most = sorted((sign * versus["low"], sign * versus["high"])) if versus else (1.0, 1.0)
    if versus and least <= 0:
        claim = "worse than" if most < 0 else "not clearly better than"
        data, remedy = results["data"], "label more"
        if data.get("adaptable", True):
            text = "more text" if data.get("adapted") else "your own text first (--text YOUR.txt)"
            remedy = f"adapt the model to {text}, or {remedy}"
        return (
            f"next: {claim} {versus['baseline']} (difference {versus['difference']:+.4f}, 95 %: "
            f"{versus['low']:+.4f} to {versus['high']:+.4f}); {remedy}"
        )
    if found["std"] is not None and found["std"] > 0.02:
        return f"next: seeds differ by ± {found['std']:.3f}; more labels or --strategy gradual make the result steadier"
    if rows < 1000:
        return f"next: {rows:,} labels are few; label more of what report.html lists as mistakes, it helps most"
    return "next: look at the mistakes in report.html; wrong labels are often among them"
