"""What ranks say to each other, on threads that stand for them; whole runs are in tests/test_many.py."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from sesame.errors import SesameError
from sesame.train import parallel
from sesame.train.loop import Clock, Hooks, Window, _decide, _Stop
from sesame.train.meeting import meet
from sesame.train.parallel import ALONE, World, buckets, share_of
from sesame.train.state import State
from sesame.train.step import Told


def on_ranks(monkeypatch: pytest.MonkeyPatch, ranks: int, work: Callable[[World], Any]) -> list[Any]:
    """What `work` gives on each rank; sums and maxima go through a table instead of a network."""
    lock, meeting = threading.Lock(), threading.Barrier(ranks, timeout=30)
    table: dict[int, torch.Tensor] = {}
    found: list[Any] = [None] * ranks

    def all_reduce(tensor: torch.Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None) -> None:
        rank = threading.current_thread().rank  # type: ignore[attr-defined]
        with lock:
            table[rank] = tensor.clone()
        meeting.wait()
        every = torch.stack([table[n] for n in range(ranks)])
        tensor.copy_(every.sum(0) if op == dist.ReduceOp.SUM else every.max(0).values)
        meeting.wait()

    monkeypatch.setattr(dist, "all_reduce", all_reduce)

    def run(rank: int) -> None:
        found[rank] = work(World(rank, ranks))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for rank, thread in enumerate(threads):
        thread.rank = rank  # type: ignore[attr-defined]
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


def test_gradients_are_summed_and_those_of_nobody_stay_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A weight that one rank alone used gets its gradient on all; one that nobody used keeps none."""

    def work(world: World) -> list[torch.Tensor | None]:
        weights = [nn.Parameter(torch.zeros(n, 2)) for n in (3, 2, 4)] + [nn.Parameter(torch.zeros(2), False)]
        weights[0].grad = torch.full((3, 2), world.rank + 1.0)
        if world.rank == 1:
            weights[2].grad = torch.arange(8.0).view(4, 2)
        world.sum_gradients(weights)
        return [weight.grad for weight in weights]

    monkeypatch.setattr(parallel, "BUCKET", 4)
    for first, unused, one, frozen in on_ranks(monkeypatch, 3, work):
        assert first is not None
        assert torch.equal(first, torch.full((3, 2), 6.0))
        assert unused is None
        assert one is not None
        assert torch.equal(one, torch.arange(8.0).view(4, 2))
        assert frozen is None


def test_a_window_is_read_over_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(world: World) -> Any:
        share = float(world.rank + 1)
        first = {
            ("loss", ""): share,
            ("tokens", ""): 3 * share,
            ("total", "mlm"): 10 * share,
            ("part", "right"): share,
            ("of", "right"): 4.0,
            ("norm", ""): 0.5,  # of the summed gradients: alike everywhere
            ("count", "mlm"): 4.0,  # summed before the backward pass
        }
        second = {("total", "nsp"): 6 * share, ("loss", ""): 2 * share, ("norm", ""): 0.25, ("count", "nsp"): 2.0}
        second |= {("tokens", ""): 4 * share}  # a step of another kind of batch
        told = [Told(tuple(each), torch.tensor(list(each.values())).double()) for each in (first, second)]
        return Window(steps=[4, 5], told=told, places=10).read(world)

    for seen in on_ranks(monkeypatch, 2, work):
        assert seen == ([3.0, 6.0], [0.5, 0.25], 21, 20, {"mlm": 7.5, "nsp": 9.0, "right": 3 / 8})


def test_rank_0_reads_the_clock_and_any_rank_may_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(world: World) -> Any:
        clock = Clock(steps=10 * (world.rank + 1))  # the others' clocks are wrong
        hooks = Hooks(save_due=lambda state: world.first, evaluate_due=lambda state: not world.first)
        stop = _Stop()
        stop.asked = "SIGTERM" if world.rank == 2 else ""
        return _decide(world, clock, State(step=4), hooks, stop)

    for now in on_ranks(monkeypatch, 3, work):
        assert now == (False, True, False, 15, 0.45)


class Table(dict[str, bytes]):
    """A store in memory."""

    def set(self, key: str, value: str) -> None:
        self[key] = value.encode()

    def check(self, keys: list[str]) -> bool:
        return keys[0] in self


def test_a_meeting_is_not_misled_by_the_dead() -> None:
    """Ranks of the second meeting find marks, a list and answers of the first one; one of them comes late."""
    store, names = Table(), []

    def together(late: float) -> list[str]:
        found = [""] * 3

        def come(rank: int) -> None:
            time.sleep(late if rank == 2 else 0)
            found[rank] = meet(store, rank, 3, 30)

        threads = [threading.Thread(target=come, args=(rank,)) for rank in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        return found

    for late in (0.0, 0.2):
        found = together(late)
        assert len(set(found)) == 1
        names.append(found[0])
    assert names[0] != names[1]
    with pytest.raises(SesameError, match="process 1 of 3 waited"):
        meet(store, 1, 3, 0.1)


def test_alone_nothing_is_said() -> None:
    values = torch.ones(3)
    assert ALONE.sum(values) is values
    assert ALONE.agree([1.0, 2.0]) == [1.0, 2.0]
    assert ALONE.tell("a") == "a"
    ALONE.wait()
    with ALONE.in_turn():
        pass


def test_buckets_hold_neighbours_of_one_type() -> None:
    tensors = [torch.zeros(n) for n in (3, 3, 9, 1)] + [torch.zeros(1, dtype=torch.float64)]
    assert [[len(t) for t in bucket] for bucket in buckets(tensors, 6)] == [[3, 3], [9], [1], [1]]
    assert list(buckets([], 6)) == []


def test_shares_are_even() -> None:
    assert share_of(32, World(1, 4), "stages.short.batch", stairs=8) == 1
    with pytest.raises(SesameError, match=r"12, which cannot grow in 8 even stairs.*batch=16"):
        share_of(12, ALONE, "stages.short.batch", stairs=8)
    assert share_of(32, World(1, 4), "stages.short.batch") == 8
    with pytest.raises(SesameError, match=r"stages.short.batch is 30, which 4 .* --set stages.short.batch=32"):
        share_of(30, World(1, 4), "stages.short.batch")


def test_only_the_first_process_speaks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from sesame.progress import bar, say

    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        say(f"rank {rank}")
        with bar("work", 1) as shown:
            shown.advance()
    assert capsys.readouterr().err == "rank 0\n"


def test_without_torchrun_there_is_nobody_to_join(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with parallel.join("cpu") as world:
        assert world is ALONE
    monkeypatch.setenv("WORLD_SIZE", "2")  # set by others than torchrun, too
    with parallel.join("cpu") as world:
        assert world is ALONE
    assert "RANK" not in os.environ
