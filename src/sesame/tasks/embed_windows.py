"""Texts of any length for vectors: one that is too long for a model is read in windows, as few as hold it and of equal size.

Unlike those of `windows.py` they do not overlap: a vector is a mean over all tokens, and each is to count once.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sesame.tasks.inputs import ids_and_segments
from sesame.text import Encoding, Tokenizer
from sesame.text.template import around


def windows_of(tokenizer: Tokenizer, texts: Sequence[str], limit: int) -> list[list[Encoding]]:
    """Each text as one input, or as several if it has more than `limit` tokens."""
    wholes = ids_and_segments(tokenizer, texts)
    return [[w] if len(w.ids) <= limit else _cut(tokenizer, t, w, limit) for t, w in zip(texts, wholes, strict=True)]


def joined(vectors: Sequence[Tensor], windows: Sequence[Sequence[Encoding]], pooling: str) -> npt.NDArray[np.float32]:
    """One vector for each text, out of those of its windows: "max" and "mean" as over all of its tokens, else their mean."""
    each: npt.NDArray[np.float32] = torch.stack(list(vectors)).float().numpy()
    if len(each) == len(windows):
        return each
    bounds = list(pairwise(np.cumsum([0] + [len(parts) for parts in windows])))
    if pooling == "max":
        return np.stack([each[a:b].max(0) for a, b in bounds])
    sizes = [len(window.ids) if pooling == "mean" else 1 for parts in windows for window in parts]
    weights = np.array(sizes, np.float32)
    return np.stack([np.average(each[a:b], axis=0, weights=weights[a:b]) for a, b in bounds]).astype(np.float32)


def _cut(tokenizer: Tokenizer, text: str, whole: Encoding, limit: int) -> list[Encoding]:
    bare = tokenizer.encode(text)
    room = limit - (len(whole.ids) - len(bare.ids))
    front = len(around(tokenizer)[0])  # not found by the first token, which may be a "[CLS]" of the text
    head, tail = whole.ids[:front], whole.ids[front + len(bare.ids) :]
    segments = whole.segments[:front], whole.segments[front + len(bare.ids) :]
    size = -(-len(bare.ids) // -(-len(bare.ids) // room))  # as few windows as hold it, none of them nearly empty
    return [_window(bare, start, size, head, tail, *segments) for start in range(0, len(bare.ids), size)]


def _window(
    bare: Encoding, start: int, room: int, head: list[int], tail: list[int], before: list[int], after: list[int]
) -> Encoding:
    """A stretch of a text, with what the template puts around it and the segments `before` and `after` of that."""
    part = slice(start, start + room)
    front, back = len(head), len(tail)
    ids = [*head, *bare.ids[part], *tail]
    return Encoding(
        ids,
        [(0, 0)] * front + bare.offsets[part] + [(0, 0)] * back,
        [None] * front + bare.words[part] + [None] * back,
        [*before, *[0] * len(bare.ids[part]), *after],
    )
