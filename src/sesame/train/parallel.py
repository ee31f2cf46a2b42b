"""Many processes, one training: what `torchrun` starts becomes one run.

    rank r:  its share of the step's examples -> sums of losses -> gradients of sum / (count over ALL ranks)
    all:     gradients are summed, the norm is clipped, each rank takes the same step

Two ways to hold the weights:
- ddp: every rank has all of them; gradients are summed here, in buckets, after the last micro-batch.
- fsdp: every rank has a share of weights, gradients and optimiser, for models that do not fit: see `shares.py`.

Why not PyTorch's DistributedDataParallel: it averages, wants the same number of backward passes on every rank, and reduces
inside them. The loop's sums over micro-batches, weights that get no gradient in some steps, and gradients that reach the
weights from a copy of the model in another precision all fit one sum after the last pass. It is also the same in
every run: fixed buckets in a fixed order, so that a run that was killed and went on ends bit-equal to a calm one.

Rank 0 decides what depends on a clock and speaks for all. When one rank ends, the others notice by the lost connection.
"""

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from sesame.errors import SesameError
from sesame.train.meeting import first_store, meet

Parallel = Literal["auto", "ddp", "fsdp"]
BUCKET = 1 << 24  # numbers that are summed in one go: 64 MB
PATIENCE = timedelta(days=2)  # while rank 0 makes tokenizer and store; a rank that dies is noticed at once
COMPUTING = timedelta(minutes=30)  # inside a step
LOST = re.compile("by peer|Broken pipe|Connection refused|gloo|NCCL|nccl|ProcessGroup", re.IGNORECASE)
SENTENCE = "sesame/sentence"


class Lost(SesameError):
    """Another process of the run ended."""

    exit_code = 1


@dataclass(frozen=True)
class World:
    """The ranks of a run, and what they say to each other; alone, nothing is said."""

    rank: int = 0
    ranks: int = 1
    group: Any = None  # for words between CPUs: never waits for a GPU

    @property
    def first(self) -> bool:
        return self.rank == 0

    def wait(self) -> None:
        """Until all ranks are here."""
        if self.ranks > 1:
            dist.all_reduce(torch.zeros(1), group=self.group)  # on the CPU; a barrier would take the GPU's way

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """Rank 0 goes first and makes what is missing; the others follow and find it."""
        if not self.first:
            self.wait()
        yield
        if self.first:
            self.wait()

    def tell(self, text: str) -> str:
        """What rank 0 says."""
        if self.ranks == 1:
            return text
        told = [text]
        dist.broadcast_object_list(told, src=0, group=self.group, device=torch.device("cpu"))
        return told[0]

    def agree(self, values: Sequence[float]) -> list[float]:
        """The largest of each value over all ranks."""
        if self.ranks == 1:
            return list(values)
        found = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(found, dist.ReduceOp.MAX, group=self.group)
        return found.tolist()

    def sum(self, values: Tensor) -> Tensor:
        """Sums over all ranks, on the device of `values`, the same on every rank."""
        if self.ranks > 1:
            values = values.clone()
            dist.all_reduce(values, group=self.group if values.device.type == "cpu" else None)
        return values

    def sum_by_name(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if self.ranks == 1 or not values:
            return dict(values)
        return dict(zip(values, self.sum(torch.stack(list(values.values()))).unbind(), strict=True))

    @torch.no_grad()
    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Sum the gradients over all ranks.

        A weight without a gradient on every rank keeps none, as in a run of one process: zero is not the same to AdamW.
        """
        if self.ranks == 1:
            return
        ours = [p for p in parameters if p.requires_grad]
        if not ours:
            return
        used = self.agree([float(p.grad is not None) for p in ours])
        grads = []
        for p, here in zip(ours, used, strict=True):
            if here:
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
                grads.append(p.grad)
        for bucket in buckets(grads, BUCKET):
            flat = torch.cat([grad.flatten() for grad in bucket])
            dist.all_reduce(flat)
            at = 0
            for grad in bucket:
                grad.copy_(flat[at : at + grad.numel()].view_as(grad))
                at += grad.numel()

    @torch.no_grad()
    def same_weights(self, parameters: Iterable[nn.Parameter]) -> None:
        """Rank 0's weights for all: equal already, unless the machines compute differently."""
        if self.ranks > 1:
            for p in parameters:
                dist.broadcast(p.data, src=0)


ALONE = World()


def buckets(tensors: Iterable[Tensor], most: int) -> Iterator[list[Tensor]]:
    """Neighbours of one type, up to `most` numbers together."""
    found: list[Tensor] = []
    size = 0
    for tensor in tensors:
        if found and (size + tensor.numel() > most or tensor.dtype != found[0].dtype):
            yield found
            found, size = [], 0
        found.append(tensor)
        size += tensor.numel()
    if found:
        yield found


# ---- coming together and parting --------------------------------------------------------------------------------------


@dataclass
class _Joined:
    world: World
    store: Any  # where a last sentence can be left


_joined: _Joined | None = None  # PyTorch's process group is one for the process, so this is too


@contextmanager
def join(device: str) -> Iterator[World]:
    """The world that `torchrun` made, or this process alone; inside another `join`, the same world.

    A user's mistake is told once: by rank 0 if it made it too, else rank 0 finds the sentence where the other rank left it.
    """
    if _joined is not None or not _launched():
        yield ALONE if _joined is None else _joined.world
        return
    joined = _open(device)
    try:
        yield joined.world
        joined.world.wait()  # until rank 0 has written the result
        _close(calm=True)
    except SesameError as error:
        _leave(joined, error)
    except (RuntimeError, dist.DistError) as error:
        if not LOST.search(str(error)):
            raise
        _leave(joined, Lost("another process of this run has ended or was killed; run the same command again to go on"))


def _launched() -> bool:
    told = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= set(os.environ)
    return told and os.environ["WORLD_SIZE"] != "1"


def _open(device: str) -> _Joined:
    from torch.distributed.distributed_c10d import PrefixStore

    global _joined
    cuda = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    if cuda:
        _take_gpu(device)
    everybody, rank, ranks = first_store(COMPUTING.total_seconds())
    name = meet(everybody, rank, ranks, COMPUTING.total_seconds())
    store = PrefixStore(name, everybody)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if cuda else "gloo", store=store, rank=rank, world_size=ranks, timeout=COMPUTING
    )
    _joined = _Joined(World(rank, ranks, dist.new_group(backend="gloo", timeout=PATIENCE)), store)
    return _joined


def _leave(joined: _Joined, error: SesameError) -> None:
    """End with rank 0's sentence; the other ranks end in silence."""
    first, asked = joined.world.first, hasattr(error, "exit_code")  # asked: to stop, or left alone
    try:
        if not first and not asked:
            joined.store.set(SENTENCE, f"{error} (process {joined.world.rank})")
        elif first and asked and joined.store.check([SENTENCE]):
            error = SesameError(joined.store.get(SENTENCE).decode())  # what the others ended of
    except (RuntimeError, dist.DistError):  # the store ended before us: nothing more to hear
        joined.store = None
    _close(calm=False)
    if first:
        raise error
    raise SystemExit(int(getattr(error, "exit_code", 2)))


def _close(calm: bool) -> None:
    global _joined
    _joined = None
    if calm or dist.get_backend() == "gloo":  # with a rank lost, NCCL would wait for what never comes
        dist.destroy_process_group()


def _take_gpu(device: str) -> None:
    """Each process of a machine takes the GPU of its number."""
    number, count = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if device not in ("auto", "cuda"):
        raise SesameError(f"--device {device}: each process takes a GPU of its own; leave --device out")
    if number >= count:
        raise SesameError(
            f"this machine has {count} GPUs for process {number + 1}; start torchrun with --nproc-per-node {count}"
        )
    torch.cuda.set_device(number)


def share_of(batch: int, world: World, place: str, stairs: int = 1) -> int:
    """Examples of a step that each rank takes, on the first of so many stairs if the batch grows."""
    parts = world.ranks * stairs
    if batch % parts:
        near = math.ceil(batch / parts) * parts
        many = f"{world.ranks} processes cannot share evenly"
        why = many if stairs == 1 else f"cannot grow in {stairs} even stairs over {world.ranks} process(es)"
        raise SesameError(f"{place} is {batch}, which {why}; --set {place}={near} would do")
    return batch // parts
