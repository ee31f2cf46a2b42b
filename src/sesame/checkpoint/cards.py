"""The model card: what a stranger must know of a model, written by the run itself."""

from collections.abc import Collection, Mapping
from typing import Any

from sesame import __version__
from sesame.progress import many_steps
from sesame.train.state import State


def card(name: str, paper: str, identity: Mapping[str, Any], state: State) -> str:
    """README.md of a model folder: text, recipe, seeds, scores."""
    run = identity["run"]
    texts = "\n".join(f"- `{file.rsplit('/', 1)[-1]}`" for file in run["text"])
    scores = "\n".join(f"| {key} | {value:.4f} |" for key, value in state.held_out.items()) or "| not measured yet | |"
    return f"""---
library_name: transformers
tags: [sesame, {name}]
---
# {name}, pre-trained with Sesame {__version__}

Method: {paper or name}

Text:
{texts}

{many_steps(state.step)}, {state.tokens:,} tokens, seed {run["seed"]}. All settings are in `sesame.toml`.

| held-out text | |
|---|---|
{scores}

Open it with `sesame.load(folder)`.
"""


def task_card(identity: Mapping[str, Any], results: Mapping[str, Any]) -> str:
    """README.md of a fine-tuned model."""
    run, metric = identity["run"], results["metric"]
    rows = [
        f"| {part} | {metric} | {values[metric]['mean']:.4f} | {_spread(values[metric])} |"
        for part, values in results["scores"].items()
    ]
    for name, scores in results["baselines"].items():
        rows += [
            f"| {part}, {name} | {metric} | {values[metric]:.4f} | |"
            for part, values in scores.items()
            if metric in values
        ]
    table = "\n".join(rows)
    return f"""---
library_name: transformers
tags: [sesame, {results["task"]}]
---
# {results["title"]}, fine-tuned with Sesame {__version__}

Started from `{results["model"]}`, strategy {results["strategy"]}, trained on `{results["data"]["train"]}`
({results["data"]["rows"]["train"]:,} examples), {_seeds(results)} from {run["seed"]}; this one is best on
validation data. All settings are in `sesame.toml`.

| data | score | mean over seeds | spread |
|---|---|---|---|
{table}

Open it with `sesame.load(folder).predict(texts)`.
"""


def _seeds(results: Mapping[str, Any]) -> str:
    count = len(results["seeds"])
    return "one seed" if count == 1 else f"{count} seeds"


def answer_card(results: Mapping[str, Any]) -> str:
    """README.md of an encoder-decoder that was taught pairs."""
    data, search = results["data"], results["search"]
    rows = [
        f"| {part} | {name} | {100 * value['mean']:.2f} | {_percent(value)} |"
        for part, values in results["scores"].items()
        for name, value in values.items()
    ]
    table = "\n".join(rows)
    signatures = "\n".join(f"- {name}: `{signature}`" for name, signature in results["signatures"].items())
    before = f"Sources begin with `{results['prefix']}`. " if results["prefix"] else ""
    return f"""---
library_name: transformers
tags: [sesame, seq2seq]
---
# {results["title"]}, fine-tuned with Sesame {__version__}

Started from `{results["model"]}`, trained on `{data["train"]}` ({data["rows"]["train"]:,} pairs),
{_seeds(results)}; this one, seed {results["best"]}, is best on validation data by {results["metric"]}.
{before}All settings are in `sesame.toml`.

| data | score | mean over seeds | spread |
|---|---|---|---|
{table}

Answers by {search["beams"]} beams, length penalty {search["alpha"]}. Signatures of sacrebleu:
{signatures}

Open it with `sesame translate folder`.
"""


def in_transformers(described: Mapping[str, Any], tasks: Collection[str], lead: str | None) -> str:
    """The end of a card: what transformers opens of a folder, whose config.json is `described`; it holds the task `lead`."""
    if described["model_type"] == "sesame":
        return "\nNo class of transformers computes it.\n"
    opened = f"`transformers.{described['architectures'][0]}.from_pretrained(folder)`"
    if tasks and lead is None:
        return f"\nNo class of transformers computes what it was taught; {opened} opens the model below it.\n"
    others = [name for name in tasks if name != lead]
    only = f" and answers {lead}; for {', '.join(others)} take Sesame" if others else ""
    return f"\n{opened} opens it too{only}.\n"


def _percent(found: Mapping[str, Any]) -> str:
    return "" if found["std"] is None else f"± {100 * found['std']:.2f}"


def _spread(found: Mapping[str, Any]) -> str:
    return "" if found["std"] is None else f"± {found['std']:.4f}"
