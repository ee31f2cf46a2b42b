"""RoBERTa as Hugging Face writes it, and XLM-RoBERTa and CamemBERT, which compute the same under the same names.

Unusual there: positions are counted from the id of the padding token plus one, so the first rows of the position table are
never used (514 rows serve 512 tokens). They are dropped on import and put back as zeros on export. The classification head
has the pooler inside: `classifier.dense`, tanh, `classifier.out_proj`. The output head is GELU whatever `hidden_act` says,
so only models with GELU open.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sesame.backbones.encoder import EncoderConfig
from sesame.checkpoint.hf import shared
from sesame.checkpoint.hf.shared import both
from sesame.checkpoint.names import Row
from sesame.checkpoint.tasks import CLASSES as TASK_CLASSES
from sesame.errors import SesameError

TASKS = ("classify", "regress", "tag", "qa", "choice")
VOCABS = {"xlm-roberta": 30522, "camembert": 30522}  # of a config that does not say it; RoBERTa's is 50265
PAD = 1  # RoBERTa's own, where nothing else is said
POSITIONS = "roberta.embeddings.position_embeddings.weight"
BIAS, DECODER = "lm_head.bias", "lm_head.decoder"


def family(config: EncoderConfig, heads: set[str]) -> str | None:
    fits = config.activation == "gelu" and config.segments == 1 and "nsp" not in heads
    return "roberta" if fits else None


def write_config(config: EncoderConfig, heads: set[str], task: str | None = None) -> dict[str, Any]:
    model = TASK_CLASSES[task] if task is not None else "ForMaskedLM" if "mlm" in heads else "Model"
    described = shared.write_encoder(config, "roberta", "Roberta" + model)
    return described | {"pad_token_id": PAD, "max_position_embeddings": config.max_length + PAD + 1}


def read_config(found: Mapping[str, Any], place: str) -> EncoderConfig:
    shared.read_activation(found, "hidden_act", place, known=("gelu",))
    config = shared.read_encoder(found, place, {"vocab_size": VOCABS.get(str(found.get("model_type")), 50265)})
    length = config.max_length - _unused(found)
    if length < 1:
        raise SesameError(
            f"{place}: max_position_embeddings leaves no positions behind pad_token_id; copy the file again"
        )
    return EncoderConfig(**{**vars(config), "max_length": length})


def clean(found: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    named = shared.tidy(found, "roberta.", ("embeddings.", "encoder.", "pooler."))
    if POSITIONS in named:
        named[POSITIONS] = named[POSITIONS][_unused(config) :]
    shared.untie(named, config, "roberta", BIAS, DECODER)
    return named


def finish(named: dict[str, Tensor], described: dict[str, Any]) -> None:
    """Rows that are never looked at go before the positions, as many as the id of the padding asks for."""
    rows = named[POSITIONS]
    named[POSITIONS] = torch.cat([rows.new_zeros(_unused(described), rows.shape[1]), rows])
    described["max_position_embeddings"] = len(named[POSITIONS])
    shared.tell_untied(named, described, BIAS, DECODER)


def _unused(described: Mapping[str, Any]) -> int:
    pad = described.get("pad_token_id")
    return (PAD if pad is None else int(pad)) + 1


def table(config: EncoderConfig, task: tuple[str, str] | None = None) -> list[Row]:
    rows = shared.embeddings(config, "roberta.embeddings")
    rows += shared.layers(config, "roberta.encoder.layer")
    rows += both("mlm.dense", "lm_head.dense")
    rows += both("mlm.norm", "lm_head.layer_norm")
    rows.append(Row("mlm.bias", (BIAS,)))
    rows.append(Row("mlm.table", (f"{DECODER}.weight",), rows=config.vocab))
    if task is not None and task[1] in ("classify", "regress"):
        return rows + both("pooler", "classifier.dense") + both(task[0], "classifier.out_proj")
    return rows + both("pooler", "roberta.pooler.dense") + shared.head(task)
