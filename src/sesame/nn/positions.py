"""Where a token stands: learned tables, sinusoids, rotations.

Sinusoidal (Vaswani et al. 2017): p(t, 2i) = sin(t / 10000^(2i/D)), p(t, 2i+1) = cos(t / 10000^(2i/D)).
Rotary (Su et al. 2021): each pair of coordinates (i, i + d/2) of a query or key is turned by the angle t / 10000^(2i/d),
so that a score depends on the distance of two tokens alone.
Relative (Dai et al. 2019, Transformer-XL): sinusoids of the distance itself, [sin | cos] in two halves.
"""

import torch
from torch import Tensor


def sinusoids(length: int, width: int) -> Tensor:
    """Shape: (length, width)."""
    at = torch.arange(length, dtype=torch.float64)[:, None]
    angles = at / 10000 ** (torch.arange(0, width, 2, dtype=torch.float64) / width)[None, :]
    table = torch.zeros(length, width, dtype=torch.float64)
    table[:, 0::2] = angles.sin()
    table[:, 1::2] = angles.cos()[:, : width // 2]
    return table.to(torch.get_default_dtype())


def half_sinusoids(length: int, width: int) -> Tensor:
    """The same numbers, all sines before all cosines, as the authors' code and its ports have them."""
    table = sinusoids(length, width)
    return torch.cat([table[:, 0::2], table[:, 1::2]], dim=1)


def rotations(at: Tensor, size: int, base: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines for heads of `size` at these positions. Shape: (...) -> (..., size) each."""
    cos, sin = _rotations(at, size, base, dtype)
    return cos, sin


@torch.library.custom_op("sesame::rotations", mutates_args=())
def _rotations(at: Tensor, size: int, base: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """An operation of its own, for a compiler would compute these angles anew, in 64 bits, for every query and key."""
    rates = base ** (-torch.arange(0, size, 2, dtype=torch.float64, device=at.device) / size)
    angles = at[..., None].double() * rates
    both = torch.cat([angles, angles], dim=-1)
    return both.cos().to(dtype), both.sin().to(dtype)


@_rotations.register_fake
def _(at: Tensor, size: int, base: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    shape = (*at.shape, size)
    return at.new_empty(shape, dtype=dtype), at.new_empty(shape, dtype=dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn heads (..., size) by the angles of their positions; cos and sin broadcast to x.

    (left, right) -> (left cos - right sin, right cos + left sin), written with a roll: its gradient is a roll again, where
    that of cutting and joining halves is a slow kernel.
    """
    half = x.shape[-1] // 2
    signed = torch.cat([-sin[..., :half], sin[..., half:]], dim=-1)
    return (x * cos + x.roll(half, dims=-1) * signed).type_as(x)


def relative_sinusoids(first: int, count: int, width: int, clamp: int, device: torch.device) -> Tensor:
    """Encodings of the distances first, first - 1, first - 2 ... Shape: (count, width), in 32 bits.

    `clamp`: farther tokens count as being so far away; 0: no end. The angles are computed in 32 bits whatever the precision
    of the model, as in the authors' code and its ports: a checkpoint then gives the same digits everywhere.
    """
    rates = 1 / torch.pow(10000, torch.arange(0, width, 2, device=device).float() / width)
    far = first - torch.arange(count, device=device).float()
    far = far.clamp(-clamp, clamp) if clamp else far
    angles = far[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=-1)
