"""Where the processes of a run find each other, after a restart too.

`torchrun` keeps one store for all its restarts, so that a process may read there what one that is dead has written: an
address where nobody listens. Its count of restarts does not help, each machine has its own. So before anything else the
ranks agree on a name that is new:

    rank r:  writes a mark of its own, waits until rank 0's list holds it, answers to that list
    rank 0:  lists the marks it reads, old or new, until every rank has answered to the same list

A dead rank answers to nothing, and what is written under the name of the list was written by those who answered.
"""

import os
import time
from functools import cache
from typing import Any

from sesame.errors import SesameError

POLL = 0.02  # seconds


@cache
def first_store(seconds: float) -> tuple[Any, int, int]:
    """The store that the launcher keeps, this rank, and how many there are."""
    from datetime import timedelta

    from torch.distributed.rendezvous import rendezvous

    store, rank, ranks = next(rendezvous("env://", timeout=timedelta(seconds=seconds)))
    return store, rank, ranks


def meet(store: Any, rank: int, ranks: int, seconds: float) -> str:
    """A name for this meeting, the same on all ranks and never used before."""
    mark, until = os.urandom(8).hex(), time.monotonic() + seconds
    store.set(f"mark/{rank}", mark)
    while time.monotonic() < until:
        if rank == 0:
            marks = [_read(store, f"mark/{number}") for number in range(ranks)]
            store.set("list", " ".join(marks))
        else:
            marks = _read(store, "list").split(" ")
        name = "-".join(marks)
        if len(marks) == ranks and marks[rank] == mark and all(marks):
            store.set(f"{name}/{rank}", "here")
            if rank == 0 and all(_read(store, f"{name}/{number}") for number in range(ranks)):
                store.set(f"{name}/go", "go")
            if _read(store, f"{name}/go"):
                return name
        time.sleep(POLL)
    raise SesameError(
        f"process {rank} of {ranks} waited {seconds / 60:g} minutes for the others; check that all machines were started "
        "and reach each other"
    )


def _read(store: Any, key: str) -> str:
    return str(store.get(key).decode()) if store.check([key]) else ""
