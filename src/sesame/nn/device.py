"""What a device can do."""

from importlib.util import find_spec

import torch


def has_triton(device: torch.device) -> bool:
    """Whether kernels can be compiled for this device: our own, and those of torch.compile."""
    return device.type == "cuda" and find_spec("triton") is not None
