"""ELMo's mix of layers (Peters et al. 2018, https://arxiv.org/abs/1802.05365, equation 1), with weights of its reader:

mix(h) = γ Σ_j softmax(s)_j h_j
"""

import torch
from torch import Tensor, nn


class ScalarMix(nn.Module):
    """Shape: (J, ..., D) -> (..., D)."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(layers))
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, stack: Tensor) -> Tensor:
        weights = self.scores.softmax(0).view(-1, *[1] * (stack.ndim - 1))
        return self.scale * (weights * stack).sum(0)
