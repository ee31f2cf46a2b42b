"""ALBERT as Hugging Face writes it: narrow embeddings, one layer used again and again, sentence order beside masked tokens.

Where embeddings are as wide as the layers there is a square matrix between them all the same (`square`). Not supported:
several groups of layers.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from sesame.backbones.encoder import EncoderConfig
from sesame.checkpoint.hf import shared
from sesame.checkpoint.hf.shared import ACTIVATIONS, both, joined
from sesame.checkpoint.names import Row
from sesame.checkpoint.tasks import CLASSES as TASK_CLASSES
from sesame.progress import say

TASKS = ("classify", "regress", "tag", "qa", "choice")
BIAS, DECODER, ORDER = "predictions.bias", "predictions.decoder", "sop_classifier.classifier"
SILENT: dict[str, Any] = {  # AlbertConfig is the xxlarge model
    "vocab_size": 30000,
    "hidden_size": 4096,
    "num_attention_heads": 64,
    "intermediate_size": 16384,
    "hidden_act": "gelu_new",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def family(config: EncoderConfig, heads: set[str]) -> str | None:
    matrix = config.square or config.embedding_width not in (0, config.width)
    fits = config.share == "all" and matrix and config.activation in ACTIVATIONS and config.segments > 0
    return "albert" if fits else None


def write_config(config: EncoderConfig, heads: set[str], task: str | None = None) -> dict[str, Any]:
    if task is not None:
        model = TASK_CLASSES[task]
    elif "mlm" in heads:
        model = "ForPreTraining" if "sop" in heads else "ForMaskedLM"
    else:
        model = "Model"
    described = shared.write_encoder(config, "albert", "Albert" + model)
    width = config.embedding_width or config.width
    return described | {"embedding_size": width, "num_hidden_groups": 1, "inner_group_num": 1}


def read_config(found: Mapping[str, Any], place: str) -> EncoderConfig:
    shared.demand(found, {"num_hidden_groups": 1, "inner_group_num": 1}, place)
    narrow = int(shared.read_number(found, "embedding_size", place, 128))
    square = narrow == shared.read_number(found, "hidden_size", place, SILENT["hidden_size"])
    return shared.read_encoder(found, place, SILENT, share="all", embedding_width=narrow, square=square)


def clean(found: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    named = shared.tidy(found, "albert.", ("embeddings.", "encoder.", "pooler."))
    shared.untie(named, config, "albert", BIAS, DECODER)
    order = named.get(f"{ORDER}.weight")
    if order is not None and len(order) != 2:  # the class there has as many as config.json has labels
        say(f"the head of sentence order has {len(order)} outputs (num_labels), not two; it is left out")
        named = {name: tensor for name, tensor in named.items() if not name.startswith(ORDER)}
    return named


def finish(named: dict[str, Tensor], described: dict[str, Any]) -> None:
    shared.tell_untied(named, described, BIAS, DECODER)


def table(config: EncoderConfig, task: tuple[str, str] | None = None) -> list[Row]:
    ours, theirs = "backbone.blocks.0", "albert.encoder.albert_layer_groups.0.albert_layers.0"
    rows = shared.embeddings(config, "albert.embeddings")
    rows += both("backbone.embeddings.project", "albert.encoder.embedding_hidden_mapping_in")
    rows += joined(f"{ours}.attention.qkv", *(f"{theirs}.attention.{part}" for part in ("query", "key", "value")))
    rows += both(f"{ours}.attention.out", f"{theirs}.attention.dense")
    rows += both(f"{ours}.attention_norm", f"{theirs}.attention.LayerNorm")
    rows += both(f"{ours}.feedforward.up", f"{theirs}.ffn")
    rows += both(f"{ours}.feedforward.down", f"{theirs}.ffn_output")
    rows += both(f"{ours}.feedforward_norm", f"{theirs}.full_layer_layer_norm")
    rows += both("mlm.dense", "predictions.dense")
    rows += both("mlm.norm", "predictions.LayerNorm")
    rows.append(Row("mlm.bias", (BIAS,)))
    rows.append(Row("mlm.table", (f"{DECODER}.weight",), rows=config.vocab))
    rows += both("pooler", "albert.pooler")
    rows += both("sop", ORDER)
    return rows + shared.head(task)
