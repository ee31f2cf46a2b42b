"""Linear layers that only answer: weights laid out for the CPU's matrix kernels, in 32, 16 or 8 bits.

    fp32, bf16   y = act(x Wᵀ + b), the activation inside the product's kernel (oneDNN)
    int8         x ≈ s_t q_t + z_t,  W_o ≈ r_o v_o   ->   y_to = s_t r_o (q_t · v_o) + z_t Σ_i W_oi + b_o

int8 is dynamic: every token brings its own smallest value z_t and step s_t = (max x_t - z_t) / 255, so that one loud token
does not coarsen its neighbours and all levels serve; after GELU or ReLU z is known beforehand. Weights have one scale for
each output. Unusual: no quantized tensors of PyTorch (deprecated), only plain ones and oneDNN's product.
"""

import copy
from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Precision = Literal["fp32", "bf16", "int8"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16", "int8")
FLOORS: dict[str, float] = {"relu": 0.0, "gelu": -0.17, "gelu_tanh": -0.171}  # the smallest value of each activation
_FUSED = {"relu": ("relu", ""), "gelu": ("gelu", "none"), "gelu_tanh": ("gelu", "tanh"), "none": ("none", "")}
_AFTER: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "relu": F.relu_,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}
_ROWS = 1024  # weights are laid out for products of about so many rows


def cpu_has(what: Literal["bf16", "int8"]) -> bool:
    """Whether this CPU multiplies such numbers in hardware; PyTorch's own answer."""
    names = {
        "bf16": ("_is_amx_tile_supported", "_is_avx512_bf16_supported"),
        "int8": ("_is_amx_tile_supported", "_is_vnni_supported", "_is_avx512_vnni_supported"),
    }[what]
    asked = [getattr(torch.cpu, name, None) for name in names]
    return any(ask() for ask in asked if ask is not None)


def has_onednn() -> bool:
    return bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]


class Packed:
    """Shape: (T, in) -> (T, out). `activation` is applied to the result; `after` is the one that made the input."""

    def __init__(self, linear: nn.Linear, activation: str = "none") -> None:
        self.weight = linear.weight.detach()
        self.bias = None if linear.bias is None else linear.bias.detach()
        self.activation = activation

    def __call__(self, x: Tensor) -> Tensor:
        """The plain way, for machines without oneDNN."""
        return _AFTER[self.activation](F.linear(x, self.weight, self.bias))


class PackedFloat(Packed):
    """32 or 16 bits; the weight stands in the blocks that the kernel reads."""

    def __init__(self, linear: nn.Linear, activation: str, dtype: torch.dtype) -> None:
        super().__init__(linear, activation)
        self.weight = torch.ops.mkldnn._reorder_linear_weight(self.weight.to(dtype).contiguous(), _ROWS)
        self.bias = None if self.bias is None else self.bias.to(dtype)
        self.fused = _FUSED[activation]

    def __call__(self, x: Tensor) -> Tensor:
        name, how = self.fused
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, name, [], how)  # type: ignore[no-any-return]


class PackedInt8(Packed):
    """8 bits; without VNNI 7 for the weights, because there pairs of products are summed in 16 bits and would overflow."""

    def __init__(self, linear: nn.Linear, activation: str, after: str) -> None:
        super().__init__(linear, activation)
        self.floor = FLOORS.get(after)
        largest = 127 if cpu_has("int8") else 63
        scale = (self.weight.abs().amax(1) / largest).clamp(min=torch.finfo(torch.float32).tiny)
        whole = (self.weight / scale[:, None]).round().to(torch.int8)
        self.sums = (whole.float() * scale[:, None]).sum(1)
        bias = torch.zeros(len(scale)) if self.bias is None else self.bias
        self.bias = bias if self.floor is None else bias + self.floor * self.sums
        self.weight = torch.ops.onednn.qlinear_prepack(whole.contiguous(), None)
        self.scale, self.zeros = scale, torch.zeros(len(scale), dtype=torch.int32)

    def __call__(self, x: Tensor) -> Tensor:
        low: Tensor | float = x.amin(1, keepdim=True) if self.floor is None else self.floor
        scale = (x.amax(1, keepdim=True) - low).clamp_(min=1e-30) / 255
        # By way of signed bytes: PyTorch turns floats into those sixteen times as fast as into unsigned ones.
        levels = (x - low).mul_(scale.reciprocal()).sub_(128).round_().to(torch.int8).view(torch.uint8).add_(128)
        found: Tensor = torch.ops.onednn.qlinear_pointwise(
            levels, 1.0, 0, self.weight, self.scale, self.zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
        found.mul_(scale)
        if isinstance(low, Tensor):
            found.addcmul_(low, self.sums)
        return _AFTER[self.activation](found.add_(self.bias))


def pack(linear: nn.Linear, precision: Precision, activation: str = "none", after: str = "none") -> Packed:
    """A linear layer laid out for answers; its product is followed by `activation`, its input was made by `after`."""
    if precision == "int8":
        return PackedInt8(linear, activation, after)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    if has_onednn() and (precision == "fp32" or torch.ops.mkldnn._is_mkldnn_bf16_supported()):
        return PackedFloat(linear, activation, dtype)
    return Packed(copy.deepcopy(linear).to(dtype), activation)


def part_of(linear: nn.Linear, rows: slice) -> nn.Linear:
    """Some of a layer's outputs as a layer of their own."""
    weight = linear.weight.detach()[rows]
    found = nn.Linear(weight.shape[1], weight.shape[0], bias=linear.bias is not None)
    found.weight = nn.Parameter(weight, requires_grad=False)
    if linear.bias is not None:
        found.bias = nn.Parameter(linear.bias.detach()[rows], requires_grad=False)
    return found
