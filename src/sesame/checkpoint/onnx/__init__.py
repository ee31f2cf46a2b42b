"""Export: a folder that ONNX Runtime, optimum and `sesame.load(folder, engine="onnx")` open.

    model.onnx  config.json  tokenizer.json  tokenizer_config.json  special_tokens_map.json  README.md

Nothing is written that was not checked: the graph answers sample texts beside our model first, see `check.py`.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from sesame import __version__
from sesame.checkpoint.folder import OWN, Parts
from sesame.checkpoint.hf import find_family
from sesame.checkpoint.onnx.check import BAR, LIMIT, SAMPLES, agreement, ask, random_batch, sample_batches
from sesame.checkpoint.onnx.engine import FILE, OnnxEngine, check_precision
from sesame.checkpoint.onnx.heads import AS_IT_IS, EMBED, FILL, Head, build_model
from sesame.checkpoint.onnx.int8 import quantized
from sesame.checkpoint.saving import has_plain_head, special_ids, wanted_family
from sesame.checkpoint.tasks import describe, leading
from sesame.errors import SesameError
from sesame.files import write_json, write_whole
from sesame.tasks import TaskConfig, build_task


@dataclass(frozen=True)
class Report:
    """What the check found."""

    difference: float  # the largest, of the graph in 32 bits
    agreement: float | None = None  # of the graph in 8 bits
    measure: str = ""  # what the agreement is

    def sentence(self) -> str:
        said = f"largest difference to PyTorch {self.difference:.1e}"
        return said if self.agreement is None else f"{said}; int8 beside fp32: {self.measure} {self.agreement:.4f}"


def export(folder: Path, parts: Parts, head: Head, precision: str = "fp32", texts: Sequence[str] = SAMPLES) -> Report:
    """Write the files into `folder`, which exists; the caller makes it appear in one piece.

    `texts` are what graph and model are compared on; below the bar an error is raised and no graph is left.
    """
    check_precision(precision)
    model = build_model(parts, head)
    batches = sample_batches(parts, texts)
    pairs = ask(parts, OnnxEngine.of(parts, head, model.SerializeToString()), [*batches, random_batch(parts)])
    report = Report(pairs.difference())
    if not report.difference <= LIMIT:  # also when it is not a number
        raise SesameError(
            f"the ONNX graph differs from the model by {report.difference:.1e}, more than {LIMIT:g}, and was not kept; "
            + AS_IT_IS
        )
    if precision == "int8":
        model = quantized(model)
        pairs = ask(parts, OnnxEngine.of(parts, head, model.SerializeToString()), batches)
        multi = head.name in parts.tasks and parts.tasks[head.name].config.multi
        report = Report(report.difference, *agreement(head, multi, pairs))
        if report.agreement is None or not report.agreement >= BAR:
            raise SesameError(
                f"in int8 the model answers too differently: {report.measure} {report.agreement:.2f}, at least {BAR} is "
                "wanted; take --precision fp32, or check it on texts of your own with --check FILE"
            )
    write_json(folder / "config.json", describe_export(parts, head, precision))
    write_whole(folder / "README.md", _card(parts, head, precision, report))
    if parts.tokenizer is not None:
        parts.tokenizer.save(folder)
    (folder / FILE).write_bytes(model.SerializeToString())
    return report


def describe_export(parts: Parts, head: Head, precision: str) -> dict[str, Any]:
    """config.json: what transformers says of such a model where it has a class for it, and all that we must remember."""
    config = parts.backbone.config
    tasks = {}
    if head.name in parts.tasks:
        kept = replace(parts.tasks[head.name].config, scale=(0.0, 1.0))  # the graph has it in its weights
        tasks = {head.name: build_task(head.name, kept, parts.backbone)}
    heads = {"mlm"} & set(parts.heads) if head.kind == FILL else set[str]()
    family = find_family(config, heads, wanted_family(parts), has_plain_head(parts))
    if family is None:
        described: dict[str, Any] = {"model_type": OWN, "architectures": ["SesameEncoder"], "encoder": asdict(config)}
        described |= describe(tasks, None) | _labels(tasks)
    else:
        lead = leading(tasks, family[1], config)
        described = family[1].write_config(config, heads, None if lead is None else lead.config.kind)
        described |= describe(tasks, lead) | _labels(tasks)
    if parts.tokenizer is not None:
        described |= special_ids(parts.tokenizer)
    ours = {"head": asdict(head), "precision": precision, "encoder": asdict(config)}
    described["sesame"] = {**described.get("sesame", {}), "onnx": ours}
    return described


def _labels(tasks: dict[str, Any]) -> dict[str, Any]:
    """The names of labels, also where transformers has no class for the head."""
    labels = next((task.config.labels for task in tasks.values()), ())
    if not labels:
        return {}
    return {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }


_OUTPUTS = {
    "tag": "`logits` (batch, length, tags)",
    "qa": "`start_logits` and `end_logits` (batch, length)",
    "choice": "`logits` (batch, options); the inputs are (batch, options, length)",
    FILL: "`logits` (batch, length, vocabulary)",
    EMBED: "`sentence_embedding` (batch, width) and the states of every token (batch, length, width)",
}


def _card(parts: Parts, head: Head, precision: str, report: Report) -> str:
    """README.md of the folder."""
    inputs = ["input_ids", "attention_mask", *(["token_type_ids"] if parts.backbone.config.segments else [])]
    config: TaskConfig | None = parts.tasks[head.name].config if head.name in parts.tasks else None
    heat = ""
    if config is not None and config.temperature != 1.0:
        heat = f"\nDivide the logits by {config.temperature:g} before softmax or sigmoid: then probabilities are calibrated."
    return f"""---
library_name: onnx
tags: [sesame, onnx, {head.kind}]
---
# {head.name}: {head.kind} as ONNX ({precision}), written by Sesame {__version__}

Inputs (64-bit, batch and length are free): {", ".join(f"`{name}`" for name in inputs)}.
Outputs: {_OUTPUTS.get(head.kind, "`logits` (batch, labels)")}.{heat}

Checked when it was written: {report.sentence()}.

    sesame.load(folder, engine="onnx")                                     # texts in, answers out
    onnxruntime.InferenceSession("{FILE}").run(None, {{"input_ids": ...}})   # ids in, numbers out
"""
