"""ELECTRA as Hugging Face writes it: the discriminator, whose head "rtd" tells replaced tokens, or the generator with "mlm".

Embeddings may be narrower than the layers. There is no pooler: each class for whole texts has one of its own, with GELU where
BERT's has tanh, and under a name of its own. The generator's head is GELU whatever `hidden_act` says, so only models with
GELU open.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from sesame.backbones.encoder import EncoderConfig
from sesame.checkpoint.hf import shared
from sesame.checkpoint.hf.shared import both
from sesame.checkpoint.names import Row
from sesame.checkpoint.tasks import CLASSES as TASK_CLASSES

TASKS = ("classify", "regress", "tag", "qa", "choice")
SQUEEZE = "gelu"
SUMMARY = {"summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"}  # of ForMultipleChoice
BIAS, DECODER = "generator_lm_head.bias", "generator_lm_head"
SILENT = {"hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024}  # ElectraConfig is the small model


def unlike(found: Mapping[str, Any]) -> str:
    return shared.odd_summary(found, SUMMARY, ("ForMultipleChoice",))


def family(config: EncoderConfig, heads: set[str]) -> str | None:
    return "electra" if config.activation == "gelu" and config.segments > 0 else None


def write_config(config: EncoderConfig, heads: set[str], task: str | None = None) -> dict[str, Any]:
    if task is not None:
        model = TASK_CLASSES[task]
    else:
        model = "ForPreTraining" if "rtd" in heads else "ForMaskedLM" if "mlm" in heads else "Model"
    described = shared.write_encoder(config, "electra", "Electra" + model)
    return described | {"embedding_size": config.embedding_width or config.width}


def read_config(found: Mapping[str, Any], place: str) -> EncoderConfig:
    shared.read_activation(found, "hidden_act", place, known=("gelu",))
    narrow = int(shared.read_number(found, "embedding_size", place, 128))
    return shared.read_encoder(found, place, SILENT, embedding_width=narrow)


def clean(found: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    named = shared.tidy(found, "electra.", ("embeddings.", "embeddings_project.", "encoder."))
    shared.untie(named, config, "electra", BIAS, DECODER)
    return named


def finish(named: dict[str, Tensor], described: dict[str, Any]) -> None:
    shared.tell_untied(named, described, BIAS, DECODER)


def table(config: EncoderConfig, task: tuple[str, str] | None = None) -> list[Row]:
    rows = shared.embeddings(config, "electra.embeddings")
    rows += both("backbone.embeddings.project", "electra.embeddings_project")
    rows += shared.layers(config, "electra.encoder.layer")
    rows += both("rtd.dense", "discriminator_predictions.dense")
    rows += both("rtd.out", "discriminator_predictions.dense_prediction")
    rows += both("mlm.dense", "generator_predictions.dense")
    rows += both("mlm.norm", "generator_predictions.LayerNorm")
    rows.append(Row("mlm.bias", (BIAS,)))
    rows.append(Row("mlm.table", (f"{DECODER}.weight",), rows=config.vocab))
    if task is not None and task[1] in ("classify", "regress"):
        return rows + both(f"{task[0]}.pooler", "classifier.dense") + both(task[0], "classifier.out_proj")
    if task is not None and task[1] == "choice":
        rows += both(f"{task[0]}.pooler", "sequence_summary.summary")
    return rows + shared.head(task)
