"""How a page words what it is given: numbers, names of metrics and splits, and words of the data, which may be anything."""

import math
import re
import unicodedata
from html import escape
from typing import Any

_METRICS = {
    "f1": "F1",
    "macro_f1": "macro F1",
    "micro_f1": "micro F1",
    "weighted_f1": "weighted F1",
    "matthews": "Matthews",
    "ece": "ECE",
}
_SPLITS = {"valid": "validation", "train": "training"}


def number(value: Any) -> float | None:
    """`value` as a finite number, or None: results come from JSON, where NaN and null both mean "not known"."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if math.isfinite(found) else None


def shown(value: Any) -> str:
    """A score as people read it: 0.912, 88.4, or a dash."""
    found = number(value)
    if found is None:
        return "–"
    return f"{found:.3f}" if abs(found) < 10 else f"{found:,.1f}"


def clean(text: Any) -> str:
    """`text` for HTML and SVG: escaped, and without the characters that no document may hold."""
    kept = re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]", "\ufffd", str(text))
    return escape(kept)


def columns(text: str) -> int:
    """The width of a text in Latin letters: Chinese counts double, combining marks not at all."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def shortened(text: str, limit: int) -> str:
    if columns(text) <= limit:
        return text
    while text and columns(text) > limit - 1:
        text = text[:-1]
    return text.rstrip() + "…"


def metric_name(metric: str) -> str:
    return _METRICS.get(metric, metric.replace("_", " "))


def split_name(split: str) -> str:
    return _SPLITS.get(split, split)
