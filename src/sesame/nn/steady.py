"""The same bits for a text, whatever stands beside it.

Kernels choose the order of a sum by how many rows a product has, and attention's by where a thread's memory lies; so the last
bit of an answer would depend on what else is asked at the same moment, and an answer over HTTP would not be that of a file.
Three rules keep it still on a CPU: the rows of a product are rounded up to a multiple of `ROWS`, attention is computed by one
thread, and the states of a text are added up without the padding behind them. (What the encoder multiplies itself,
`backbones/fast.py`, is rounded there.)
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

ROWS = 16


@contextmanager
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Steady(TorchFunctionMode):
    """Within it, linear layers and attention on a CPU keep the first two. For answers, not for training."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.linear and not kwargs:
            return _rounded(func, *args)
        if func is F.scaled_dot_product_attention:
            with one_thread():
                return func(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def row_sums(x: Tensor, lengths: Tensor) -> Tensor:
    """The sum over each row's real places. Shape: (..., B, L, D), (B,) -> (..., B, D)."""
    if torch.is_grad_enabled() or x.device.type != "cpu":
        real = torch.arange(x.shape[-2], device=x.device)[None] < lengths[:, None]
        return (x * real[..., None]).sum(-2)
    rows = zip(x.unbind(-3), lengths.tolist(), strict=True)
    return torch.stack([row[..., :length, :].sum(-2) for row, length in rows], -2)


def _rounded(linear: Callable[..., Tensor], x: Tensor, *weights: Tensor | None) -> Tensor:
    """Shape: (..., D) -> (..., E)."""
    rows = x.shape[:-1].numel()
    more = -rows % ROWS
    if not more or x.device.type != "cpu":
        return linear(x, *weights)
    filled = F.pad(x.reshape(rows, x.shape[-1]), (0, 0, 0, more))
    return linear(filled, *weights)[:rows].view(*x.shape[:-1], -1)
