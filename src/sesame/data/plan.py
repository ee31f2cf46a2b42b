"""The plan of a packing: which stretches of a text become examples, listed once for a store and a length.

A row is (begin, end, document). `documents` (D, 2) are sentence ranges, `offsets` say where each sentence begins among the
tokens, and `body` is how many tokens of text an example has room for. What each kind of packing is for: `pack.py`.
"""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def split_long(documents: Ints, offsets: Ints, body: int) -> tuple[Ints, Ints]:
    """Cut sentences longer than a sequence into equal parts, so that no text is lost (logs, lists, lines without stops)."""
    sizes = np.diff(offsets)
    if len(sizes) == 0 or sizes.max() <= body:
        return documents, offsets
    parts = -(-sizes // body)
    owner = np.repeat(np.arange(len(sizes)), parts)
    first = np.cumsum(parts) - parts
    within = np.arange(len(owner)) - first[owner]
    cut = offsets[:-1][owner] + sizes[owner] * within // parts[owner]
    renumbered = np.append(first, len(owner))
    return renumbered[documents], np.append(cut, offsets[-1])


def _plan_pairs(documents: Ints, offsets: Ints, body: int) -> Ints:
    """Sentences of a document until they fill the sequence; the last one overflows and is trimmed later."""
    reach = np.searchsorted(offsets, offsets + body, side="left")
    return _walk(documents, np.clip(reach, np.arange(len(offsets)) + 1, len(offsets) - 1))


def _plan_orders(documents: Ints, offsets: Ints, body: int) -> Ints:
    """As pairs, but a lone token has no order."""
    rows = _plan_pairs(documents, offsets, body)
    return rows[offsets[rows[:, 1]] - offsets[rows[:, 0]] > 1]


def _plan_documents(documents: Ints, offsets: Ints, body: int) -> Ints:
    """Whole sentences of one document while they fit."""
    reach = np.searchsorted(offsets, offsets + body, side="right") - 1
    rows = _walk(documents, np.clip(reach, np.arange(len(offsets)) + 1, len(offsets) - 1))
    return np.stack([offsets[rows[:, 0]], offsets[rows[:, 1]], rows[:, 2]], axis=1)


def _plan_dialogues(documents: Ints, offsets: Ints, body: int) -> Ints:
    """Whole turns of one dialogue while they fit, each with its separator; `body` counts one of those already."""
    places = offsets + np.arange(len(offsets))
    reach = np.searchsorted(places, places + body + 1, side="right") - 1
    return _walk(documents, np.clip(reach, np.arange(len(offsets)) + 1, len(offsets) - 1))


def _walk(documents: Ints, reach: Ints) -> Ints:
    """Follow the jumps from the start of every document to its end."""
    plan: list[tuple[int, int, int]] = []
    jump: list[int] = reach.tolist()
    for number, (first, end) in enumerate(documents.tolist()):
        at = first
        while at < end:
            to = min(jump[at], end)
            plan.append((at, to, number))
            at = to
    return np.array(plan, dtype=np.int64).reshape(-1, 3)


def _plan_sentences(documents: Ints, offsets: Ints, body: int) -> Ints:
    """Whole sentences while they fit, over the borders of documents; each border costs one separator."""
    plan: list[tuple[int, int, int]] = []
    sizes: list[int] = np.diff(offsets).tolist()
    start, used, owner, last_end = -1, 0, 0, -1
    for number, (first, end) in enumerate(documents.tolist()):
        if start >= 0 and (first != last_end or used + 1 >= body):  # a gap (held-out text) ends the row as well
            plan.append((start, last_end, owner))
            start = -1
        elif start >= 0:
            used += 1
        for sentence in range(first, end):
            if start >= 0 and used + sizes[sentence] > body:
                plan.append((start, sentence, owner))
                start = -1
            if start < 0:
                start, used, owner = sentence, 0, number
            used += sizes[sentence]
        last_end = end
    if start >= 0:
        plan.append((start, last_end, owner))
    rows = np.array(plan, dtype=np.int64).reshape(-1, 3)
    return np.stack([offsets[rows[:, 0]], offsets[rows[:, 1]], rows[:, 2]], axis=1)


def _plan_blocks(documents: Ints, offsets: Ints, body: int) -> Ints:
    """Cut the stream every `body` places."""
    _, sizes, places = stream(documents, offsets)
    total = int(places[-1] + sizes[-1])
    start = np.arange(0, total, body)
    start[-1] = max(0, total - body)  # no row is short, unless it is the only one
    owner = np.searchsorted(places, start, side="right") - 1
    return np.stack([start, np.minimum(start + body, total), owner], axis=1)


def _plan_translations(documents: Ints, offsets: Ints, body: int) -> Ints:
    """A row for each document of two sentences; where one side came out empty, there is nothing to translate."""
    numbered = np.concatenate([documents, np.arange(len(documents))[:, None]], axis=1)
    rows: Ints = numbered[documents[:, 1] - documents[:, 0] == 2]
    return rows


def _plan_neighbors(documents: Ints, offsets: Ints, body: int) -> Ints:
    """A row for each sentence that has another one beside it."""
    sizes = documents[:, 1] - documents[:, 0]
    owner = np.repeat(np.arange(len(documents)), np.where(sizes > 1, sizes, 0))
    within = np.arange(len(owner)) - np.searchsorted(owner, owner)
    sentence = documents[owner, 0] + within
    return np.stack([sentence, sentence + 1, owner], axis=1)


def stream(documents: Ints, offsets: Ints) -> tuple[Ints, Ints, Ints]:
    """First token and size of each document, and where it starts in the stream: one place for a separator between two."""
    heads = offsets[documents[:, 0]]
    sizes = offsets[documents[:, 1]] - heads
    return heads, sizes, np.cumsum(sizes + 1) - (sizes + 1)


PLANS = {
    "pairs": _plan_pairs,
    "orders": _plan_orders,
    "sentences": _plan_sentences,
    "documents": _plan_documents,
    "blocks": _plan_blocks,
    "translations": _plan_translations,
    "dialogues": _plan_dialogues,
    "neighbors": _plan_neighbors,
}
