"""The model card: what a stranger must know of a model, written by the run itself."""

from collections.abc import Mapping
from typing import Any

from sesame import __version__
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

{state.step:,} steps, {state.tokens:,} tokens, seed {run["seed"]}. All settings are in `sesame.toml`.

| held-out text | |
|---|---|
{scores}

Open it with `sesame.load(folder)` or with `transformers.AutoModel.from_pretrained(folder)`.
"""
