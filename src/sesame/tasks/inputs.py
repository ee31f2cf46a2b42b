"""Texts to a batch that a model can read."""

from collections.abc import Sequence

import torch

from sesame.data.batch import Batch
from sesame.text import Encoding


def batch_of(encodings: Sequence[Encoding], pad: int) -> Batch:
    """Encoded texts as one padded batch."""
    lengths = torch.tensor([len(encoding.ids) for encoding in encodings])
    width = int(lengths.max()) if len(encodings) else 0
    ids = torch.full((len(encodings), width), pad)
    segments = torch.zeros(len(encodings), width, dtype=torch.long)
    for row, encoding in enumerate(encodings):
        ids[row, : len(encoding.ids)] = torch.tensor(encoding.ids)
        segments[row, : len(encoding.ids)] = torch.tensor(encoding.segments)
    return Batch(ids, lengths, segments=segments, full=bool((lengths == width).all()))


def by_length(encodings: Sequence[Encoding], tokens: int = 4096) -> list[list[int]]:
    """Groups of indices of similar length, at most `tokens` places each: little padding, answers in any order."""
    groups: list[list[int]] = []
    for index in sorted(range(len(encodings)), key=lambda i: len(encodings[i].ids)):
        size = len(encodings[index].ids)  # the longest so far
        if groups and (len(groups[-1]) + 1) * size <= tokens:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups
