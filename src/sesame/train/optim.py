"""Optimisers, and which weights decay."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn


@dataclass(frozen=True)
class OptimConfig:
    kind: Literal["adamw"] = "adamw"
    rate: float = 1e-4
    decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-6
    clip: float = 1.0  # gradient norm; 0: no clipping


def build_optimizer(model: nn.Module, config: OptimConfig) -> torch.optim.Optimizer:
    """AdamW in its fused form. Biases and norms do not decay (BERT)."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    groups = [
        {"params": [p for name, p in named if p.ndim >= 2], "weight_decay": config.decay},
        {"params": [p for name, p in named if p.ndim < 2], "weight_decay": 0.0},
    ]
    fused = all(p.device.type in ("cpu", "cuda") for _, p in named)
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=config.rate,
        betas=(config.beta1, config.beta2),
        eps=config.eps,
        fused=fused,
    )


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("scale", 1.0)


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """The optimiser's memory by parameter name, as plain tensors: "name|exp_avg"."""
    named: dict[torch.Tensor, str] = {p: name for name, p in model.named_parameters()}
    found: dict[str, torch.Tensor] = {}
    for parameter, memory in optimizer.state.items():
        for what, value in memory.items():
            tensor = value if isinstance(value, torch.Tensor) else torch.tensor(value)
            found[f"{named[parameter]}|{what}"] = tensor.detach().contiguous()
    return found


def load_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, torch.Tensor]) -> None:
    """Put back what `optimizer_tensors` gave."""
    named = dict(model.named_parameters())
    optimizer.state.clear()
    for name, tensor in tensors.items():
        parameter_name, what = name.rsplit("|", 1)
        parameter = named[parameter_name]
        # The fused optimiser keeps its step count beside the weights.
        optimizer.state[parameter][what] = tensor.to(parameter.device).clone()
