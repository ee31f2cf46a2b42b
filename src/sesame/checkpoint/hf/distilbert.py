"""DistilBERT as Hugging Face writes it: BERT's layers under names of its own, without segments and without a pooler.

Each class for whole texts has a pooler of its own, with ReLU where BERT's has tanh. The norms' eps is 1e-12 there, always.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from sesame.backbones.encoder import EncoderConfig
from sesame.checkpoint.hf import shared
from sesame.checkpoint.hf.shared import ACTIVATIONS, both, joined
from sesame.checkpoint.names import Row
from sesame.checkpoint.tasks import CLASSES as TASK_CLASSES

TASKS = ("classify", "regress", "tag", "qa", "choice")
SQUEEZE = "relu"
BIAS, DECODER = "vocab_projector.bias", "vocab_projector"


def family(config: EncoderConfig, heads: set[str]) -> str | None:
    return "distilbert" if config.activation in ACTIVATIONS and config.segments == 0 else None


def write_config(config: EncoderConfig, heads: set[str], task: str | None = None) -> dict[str, Any]:
    model = TASK_CLASSES[task] if task is not None else "ForMaskedLM" if "mlm" in heads else "Model"
    return {
        "architectures": ["DistilBert" + model],
        "model_type": "distilbert",
        "vocab_size": config.vocab,
        "dim": config.width,
        "n_layers": config.depth,
        "n_heads": config.heads,
        "hidden_dim": config.inner or 4 * config.width,
        "activation": ACTIVATIONS[config.activation],
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "max_position_embeddings": config.max_length,
        "sinusoidal_pos_embds": False,
        "initializer_range": 0.02,
        "tie_word_embeddings": True,
    }


def read_config(found: Mapping[str, Any], place: str) -> EncoderConfig:
    """Sinusoidal positions are in the file as a table, so they open as one."""
    return EncoderConfig(
        vocab=int(found.get("vocab_size", 30522)),
        width=int(found.get("dim", 768)),
        depth=int(found.get("n_layers", 6)),
        heads=int(found.get("n_heads", 12)),
        inner=int(found.get("hidden_dim", 3072)),
        max_length=int(found.get("max_position_embeddings", 512)),
        segments=0,
        activation=shared.read_activation(found, "activation", place),  # type: ignore[arg-type]
        dropout=float(found.get("dropout", 0.1)),
        attention_dropout=float(found.get("attention_dropout", 0.1)),
    )


def clean(found: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    named = shared.tidy(found, "distilbert.", ("embeddings.", "transformer."))
    shared.untie(named, config, "distilbert", BIAS, DECODER)
    return named


def finish(named: dict[str, Tensor], described: dict[str, Any]) -> None:
    shared.tell_untied(named, described, BIAS, DECODER)


def table(config: EncoderConfig, task: tuple[str, str] | None = None) -> list[Row]:
    rows = [row for row in shared.embeddings(config, "distilbert.embeddings") if "segments" not in row.ours]
    for number in range(config.depth):
        ours, theirs = f"backbone.blocks.{number}", f"distilbert.transformer.layer.{number}"
        rows += joined(f"{ours}.attention.qkv", *(f"{theirs}.attention.{part}_lin" for part in ("q", "k", "v")))
        rows += both(f"{ours}.attention.out", f"{theirs}.attention.out_lin")
        rows += both(f"{ours}.attention_norm", f"{theirs}.sa_layer_norm")
        rows += both(f"{ours}.feedforward.up", f"{theirs}.ffn.lin1")
        rows += both(f"{ours}.feedforward.down", f"{theirs}.ffn.lin2")
        rows += both(f"{ours}.feedforward_norm", f"{theirs}.output_layer_norm")
    rows += both("mlm.dense", "vocab_transform")
    rows += both("mlm.norm", "vocab_layer_norm")
    rows.append(Row("mlm.bias", (BIAS,)))
    rows.append(Row("mlm.table", (f"{DECODER}.weight",), rows=config.vocab))
    if task is not None and task[1] not in ("tag", "qa"):
        rows += both(f"{task[0]}.pooler", "pre_classifier")
    return rows + shared.head(task)
