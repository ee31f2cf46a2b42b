"""BERT as Hugging Face writes it: `BertModel`, `BertForMaskedLM`, `BertForPreTraining`, old and new names.

`megatron-bert` is the same with the norms before each half (pre-LN): what our `order = "pre"` opens as.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from sesame.backbones.encoder import EncoderConfig
from sesame.checkpoint.hf import shared
from sesame.checkpoint.hf.shared import ACTIVATIONS, both
from sesame.checkpoint.names import Row
from sesame.checkpoint.tasks import CLASSES as TASK_CLASSES

CLASSES = {"bert": "Bert", "megatron-bert": "MegatronBert"}
TASKS = ("classify", "regress", "tag", "qa", "choice")  # it has classes for all
BIAS, DECODER = "cls.predictions.bias", "cls.predictions.decoder"
LARGE = {  # MegatronBertConfig is the model of 345 million parameters
    "vocab_size": 29056,
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}


def family(config: EncoderConfig, heads: set[str]) -> str | None:
    if config.activation not in ACTIVATIONS or config.segments == 0:
        return None
    return {"post": "bert", "pre": "megatron-bert"}.get(config.order)


def model_class(heads: set[str], task: str | None) -> str:
    """The class, without the family's name before it."""
    if task is not None:
        return TASK_CLASSES[task]
    if "mlm" in heads:
        return "ForPreTraining" if "nsp" in heads else "ForMaskedLM"
    return "ForNextSentencePrediction" if "nsp" in heads else "Model"


def write_config(config: EncoderConfig, heads: set[str], task: str | None = None) -> dict[str, Any]:
    kind = family(config, heads)
    assert kind is not None
    return shared.write_encoder(config, kind, CLASSES[kind] + model_class(heads, task))


def read_config(found: Mapping[str, Any], place: str) -> EncoderConfig:
    """Defaults are those of transformers' `BertConfig` and `MegatronBertConfig`: old files leave much unsaid."""
    large = found.get("model_type") == "megatron-bert"
    return shared.read_encoder(found, place, LARGE if large else None, order="pre" if large else "post")


def clean(found: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    """Old TensorFlow names and bare `BertModel` files, in today's names; buffers and tied copies are left out."""
    named = shared.tidy(found, "bert.", ("embeddings.", "encoder.", "pooler."))
    shared.untie(named, config, "bert", BIAS, DECODER)
    return named


def finish(named: dict[str, Tensor], described: dict[str, Any]) -> None:
    shared.tell_untied(named, described, BIAS, DECODER)


def table(config: EncoderConfig, task: tuple[str, str] | None = None) -> list[Row]:
    """Backbone, then the heads: "mlm", "pooler", "nsp", and that of a task, given by name and kind."""
    rows = shared.embeddings(config, "bert.embeddings")
    if config.order == "pre":
        rows += both("backbone.final_norm", "bert.encoder.ln")
        for number in range(config.depth):
            ours, theirs = f"backbone.blocks.{number}", f"bert.encoder.layer.{number}"
            rows += shared.matrices(ours, theirs)
            rows += both(f"{ours}.attention_norm", f"{theirs}.attention.ln")
            rows += both(f"{ours}.feedforward_norm", f"{theirs}.ln")
    else:
        rows += shared.layers(config, "bert.encoder.layer")
    rows += both("mlm.dense", "cls.predictions.transform.dense")
    rows += both("mlm.norm", "cls.predictions.transform.LayerNorm")
    rows.append(Row("mlm.bias", (BIAS,)))
    rows.append(Row("mlm.table", (f"{DECODER}.weight",), rows=config.vocab))
    rows += both("pooler", "bert.pooler.dense")
    rows += both("nsp", "cls.seq_relationship")
    return rows + shared.head(task)
