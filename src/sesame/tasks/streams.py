"""Many batches side by side: one core each, instead of all cores on one batch after the other.

A batch for one core has no threads that wait for one another, stays in that core's cache, and its Python runs while other
cores multiply (PyTorch lets go of the interpreter inside its products). Too few batches: each gets several cores.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

TOKENS = 1024  # of a batch for one core: its states stay in the cache, its products are large enough
LEAST = 128  # fewer are not worth a batch of their own

Part = TypeVar("Part")


def even(lengths: Sequence[int]) -> list[list[int]]:
    """Indices by length, in groups of about as many tokens each, so that all cores end at the same time."""
    total, cores = sum(lengths), torch.get_num_threads()
    wanted = -(-total // (TOKENS * cores)) * cores
    count = max(1, min(wanted, total // LEAST, len(lengths)))
    groups: list[list[int]] = [[] for _ in range(count)]
    before = 0
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        middle = before + lengths[index] / 2
        groups[min(count - 1, int(middle * count / max(1, total)))].append(index)
        before += lengths[index]
    return [group for group in groups if group]


def side_by_side(work: Callable[[Part], None], parts: Sequence[Part]) -> None:
    """Do `work` for every part; the order is open. What one raises is raised here, after those under way."""
    threads = torch.get_num_threads()
    streams = min(threads, len(parts))
    if streams <= 1:
        for part in parts:
            work(part)
        return
    with ThreadPoolExecutor(streams, initializer=torch.set_num_threads, initargs=(max(1, threads // streams),)) as pool:
        under_way = [pool.submit(work, part) for part in parts]
        try:
            for each in under_way:
                each.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
        finally:
            torch.set_num_threads(threads)  # threads that start later ask what the last one set
