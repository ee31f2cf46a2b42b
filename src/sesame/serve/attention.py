"""Attention as JSON: the maps of all heads, and one head step by step.

Unusual: a map has millions of numbers. They are rounded to four digits and written as JSON here, by looking each up in a
table of the ten thousand possible ones, many times faster than `json`.
"""

import json
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from sesame.errors import SesameError
from sesame.explain.attention import look
from sesame.explain.one_head import steps_of
from sesame.loaded import Loaded

DIGITS = 4
WRITTEN = [f"{number / 10**DIGITS:.4f}".rstrip("0").rstrip(".") for number in range(10**DIGITS + 1)]


class Written(str):
    """JSON that is written already."""


def maps(loaded: Loaded, text: str, pair: str | None, most: int) -> Written:
    """All layers and heads. Shape of weights: (layers, heads, n, n)."""
    found = look(loaded.parts, text, pair)[0]
    numbers = sum(layer.size for layer in found.layers)
    if numbers > most:
        raise SesameError(
            f"the maps of {len(found.rows)} tokens hold {numbers:,} weights, more than {most:,}; "
            "shorten the text, or name layer and head"
        )
    layers = [_written((layer * 10**DIGITS).round().astype(np.int32)) for layer in found.layers]
    facts = {"tokens": found.rows, "layers": len(layers), "heads": len(found.layers[0])}
    return Written(json.dumps(facts, ensure_ascii=False)[:-1] + f', "weights": [{",".join(layers)}]}}')


def _written(x: npt.NDArray[np.int32]) -> str:
    if x.ndim == 1:
        return "[" + ",".join([WRITTEN[number] for number in x.tolist()]) + "]"
    return "[" + ",".join([_written(part) for part in x]) + "]"


def head_steps(loaded: Loaded, text: str, pair: str | None, layer: int, head: int) -> dict[str, Any]:
    """All that one head computes. Scores that may not be looked at are null."""
    found = steps_of(loaded.parts, text, pair, layer, head)
    rounded = {
        name: [_row(row) for row in getattr(found, name).tolist()]
        for name in ("q", "k", "v", "scores", "weights", "output")
    }
    return {"tokens": found.tokens, **rounded, "scale": round(found.scale, DIGITS)}


def _row(row: list[float]) -> list[float | None]:
    return [round(number, DIGITS) if number > -math.inf else None for number in row]
