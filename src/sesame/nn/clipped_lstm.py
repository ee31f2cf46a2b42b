"""One direction of an LSTM layer whose cell and state are kept within bounds, step by step (Peters et al. 2018, ELMo).

    c' = clip(f c + i g, ±cell);  h' = clip(P (o tanh(c')), ±state)

ELMo's weights were trained so; without the clips its vectors differ. Fused kernels do not know them, so this is a loop.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def clipped_lstm(
    x: Tensor, hidden: Tensor, cell: Tensor, weights: list[Tensor], clips: tuple[float, float], back: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """States at all steps, the last hidden state and the last cell. Shape: (L, B, D), (B, S), (B, C) -> (L, B, S), ...

    weights: as PyTorch's LSTM has them: W, U, their biases and, with projection, P; gates in the order i, f, g, o.
    """
    w, u, w_bias, u_bias, *projection = weights
    read = F.linear(x, w, w_bias + u_bias)  # what does not depend on the states, for all steps at once
    states: list[Tensor] = []
    for step in reversed(read.unbind()) if back else read.unbind():
        hidden, cell = _step(torch.addmm(step, hidden, u.t()), cell, projection, clips)
        states.append(hidden)
    return torch.stack(states[::-1] if back else states), hidden, cell


def _step(gates: Tensor, c: Tensor, projection: list[Tensor], clips: tuple[float, float]) -> tuple[Tensor, Tensor]:
    i, f, g, o = gates.chunk(4, -1)
    c = (torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)).clamp(-clips[0], clips[0])
    h = torch.sigmoid(o) * torch.tanh(c)
    if projection:
        h = F.linear(h, projection[0])
    return h.clamp(-clips[1], clips[1]), c
