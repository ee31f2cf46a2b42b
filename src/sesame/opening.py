"""Opening a model folder to answer with: `sesame.load(folder)`; by which engine, in how many bits."""

from pathlib import Path

import torch

from sesame.backbones import Backbone, Encoder
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.onnx.engine import OnnxEngines, exported
from sesame.config import unknown
from sesame.errors import SesameError
from sesame.loaded import Loaded
from sesame.nn.packed import PRECISIONS, Precision, cpu_has, has_onednn
from sesame.progress import say
from sesame.train.precision import choose_machine

ENGINES = ("torch", "onnx")


def load(
    folder: str | Path,
    device: str = "auto",
    engine: str = "torch",
    precision: str = "fp32",
    accept: bool = False,
) -> Loaded:
    """Open a model folder of ours or of Hugging Face; with `engine` "onnx" also what `sesame convert --to onnx` wrote.

    `precision` bf16 or int8 answers in fewer bits (int8 on a CPU only); answers are compared with fp32 before the first
    are given, and refused if they differ too much, unless `accept`.
    """
    if engine not in ENGINES:
        raise SesameError(unknown(engine, dict.fromkeys(ENGINES), "--engine", "choice"))
    if precision not in PRECISIONS:
        raise SesameError(unknown(precision, dict.fromkeys(PRECISIONS), "--precision", "choice"))
    chosen: Precision = precision
    if engine == "onnx":
        return _load_graphs(Path(folder), device, chosen, accept)
    parts = load_parts(folder)
    machine = choose_machine(device)
    _check_precision(chosen, machine.device.type, parts.backbone)
    parts.to(machine.device)
    for module in (parts.backbone, *parts.heads.values(), *parts.tasks.values()):
        module.eval()
    return Loaded(parts, Path(folder), chosen, accept)


def _load_graphs(folder: Path, device: str, precision: Precision, accept: bool) -> Loaded:
    if device not in ("auto", "cpu"):
        raise SesameError(f"--engine onnx runs on the CPU; leave --device {device} out, or take --engine torch")
    # An exported folder has one precision, its own; that it is asked for by default means nothing.
    wanted = None if exported(folder) and precision == "fp32" else precision
    graphs = OnnxEngines(folder, wanted)
    return Loaded(graphs.parts, folder, precision, accept, onnx=True, graphs={precision: graphs})


def _check_precision(precision: Precision, device: str, backbone: Backbone) -> None:
    """Refuse what cannot be computed; say what does not pay."""
    if precision == "fp32":
        return
    if device == "cpu" and not isinstance(backbone, Encoder):
        raise SesameError(f"--precision {precision}: on a CPU this kind of model answers in fp32 only; leave it out")
    if next(backbone.parameters()).dtype != torch.float32:
        raise SesameError(f"--precision {precision}: the model's weights have 64 bits; leave it out")
    if precision == "int8" and (device != "cpu" or not has_onednn()):
        raise SesameError("--precision int8 is for x86 CPUs; take bf16 or fp32 here, or --device cpu")
    if precision == "bf16" and device == "cpu" and not cpu_has("bf16"):
        say("this CPU does not compute in bf16: fp32 is faster here, and int8 faster still")
