"""Parts of a store: which documents are trained on, and which are held out."""

from dataclasses import dataclass

import numpy as np

from sesame import chance
from sesame.data.plan import Ints
from sesame.data.store import Store


@dataclass(frozen=True)
class Part:
    """Some documents of a store: sentence ranges [first, end), (D, 2). Training text and held-out text are two parts."""

    store: Store
    documents: Ints

    def tokens(self) -> int:
        bounds = np.asarray(self.store.sentences)[self.documents]
        return int((bounds[:, 1] - bounds[:, 0]).sum())


def hold_out(store: Store, seed: int, share: float | None = None) -> tuple[Part, Part]:
    """Split a store into training and held-out text: whole documents, drawn by `seed`.

    The share is 1 % of the tokens, but at least 50,000 (if that is not over 5 %) and at most 2 million. A text of fewer
    than 20 documents gives the last twentieth of the sentences of each.
    """
    bounds = np.stack([np.asarray(store.documents[:-1]), np.asarray(store.documents[1:])], axis=1).astype(np.int64)
    offsets = np.asarray(store.sentences)
    sizes = offsets[bounds[:, 1]] - offsets[bounds[:, 0]]
    total = int(sizes.sum())
    wanted = total * share if share is not None else min(max(total * 0.01, 50_000), total * 0.05, 2_000_000)
    if wanted <= 0:
        return Part(store, bounds), Part(store, bounds[:0])
    if len(bounds) < 20:
        cut = bounds[:, 0] + np.maximum(1, ((bounds[:, 1] - bounds[:, 0]) * (1 - (share or 0.05))).astype(np.int64))
        held = np.stack([cut, bounds[:, 1]], axis=1)
        return Part(store, np.stack([bounds[:, 0], cut], axis=1)), Part(store, held[held[:, 0] < held[:, 1]])
    order = np.argsort(chance.keys(chance.key(seed, 0x48454C44), np.arange(len(bounds))), kind="stable")
    count = int(np.searchsorted(np.cumsum(sizes[order]), wanted)) + 1
    chosen = np.zeros(len(bounds), dtype=bool)
    chosen[order[: min(count, len(bounds) - 1)]] = True
    return Part(store, bounds[~chosen]), Part(store, bounds[chosen])
