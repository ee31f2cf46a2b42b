"""Optimisers, and which weights decay.

Biases and norms never decay (BERT).
- "adamw" (Loshchilov & Hutter 2019).
- "sgd" is the plain gradient; with `ema` and a rate that does not fall it is averaged SGD (AWD-LSTM, whose NT-ASGD begins to
  average when held-out text stops to gain; a running mean that forgets the start needs no such moment).
- "muon" (Jordan et al. 2024) makes the update of every hidden matrix orthogonal, see `muon.py`; tables, heads and vectors
  stay with AdamW. Its updates are scaled to the size of AdamW's, so that the same rate serves both; `rest` lets AdamW's part
  learn slower or faster than that.
- "lamb" (You et al. 2019) makes each step as long as the weights it moves, for very large batches, see `lamb.py`.
- "adafactor" (Shazeer & Stern 2018, https://arxiv.org/abs/1804.04235) is PyTorch's: of the squared gradients of a matrix it
  remembers row and column means only, and no momentum, so its memory is next to nothing. The rate is relative to the size
  of a tensor (try 0.01) and at most 1/√step; beta1, beta2 and eps play no part.

With `ema` all of them keep a running mean of the weights beside their momenta (Polyak & Juditsky 1992), and the finished
model is that mean: a <- d a + (1 - d) w with d = min(ema, (1 + t) / (10 + t)) after t steps, which forgets the start soon
(TensorFlow's rule). Being part of the memory, it is saved, undone and shared as momenta are.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from sesame.errors import SesameError
from sesame.train.lamb import Lamb
from sesame.train.muon import BatchedMuon
from sesame.train.shares import as_share, is_sharded

Memory = dict[Tensor, dict[str, Any]]
MEAN, MEAN_STEPS = "mean", "mean_steps"  # in the memory


@dataclass(frozen=True)
class OptimConfig:
    kind: Literal["adamw", "sgd", "muon", "lamb", "adafactor"] = "adamw"
    rate: float = 1e-4
    decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-6
    clip: float = 1.0  # gradient norm; 0: no clipping
    ema: float = 0.0  # decay of a running mean of the weights, such as 0.999; 0: none
    rest: float = 1.0  # muon: the rate of what stays with AdamW, as a factor of the common one

    def __post_init__(self) -> None:
        if not 0 < self.rate < 100:
            raise SesameError(f"optimizer.rate is {self.rate}; it lies between 0 and 100, and is small, such as 1e-4")
        if not self.eps > 0:
            raise SesameError(f"optimizer.eps is {self.eps}; it must be above 0")
        if not (self.decay >= 0 and self.clip >= 0):
            raise SesameError(f"optimizer: decay and clip are 0 or above; found {self.decay} and {self.clip}")
        if not (0 <= self.beta1 < 1 and 0 <= self.beta2 < 1):
            raise SesameError(f"optimizer: beta1 and beta2 lie from 0 to below 1; found {self.beta1} and {self.beta2}")
        if self.rest <= 0 or (self.rest != 1 and self.kind != "muon"):
            raise SesameError(
                f"optimizer.rest is {self.rest}; it is above 0, and of use beside optimizer.kind = muon alone"
            )
        if not 0 <= self.ema < 1:
            raise SesameError(f"optimizer.ema is {self.ema}; it lies from 0 (no mean) to below 1")


class Optimizer:
    """One or more of PyTorch's optimisers, each with its share of the weights."""

    def __init__(self, parts: list[torch.optim.Optimizer], ema: float = 0.0) -> None:
        self.parts, self.ema = parts, ema
        self.rate = 0.0  # the common one, as it was last set
        self.version = 0  # which arrays hold its memory; a recorded step is good for one version
        self._members = {id(p) for part in parts for group in part.param_groups for p in group["params"]}

    def __contains__(self, parameter: Tensor) -> bool:
        return id(parameter) in self._members

    def zero_grad(self) -> None:
        for part in self.parts:
            part.zero_grad(set_to_none=True)

    def step(self) -> None:
        for part in self.parts:
            part.step()
        if self.ema:
            self._average()

    @torch.no_grad()
    def _average(self) -> None:
        """On the device alone, so that a recorded step does it too."""
        every = [(p, part) for part in self.parts for group in part.param_groups for p in group["params"]]
        for p, kept in ((p, part.state[p]) for p, part in every if p.grad is not None):
            if MEAN not in kept:
                kept[MEAN], kept[MEAN_STEPS] = p.detach().clone(), torch.zeros((), device=p.device)
            steps = kept[MEAN_STEPS]
            steps += 1
            decay = ((1 + steps) / (10 + steps)).clamp(max=self.ema)
            kept[MEAN] += (1 - decay) * (p.detach() - kept[MEAN])

    @torch.no_grad()
    def take_means(self) -> None:
        """Put the running means in the place of the weights; training is over."""
        for p, kept in self.held().items():
            if MEAN in kept:
                p.copy_(kept[MEAN])

    def set_rate(self, rate: float) -> None:
        self.rate = rate
        for group in self.groups():
            group["lr"] = rate * group.get("scale", 1.0)

    def groups(self) -> list[dict[str, Any]]:
        return [group for part in self.parts for group in part.param_groups]

    @property
    def recordable(self) -> bool:
        """Whether a step can become part of a CUDA graph."""
        return all(isinstance(part, torch.optim.AdamW | BatchedMuon) for part in self.parts)

    def held(self) -> Memory:
        """What is remembered of each weight (momenta, step counts), itself."""
        return {p: kept for part in self.parts for p, kept in part.state.items()}

    def memory(self) -> Memory:
        """The same, copied."""
        return {p: _copy(kept) for p, kept in self.held().items()}

    def restore(self, memory: Memory) -> None:
        self.version += 1
        for part in self.parts:
            part.state.clear()
            for p in (p for group in part.param_groups for p in group["params"]):
                if p in memory:
                    part.state[p] = _copy(memory[p])


def _copy(kept: dict[str, Any]) -> dict[str, Any]:
    return {name: value.clone() if isinstance(value, Tensor) else value for name, value in kept.items()}


Scales = Mapping[nn.Parameter, float]
"""Rates of single weights as factors of the common one; 1 where nothing is said."""


def build_optimizer(model: nn.Module, config: OptimConfig, scales: Scales | None = None) -> Optimizer:
    found = Optimizer(_parts(model, config, scales), config.ema)
    found.set_rate(config.rate)
    return found


def _parts(model: nn.Module, config: OptimConfig, scales: Scales | None) -> list[torch.optim.Optimizer]:
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if config.kind == "adamw":
        return [_adamw((p for _, p in named), config, scales or {})]
    if scales and config.kind != "muon":
        raise SesameError(
            "rates by layer or network go with optimizer.kind = adamw or muon; take one of them, or one rate for all"
        )
    if is_sharded(model):
        raise SesameError(
            f"optimizer.kind = {config.kind} needs whole tensors, not shares; it goes with --parallel ddp, or take adamw"
        )
    if config.kind == "sgd":
        return [torch.optim.SGD((p for _, p in named), config.rate, weight_decay=config.decay)]
    matrices = {"params": [p for _, p in named if p.ndim >= 2], "weight_decay": config.decay}
    vectors = {"params": [p for _, p in named if p.ndim < 2], "weight_decay": 0.0}
    if config.kind == "lamb":
        groups = [{**matrices, "adapt": True}, {**vectors, "adapt": False}]
        return [Lamb(groups, config.rate, (config.beta1, config.beta2), config.eps)]
    if config.kind == "adafactor":
        if not hasattr(torch.optim, "Adafactor"):
            raise SesameError("optimizer.kind = adafactor needs PyTorch 2.5 or newer; update it, or take adamw")
        return [torch.optim.Adafactor([matrices, vectors], lr=config.rate)]
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    inner = [p for name, p in named if p.ndim == 2 and id(p) not in tables and ".blocks." in f".{name}"]
    if not inner:
        raise SesameError(
            "optimizer.kind = muon turns the matrices of a model's blocks, and none of those is trained here; take adamw"
        )
    known = {id(p) for p in inner}
    rest = [p for _, p in named if id(p) not in known]
    paced = [{"params": members, "scale": scale} for scale, members in _by_scale(inner, scales or {}).items()]
    muon = BatchedMuon(paced, lr=config.rate, weight_decay=config.decay, adjust_lr_fn="match_rms_adamw")
    return [muon, _adamw(rest, config, {p: (scales or {}).get(p, 1.0) * config.rest for p in rest})]


def _by_scale(parameters: list[nn.Parameter], scales: Scales) -> dict[float, list[nn.Parameter]]:
    found: dict[float, list[nn.Parameter]] = {}
    for p in parameters:
        found.setdefault(scales.get(p, 1.0), []).append(p)
    return found


def _adamw(parameters: Iterable[nn.Parameter], config: OptimConfig, scales: Scales) -> torch.optim.Optimizer:
    """AdamW in its fused form where there is one."""
    found = list(parameters)
    groups: dict[tuple[bool, float], list[nn.Parameter]] = {}
    for p in found:
        groups.setdefault((p.ndim >= 2, scales.get(p, 1.0)), []).append(p)
    return torch.optim.AdamW(
        [
            {"params": members, "weight_decay": config.decay if decays else 0.0, "scale": scale}
            for (decays, scale), members in sorted(groups.items(), key=lambda group: group[0], reverse=True)
        ],
        lr=config.rate,
        betas=(config.beta1, config.beta2),
        eps=config.eps,
        fused=all(p.device.type in ("cpu", "cuda") for p in found),
    )


def optimizer_tensors(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """The optimiser's memory by parameter name, as plain tensors: "name|exp_avg"."""
    named: dict[Tensor, str] = {p: name for name, p in model.named_parameters()}
    return {
        f"{named[p]}|{what}": (value if isinstance(value, Tensor) else torch.tensor(value)).detach().contiguous()
        for p, kept in optimizer.memory().items()
        for what, value in kept.items()
    }


def load_optimizer(model: nn.Module, optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` gave."""
    named = dict(model.named_parameters())
    memory: Memory = {}
    for name, tensor in tensors.items():
        parameter_name, what = name.rsplit("|", 1)
        parameter = named[parameter_name]
        memory.setdefault(parameter, {})[what] = as_share(tensor, parameter)
    optimizer.restore(memory)
