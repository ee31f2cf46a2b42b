"""Paragraphs and documents that stand in a text more than once."""

import hashlib
from array import array
from dataclasses import dataclass

import numpy as np

MOST_HASHES = 4_000_000


@dataclass(frozen=True)
class Repeats:
    """Copies beyond the first: how many, their share of the characters, the most repeated."""

    count: int
    share: float
    examples: list[tuple[int, str]]  # times, beginning


class Repeated:
    """Finds copies by hash, in bounded memory: above some millions only hashes that end in zero bits are kept."""

    def __init__(self) -> None:
        self.hashes, self.sizes = array("Q"), array("I")
        self.mask = 0
        # One bit for each hash seen: only what was probably there before is kept as text, to be shown.
        self.seen = bytearray(1 << 23)
        self.heads: dict[int, str] = {}

    def add(self, text: str) -> None:
        digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
        key = int.from_bytes(digest, "little")
        if key & self.mask:
            return
        self.hashes.append(key)
        self.sizes.append(len(text))
        byte, bit = key >> 41, 1 << (key >> 38 & 7)
        if self.seen[byte] & bit:
            if len(self.heads) < 50_000:
                self.heads.setdefault(key, text[:120])
        else:
            self.seen[byte] |= bit
        if len(self.hashes) >= MOST_HASHES:
            self._thin()

    def _thin(self) -> None:
        self.mask = 2 * self.mask + 1
        hashes, sizes = np.array(self.hashes, np.uint64), np.array(self.sizes, np.uint32)
        kept = hashes & np.uint64(self.mask) == 0
        self.hashes, self.sizes = array("Q", hashes[kept].tobytes()), array("I", sizes[kept].tobytes())
        self.heads = {key: head for key, head in self.heads.items() if not key & self.mask}

    def figures(self) -> Repeats:
        hashes, sizes = np.array(self.hashes, np.uint64), np.array(self.sizes, np.int64)
        keys, first, counts = np.unique(hashes, return_index=True, return_counts=True)
        extra = counts - 1
        times = dict(zip(keys[extra > 0].tolist(), counts[extra > 0].tolist(), strict=True))
        shown = sorted(
            ((times[key], head) for key, head in self.heads.items() if key in times), key=lambda e: (-e[0], e[1])
        )
        share = float((extra * sizes[first]).sum() / max(1, int(sizes.sum())))
        return Repeats(int(extra.sum()) * (self.mask + 1), share, shown[:3])
