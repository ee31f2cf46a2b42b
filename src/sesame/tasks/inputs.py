"""Texts to a batch that a model can read."""

from collections.abc import Sequence

import torch

from sesame.data.batch import Batch
from sesame.text import Encoding, Tokenizer


def batch_of(encodings: Sequence[Encoding], pad: int) -> Batch:
    """Encoded texts as one padded batch."""
    lengths = [len(encoding.ids) for encoding in encodings]
    width = max(lengths, default=0)
    ids = torch.tensor([e.ids + [pad] * (width - len(e.ids)) for e in encodings], dtype=torch.long)
    segments = torch.tensor([e.segments + [0] * (width - len(e.ids)) for e in encodings], dtype=torch.long)
    full = all(length == width for length in lengths)
    return Batch(ids.view(-1, width), torch.tensor(lengths), segments=segments.view(-1, width), full=full)


def by_length(encodings: Sequence[Encoding], tokens: int = 4096, alike: bool = False) -> list[list[int]]:
    """Groups of indices of similar length, at most `tokens` places each: little padding, answers in any order.

    With `alike` the lengths of a group are equal, so that nothing is padded and company changes no bit.
    """
    groups: list[list[int]] = []
    for index in sorted(range(len(encodings)), key=lambda i: len(encodings[i].ids)):
        size = len(encodings[index].ids)  # the longest so far
        fits = bool(groups) and (len(groups[-1]) + 1) * size <= tokens
        if fits and not (alike and size != len(encodings[groups[-1][0]].ids)):
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def ids_and_segments(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Encoding]:
    """Whole inputs on all cores, without the places in the text, which cost more than the ids."""
    quick = getattr(tokenizer.backend, "encode_batch_fast", tokenizer.backend.encode_batch)
    try:
        return [Encoding(found.ids, [], [], tokenizer.segments_of(found)) for found in quick(list(texts))]
    except (TypeError, UnicodeEncodeError):  # half of a surrogate pair: the careful way knows what to do
        return tokenizer.encode_batch(list(texts), special=True)
