"""Norms by name: LayerNorm (Ba et al. 2016), and RMSNorm (Zhang & Sennrich 2019), which neither centers nor shifts.

layer: g (x - mean) / √(variance + eps) + b        rms: g x / √(mean of squares + eps)
"""

from torch import nn


def make_norm(kind: str, width: int, eps: float, bias: bool = True) -> nn.LayerNorm | nn.RMSNorm:
    return nn.RMSNorm(width, eps=eps) if kind == "rms" else nn.LayerNorm(width, eps=eps, bias=bias)
