"""What lies near a word in context, and what each layer knows: the library's own calls, as JSON."""

from collections.abc import Sequence
from typing import Any

from sesame.checkpoint.reading import reading
from sesame.data.examples import Example
from sesame.explain.layers import learnt_mixes, probe
from sesame.explain.near_words import LAYERS, near_words, occurrence
from sesame.loaded import Loaded


def neighbours(
    loaded: Loaded, inputs: Sequence[tuple[str, str, int, tuple[str, ...]]], layer: int | None, top: int
) -> list[dict[str, Any]]:
    """Each input: a text, a word of it, which of its occurrences (from 1), and the lines to look among."""
    backbone, name = reading(loaded.parts).backbone, LAYERS if layer is None else str(layer)
    found = []
    for text, word, at, lines in inputs:
        asked = occurrence(text, word, at)
        near = near_words(backbone, loaded.tokenizer, asked, lines, name, top, loaded.reader())
        each = [
            {
                "word": one.occurrence.word,
                "text": one.occurrence.text,
                "start": one.occurrence.start,
                "end": one.occurrence.end,
                "score": one.cosine,
                "line": one.line,
            }
            for one in near
        ]
        found.append({"word": asked.word, "start": asked.start, "end": asked.end, "neighbours": each})
    return found


def layers(loaded: Loaded, inputs: Sequence[tuple[tuple[str, ...], tuple[str, ...]]]) -> list[dict[str, Any]]:
    """Each input: texts and their labels. `layers` ends with the mix of all; `mixes` are what tasks learnt to read."""
    backbone = reading(loaded.parts).backbone
    found = []
    for texts, labels in inputs:
        rows = [Example("", text, label=label) for text, label in zip(texts, labels, strict=True)]
        seen = probe(backbone, loaded.tokenizer, rows, "classify")
        each = [{"layer": name, "score": mean, "spread": spread} for name, mean, spread in seen.each()]
        told = {"metric": seen.metric, "least": seen.least, "rows": seen.rows, "folds": seen.folds}
        found.append({"layers": each, **told, "mixes": learnt_mixes(loaded.parts.tasks)})
    return found
