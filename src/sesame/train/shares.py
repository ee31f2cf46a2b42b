"""Weights in shares: every rank holds a part of each weight, of its gradient and of the optimiser's memory.

    a block's turn:  gather its weights from all ranks -> compute -> let go;  backwards: sum the gradients, keep one's share

Paper: Zhao et al. 2023, "PyTorch FSDP" (https://arxiv.org/abs/2304.11277), after ZeRO (Rajbhandari et al. 2020,
https://arxiv.org/abs/1910.02054). By PyTorch's `fully_shard`, a unit for each block and one for the rest: the table and the
heads, which objectives read outside of any block.
"""

from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from sesame.nn.device import has_triton
from sesame.objectives.model import Model
from sesame.train.parallel import Parallel, World
from sesame.train.precision import Machine

EACH = 28  # bytes a weight: itself, its gradient, two momenta, and the copy of all but the gradient to fall back to


def is_shard(tensor: Tensor) -> bool:
    if not dist.is_initialized():
        return False
    from torch.distributed.tensor import DTensor

    return isinstance(tensor, DTensor)


def not_shared(model: nn.Module) -> list[nn.Parameter]:
    """The weights that each rank has whole."""
    return [p for p in model.parameters() if not is_shard(p)]


def is_sharded(model: nn.Module) -> bool:
    return any(is_shard(p) for p in model.parameters())


def wants_shards(wanted: Parallel, model: nn.Module, machine: Machine, world: World) -> bool:
    """`auto` takes shares when weights, gradients and optimiser would fill more than half of a GPU."""
    if world.ranks == 1 or wanted == "ddp":
        return False
    if wanted == "fsdp":
        return True
    if machine.device.type != "cuda":
        return False
    needed = EACH * sum(p.numel() for p in model.parameters())
    whole = torch.cuda.get_device_properties(machine.device).total_memory
    return bool(world.agree([float(needed > whole / 2)])[0])


def shard(model: Model, machine: Machine, world: World, compiled: bool | None = None) -> None:
    """Give each rank a share of every weight, in place, on the machine's device.

    Gradients are summed, not averaged: the loop has divided by the counts of all ranks. Blocks are compiled one by one,
    because their weights come and go between them.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

    if compiled is None:
        compiled = has_triton(machine.device)
    mesh = init_device_mesh(machine.device.type, (world.ranks,))
    half = torch.bfloat16 if machine.precision == "bf16" else None
    policy = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=torch.float32, cast_forward_inputs=False)
    blocks = list(dict.fromkeys(model.backbone.blocks))
    if len(blocks) == len(model.backbone.blocks) and not _shared(blocks):
        for block in blocks:
            if compiled:
                block.compile(dynamic=False)
            fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)


def _shared(blocks: Sequence[nn.Module]) -> bool:
    """Whether blocks have weights in common; those stay together in the model's own unit."""
    seen = [id(p) for block in blocks for p in block.parameters()]
    return len(seen) != len(set(seen))


def fold(model: nn.Module) -> None:
    """After a pass without gradients: the weights of the outermost unit go back to shares."""
    if dist.is_initialized():
        from torch.distributed.fsdp import FSDPModule

        if isinstance(model, FSDPModule):
            model.reshard()


def whole(tensor: Tensor) -> Tensor:
    """A tensor of shares in one piece, on every rank; any other as it is."""
    return tensor.full_tensor() if is_shard(tensor) else tensor  # type: ignore[attr-defined]


def as_share(tensor: Tensor, like: Tensor) -> Tensor:
    """A whole tensor, which every rank has, laid out as the weight `like`; a number of its own stays as it is."""
    tensor = tensor.to(like.device)
    if not is_shard(like) or tensor.shape != like.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)  # type: ignore[attr-defined]


def collect(tensors: Mapping[str, Tensor], world: World) -> dict[str, Tensor]:
    """Shares brought together on the CPU of rank 0, one weight at a time; nothing elsewhere."""
    found = {}
    for name, tensor in tensors.items():
        one = whole(tensor)
        if world.first:
            found[name] = one.cpu()
    return found
