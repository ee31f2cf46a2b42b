"""How well a run uses its machine: tokens a second, share of the peak, padding, waiting, memory.

    MFU = tokens/s * FLOPs a token / peak FLOP/s of the devices

Tokens are real ones, without padding, so padding lowers MFU as it should. The peak is that of the data sheet (dense, without
sparsity). A CPU has no honest data sheet: its peak is a large product that is timed once, and said to be measured.
"Wait" is the share of the time in which the loop waited for data. On a GPU the loop runs ahead of the device, so this is an
upper bound of what the device waited.
"""

import re
import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch

from sesame.backbones.flops import flops_per_token
from sesame.backbones.work import Generator, Work
from sesame.train.precision import Machine

# TFLOP/s of dense bf16 products with fp32 sums, from the makers' data sheets; fp16 where a card has no bf16. The first
# pattern that is found in the device's name counts.
PEAKS: tuple[tuple[str, float], ...] = (
    (r"B200", 2250),
    (r"H100 NVL", 835),
    (r"H100 PCIe", 756),
    (r"H20\b", 148),
    (r"H200|H100|H800", 989),
    (r"A100|A800", 312),
    (r"A30\b", 165),
    (r"A40\b", 150),
    (r"A10G", 70),
    (r"A10\b", 125),
    (r"L40S", 362),
    (r"L40\b", 181),
    (r"L4\b", 121),
    (r"RTX 6000 Ada", 364),
    (r"RTX A6000", 155),
    (r"RTX 5090", 210),
    (r"RTX 4090", 165),
    (r"RTX 3090", 71),
    (r"V100", 125),
    (r"T4\b", 65),
    (r"MI300X", 1307),
)
NO_TF32 = re.compile(r"V100|T4\b")
PROBE, TRIES = 1024, 6  # the product that a CPU's peak is measured with, and how often


@dataclass(frozen=True)
class Peak:
    """FLOP/s that a device can do at most in the precision of the run, and how we know."""

    flops: float | None
    source: Literal["data sheet", "measured", "unknown"]


def peak(machine: Machine) -> Peak:
    if machine.device.type == "cuda":
        return known_peak(torch.cuda.get_device_name(machine.device), machine.precision)
    if machine.device.type == "cpu":
        return Peak(_measured(machine.precision, torch.get_num_threads()), "measured")
    return Peak(None, "unknown")


def known_peak(name: str, precision: str) -> Peak:
    """By the device's name. In fp32 we let products run as TF32, half as fast as bf16 wherever it exists."""
    for pattern, tera in PEAKS:
        if re.search(pattern, name):
            if precision != "fp32":
                return Peak(tera * 1e12, "data sheet")
            if not NO_TF32.search(name):
                return Peak(tera / 2 * 1e12, "data sheet")
    return Peak(None, "unknown")


@cache
def _measured(precision: str, threads: int) -> float:
    """The fastest of a few large products; `threads` is what the answer holds for."""
    dtype = torch.float32 if precision == "fp32" else torch.bfloat16
    a, b = torch.ones(PROBE, PROBE, dtype=dtype), torch.ones(PROBE, PROBE, dtype=dtype)
    seconds = []
    for _ in range(TRIES):
        began = time.perf_counter()
        a @ b
        seconds.append(time.perf_counter() - began)
    return 2 * PROBE**3 / min(seconds)


def peak_memory(device: torch.device) -> int:
    """Bytes at most so far: of tensors on a GPU, of the whole process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024  # kilobytes on Linux


def work_of(objectives: Mapping[str, Any], length: int, progress: float | None = None) -> Work:
    """What a recipe's objectives do with a row; `progress` as in `corrupt`, the mean over the run if it is not given."""
    pair = bool({"nsp", "sop", "dialogue"} & set(objectives))
    masked = 0.0 if pair else None  # pairs alone look at [CLS], whoever else at everything
    if {"clm", "bilm"} & set(objectives):
        masked = 1.0
    if "plm" in objectives:
        order = objectives["plm"]
        return Work(length, 1 / order.every, part=order.part, both=order.backward > 0)
    if "span" in objectives:
        source, target = objectives["span"].room(length)
        return Work(source, answer=target / source)
    if "skip-thought" in objectives:
        return Work(length, answer=2.0)
    if "seq2seq" in objectives:
        return Work(length, times=2 if objectives["seq2seq"].agreement else 1)
    if "mass" in objectives:
        return Work(length, answer=objectives["mass"].rate)
    if "mlm" in objectives:
        config = objectives["mlm"]
        masked = config.rate
        if config.end_rate >= 0:
            masked += (config.end_rate - config.rate) * (0.5 if progress is None else progress)
    if "rtd" in objectives:
        config = objectives["rtd"]
        generator = Generator(config.generator_width, config.generator_depth, config.rate)
        return Work(length, None, pair, generator)
    return Work(length, masked, pair, part=getattr(objectives.get("clm"), "part", 0))


@dataclass(frozen=True)
class Account:
    """Figures of one stage; `devices` is over how many the tokens are spread."""

    flops: float  # a token
    peak: Peak
    device: torch.device
    devices: int = 1

    @classmethod
    def of(cls, config: Any, work: Work, machine: Machine, devices: int = 1) -> "Account":
        return cls(flops_per_token(config, work), peak(machine), machine.device, devices)

    def mfu(self, tokens_per_second: float) -> float | None:
        if self.peak.flops is None:
            return None
        return tokens_per_second * self.flops / (self.peak.flops * self.devices)

    def figures(self, tokens_per_second: float) -> dict[str, float]:
        """What `metrics.jsonl` gets beside the loop's own figures."""
        found: dict[str, float] = {"memory": peak_memory(self.device)}
        share = self.mfu(tokens_per_second)
        return found if share is None else {"mfu": share, **found}


def note(figures: Mapping[str, float]) -> str:
    """The same for the bar: what is not in `figures` is left out."""
    parts = [f"{rate_text(figures['tokens_per_second'])} tokens/s"]
    if "mfu" in figures:
        parts.append(f"{100 * figures['mfu']:.0f} % MFU")
    if "padding" in figures:
        parts.append(f"{100 * figures['padding']:.0f} % padding")
    if "wait" in figures:
        parts.append(f"{100 * figures['wait']:.1f} % wait")
    if "memory" in figures:
        parts.append(memory_text(figures["memory"]))
    return " · ".join(parts)


def rate_text(rate: float) -> str:
    return f"{rate / 1e6:.2f} M" if rate >= 1e6 else f"{rate / 1e3:.0f} k" if rate >= 1e5 else f"{rate / 1e3:.1f} k"


def memory_text(size: float) -> str:
    return f"{size / 1e9:.0f} GB" if size >= 1e10 else f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
