"""Where and in what numbers a model computes."""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Literal, get_args

import torch

from sesame.errors import SesameError

Precision = Literal["auto", "fp32", "bf16", "mixed"]


@dataclass(frozen=True)
class Machine:
    """A device and the numbers used on it. Weights and optimiser always stay in fp32; the rest is for the computation.

    - bf16: on a GPU everything between the weights and the loss, see `shadow.py`; elsewhere the same as mixed
    - mixed: matrix products in bf16, norms and sums of layers in fp32 (PyTorch's autocast)
    """

    device: torch.device
    precision: Literal["fp32", "bf16", "mixed"]

    @property
    def shadow(self) -> bool:
        return self.precision == "bf16" and self.device.type == "cuda"

    @contextmanager
    def autocast(self) -> Iterator[None]:
        """Around every pass of a model."""
        if self.precision == "fp32":
            yield
        else:
            with _attention(self.device), torch.autocast(self.device.type, dtype=torch.bfloat16):
                yield


def choose_machine(device: str = "auto", precision: Precision = "auto") -> Machine:
    """`auto` takes the GPU if there is one, and bf16 where the hardware computes in it."""
    if precision not in get_args(Precision):
        raise SesameError(f"--precision {precision}: must be auto, fp32, bf16 or mixed")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(device)
        if chosen.type not in ("cpu", "cuda", "mps") or (chosen.type == "cpu" and chosen.index):
            raise RuntimeError(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError) as error:
        raise SesameError(f"device {device!r} cannot be used here; take cpu, or auto to choose") from error
    if precision == "auto":
        precision = "bf16" if _fast_bf16(chosen) else "fp32"
    if chosen.type == "cpu":
        keep_memory()
    if chosen.type == "cuda":
        torch.set_float32_matmul_precision("high")
    return Machine(chosen, precision)


def keep_memory() -> None:
    """Let the C library keep freed memory for the next step instead of giving it back to the system.

    A training step frees and takes hundreds of megabytes; by default each of those pages is handed over empty again by the
    kernel, which costs up to a quarter of a step on a CPU. Only glibc has this switch; elsewhere nothing happens.
    """
    mmap_threshold, trim_threshold = -3, -1  # M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of malloc.h
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        if hasattr(library, "mallopt"):
            library.mallopt(mmap_threshold, 1 << 30)
            library.mallopt(trim_threshold, (1 << 31) - 1)


def _fast_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    amx = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return device.type == "cpu" and amx is not None and bool(amx())


def _attention(device: torch.device) -> AbstractContextManager[None]:
    """From Hopper on cuDNN's kernel goes first: at length 512 a step is 6 % faster than with flash, docs/log.md."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device)[0] < 9:
        return nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    order = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    return sdpa_kernel(order, set_priority=True)
