"""ERNIE (Baidu) as Hugging Face writes it: BERT, with a table of task types in versions 2 and 3.

Their models are asked with task type 0 unless told otherwise. A row of a segment is added to every token, and so is that of
task type 0, so on import it goes into every row of the segments: exactly the same sums. It is not written again.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from sesame.backbones.encoder import EncoderConfig
from sesame.checkpoint.hf import bert, shared
from sesame.checkpoint.names import Row

TASKS = bert.TASKS
finish = bert.finish
SEGMENTS = "ernie.embeddings.token_type_embeddings.weight"
TASK_TYPES = "ernie.embeddings.task_type_embeddings.weight"


def family(config: EncoderConfig, heads: set[str]) -> str | None:
    return "ernie" if bert.family(config, heads) == "bert" else None


def write_config(config: EncoderConfig, heads: set[str], task: str | None = None) -> dict[str, Any]:
    described = shared.write_encoder(config, "ernie", "Ernie" + bert.model_class(heads, task))
    return described | {"use_task_id": False}


def read_config(found: Mapping[str, Any], place: str) -> EncoderConfig:
    return shared.read_encoder(found, place)


def clean(found: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    named = shared.tidy(found, "ernie.", ("embeddings.", "encoder.", "pooler."))
    types = named.pop(TASK_TYPES, None)
    if types is not None and config.get("use_task_id", False):
        named[SEGMENTS] = shared.wide(named[SEGMENTS]) + types[0]
    shared.untie(named, config, "ernie", bert.BIAS, bert.DECODER)
    return named


def table(config: EncoderConfig, task: tuple[str, str] | None = None) -> list[Row]:
    """BERT's, under another prefix."""

    def ernie(name: str) -> str:
        return f"ernie.{name.removeprefix('bert.')}" if name.startswith("bert.") else name

    return [Row(row.ours, tuple(map(ernie, row.theirs)), row.rows) for row in bert.table(config, task)]
