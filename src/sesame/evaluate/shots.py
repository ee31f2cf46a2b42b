"""How well a model answers that was never taught: zero-shot and few-shot scores over seeds.

Shots (Brown et al. 2020, https://arxiv.org/abs/2005.14165) are k rows in all, of all labels as evenly as k allows. The seed
draws them and their order: few-shot scores move by tens of points with both (Zhao et al. 2021), so one seed says little, and
the spread stands beside the mean. Shots of a smaller k are among those of a larger one.

Without rows of their own (`train`) shots come from the data, and what any seed draws is scored by none.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sesame import chance
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.speech import speaker, voice_of
from sesame.data.examples import Example
from sesame.data.labelled import read_labelled
from sesame.errors import SesameError
from sesame.evaluate.scoring import gold_of, main_score, score
from sesame.evaluate.statistics import summary
from sesame.progress import bar, say
from sesame.tasks.base import TaskConfig
from sesame.tasks.prompt import By, Prompter, Template, answered, words_of
from sesame.train.precision import choose_machine

KINDS = ("classify", "choice", "qa")
TEMPLATES = {
    "classify": "{text}\nAnswer: {label}",
    "classify pairs": "{text}\n{pair}\nAnswer: {label}",
    "choice": "{text} {label}",
    "qa": "{text}\nQuestion: {pair}\nAnswer: {label}",
}


def few_shot(
    model: str,
    data: str,
    *,
    shots: Sequence[int] = (0,),
    kind: str = "classify",
    template: str | None = None,
    words: Mapping[str, str] | None = None,
    by: By = "sum",
    seeds: int = 5,
    train: str | None = None,
    columns: Mapping[str, str] | None = None,
    most: int = 16,
    device: str = "auto",
) -> dict[str, Any]:
    """Scores of a model for each number of shots; `most`: tokens of an answer that is told (qa)."""
    if kind not in KINDS:
        raise SesameError(
            f"--task {kind}: prompts are for {', '.join(KINDS)}; for others teach it with `sesame finetune`"
        )
    if not shots or min(shots) < 0 or seeds < 1:
        raise SesameError("--shots: give numbers from 0 on, such as 0,1,5, and at least one seed")
    asked = _rows(data, kind, columns)
    pool = asked if train is None else _rows(train, kind, columns)
    config = TaskConfig(kind, labels=_labels(kind, [*asked, *pool]))  # type: ignore[arg-type]
    if kind != "classify" and words:
        raise SesameError(f"--words: {kind} has no labels to put into words; leave it out")
    pattern = Template(template or TEMPLATES[kind + (" pairs" if kind == "classify" and asked[0].pair else "")])
    drawn = {(k, seed): draw(pool, k, seed, kind) for k in set(shots) for seed in range(seeds if k else 1)}
    if train is None:
        used = {row for rows in drawn.values() for row in rows}
        asked = [example for row, example in enumerate(asked) if row not in used]
        if not asked:
            raise SesameError(f"{data}: all rows are shots, and none is left to score; give more rows, or --train FILE")
        if used:
            say(f"{len(used):,} rows of {data} are shots and are not scored; --train FILE draws them elsewhere")
    prompter, named = _prompter(model, pattern, by, device), words_of(config.labels, words or {})
    found = []
    with bar("prompts", len(asked) * sum(seeds if k else 1 for k in shots), "rows") as shown:
        for k in shots:
            scores = []
            for seed in range(seeds if k else 1):
                lines = [answered(pattern, pool[row], _word(kind, pool[row], named)) for row in drawn[k, seed]]
                said = _answers(prompter, asked, lines, config, named, most, shown)
                scores.append(score(config, gold_of(config, asked), said))
            found.append({"shots": k} | _over_seeds(scores, main_score(config)))
    return {
        "task": kind, "metric": main_score(config), "template": pattern.pattern, "by": by if kind != "qa" else "greedy",
        "words": named, "rows": len(asked), "majority": _majority(config, asked), "results": found,
    }  # fmt: skip


def draw(pool: Sequence[Example], k: int, seed: int, kind: str = "classify") -> list[int]:
    """k rows, their labels as even as can be, in an order that the seed decides."""
    if k > len(pool):
        raise SesameError(f"--shots {k}: there are only {len(pool)} rows to draw from; ask for fewer")
    luck = chance.uniform(chance.keys(chance.key(seed), np.arange(len(pool))), "shots", 2)
    groups: dict[Any, list[int]] = defaultdict(list)
    for row in np.argsort(luck[:, 0], kind="stable").tolist():
        groups[pool[row].label if kind == "classify" else None].append(row)
    chosen: list[int] = []
    while len(chosen) < k:  # in turn; the label that was drawn first begins
        for rows in groups.values():
            if rows and len(chosen) < k:
                chosen.append(rows.pop(0))
    return sorted(chosen, key=lambda row: (luck[row, 1], row))


def _rows(file: str, kind: str, columns: Mapping[str, str] | None) -> list[Example]:
    read = read_labelled(file, kind, columns)
    for sentence in (read.said, *read.warnings):
        say(sentence)
    for example in read.examples:
        if isinstance(example.label, tuple) and kind == "classify":
            raise SesameError(f"{example.place}: has several labels, and a prompt has one answer; keep one of them")
    return read.examples


def _labels(kind: str, examples: Sequence[Example]) -> tuple[str, ...]:
    if kind != "classify":
        return ()
    found = sorted({example.label for example in examples})
    if len(found) < 2:
        raise SesameError(f"{examples[0].place}: all rows have one label; give rows with at least two")
    return tuple(found)


def _prompter(model: str, template: Template, by: By, device: str) -> Prompter:
    parts, machine = load_parts(model), choose_machine(device)
    speaking, voice = speaker(parts), voice_of(parts)
    assert parts.tokenizer is not None, "voice_of has complained"
    parts.to(machine.device)
    for module in (parts.backbone, *parts.heads.values()):
        module.eval()
    longest = None if parts.backbone.reads_on else parts.backbone.longest
    return Prompter(speaking, parts.tokenizer, voice, longest, machine.device, template, by)


def _word(kind: str, example: Example, words: Mapping[str, str]) -> str:
    """What stands in the place of a shot's label."""
    if kind == "classify":
        return words[str(example.label)]
    if kind == "choice":
        return example.options[int(example.label)]
    return str(example.label[0].text) if example.label else "no answer"


def _answers(
    prompter: Prompter,
    asked: Sequence[Example],
    lines: Sequence[str],
    config: TaskConfig,
    words: Mapping[str, str],
    most: int,
    shown: Any,
) -> list[Any]:
    if config.kind == "qa":
        said = prompter.tell(asked, lines, most, shown)
        return ["" if text.lower().startswith("no answer") else text for text in said]
    options = [list(words.values()) if config.kind == "classify" else list(one.options) for one in asked]
    best = [int(np.argmax(row)) for row in prompter.choose(asked, options, lines, shown)]
    return [config.labels[at] for at in best] if config.kind == "classify" else best


def _over_seeds(scores: list[dict[str, float]], metric: str) -> dict[str, Any]:
    values = [one[metric] for one in scores]
    all_of = {name: [one[name] for one in scores] for name in scores[0]}
    found = summary(values)
    return {"seeds": len(values), "mean": found.mean, "std": found.std, "least": min(values), "most": max(values)} | {
        "scores": all_of
    }


def _majority(config: TaskConfig, asked: Sequence[Example]) -> float | None:
    """What always saying the commonest label gives."""
    if config.kind == "qa":
        return None
    labels = [example.label for example in asked]
    return max(map(labels.count, set(labels))) / len(labels)
