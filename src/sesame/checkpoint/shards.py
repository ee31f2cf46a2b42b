"""Weights and optimiser in shares: every rank writes its own, and any number of ranks reads them back.

    SHARDS/__0_0.distcp  __1_0.distcp ...  .metadata

By PyTorch's distributed checkpoint, which knows of every share where it lies in the whole: four ranks write, two or one
read. Names are those of the model's parameters, and "name|exp_avg" for the optimiser.
"""

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sesame.errors import SesameError
from sesame.files import disk_errors
from sesame.train.optim import Memory, Optimizer, optimizer_tensors
from sesame.train.parallel import World

MODEL, OPTIMIZER = "model", "optimizer"


def write_shards(folder: Path, model: nn.Module, optimizer: Optimizer, world: World) -> None:
    """Called by all ranks together; `folder` is the same one for all."""
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.state_dict_saver import save

    kept = {MODEL: _weights(model), OPTIMIZER: optimizer_tensors(model, optimizer)}
    try:
        with disk_errors(folder):
            try:
                save(kept, checkpoint_id=folder, process_group=world.group)
            except CheckpointException as error:
                raise _reason(error) from error
    except OSError as error:
        raise SesameError(f"{folder}: a share of the weights could not be written ({error.strerror})") from error


def read_shards(folder: Path, model: nn.Module, optimizer: Optimizer, world: World) -> None:
    """Put weights and optimiser back, whole or in shares, as the model has them now."""
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.state_dict_loader import load

    named = dict(model.named_parameters())
    found = FileSystemReader(folder).read_metadata().state_dict_metadata
    memory: dict[str, Tensor] = {}
    for name, about in found.items():
        room, _, key = name.partition(".")
        if room == OPTIMIZER:
            parameter = named[key.rsplit("|", 1)[0]].detach()
            of_weight = about.size == parameter.shape  # type: ignore[union-attr]
            memory[key] = torch.zeros_like(parameter) if of_weight else torch.zeros(about.size)  # type: ignore[union-attr]
    kept: dict[str, Any] = {MODEL: _weights(model), OPTIMIZER: memory}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*single process.*")  # one process is a number of processes too
        load(kept, checkpoint_id=folder, process_group=world.group)
    restored: Memory = {}
    for key, tensor in memory.items():
        name, what = key.rsplit("|", 1)
        restored.setdefault(named[name], {})[what] = tensor
    optimizer.restore(restored)


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach() for name, p in model.named_parameters()}


def _reason(error: Any) -> BaseException:
    """The system's own error among those of the ranks, if there is one."""
    reasons = [reason for reason, _ in error.failures.values()]
    return next((reason for reason in reasons if isinstance(reason, OSError)), error)
