"""Who sees whom when tokens follow others that are kept as keys and values."""

import torch
from torch import Tensor

from sesame.backbones.base import State


def past_and_present(state: State, real: Tensor | None, rows: int, width: int, device: torch.device) -> Tensor | None:
    """Which tokens of past and present are real. Shape: (B, M + L); None: all of them."""
    if state.real is None and real is None:
        return None
    old = state.real if state.real is not None else torch.ones(rows, state.length, dtype=torch.bool, device=device)
    new = real if real is not None else torch.ones(rows, width, dtype=torch.bool, device=device)
    return torch.cat([old, new], dim=1)


def before(past: int, width: int, real: Tensor | None, device: torch.device) -> Tensor | None:
    """A mask by which each of `width` tokens sees the past, those before it and itself. Shape: (B or 1, 1, L, M + L).

    None: everything may be seen, which is so for one token without padding.
    """
    if width == 1:
        return None if real is None else real[:, None, None, :]
    seen = torch.ones(width, past + width, dtype=torch.bool, device=device).tril(past)[None, None]
    return seen if real is None else seen & real[:, None, None, :]
