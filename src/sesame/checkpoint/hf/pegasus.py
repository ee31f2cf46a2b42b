"""PEGASUS as Hugging Face writes it (Zhang et al. 2020, https://arxiv.org/abs/1912.08777).

Marian's sinusoids with mBART's norms: before each part, and once more at the end of each half. So it is also how the
Transformer of 2017 opens there if it was trained with its norms first (`--set backbone.order=pre`).
"""

from collections.abc import Mapping
from typing import Any

from sesame.backbones import EncoderDecoderConfig
from sesame.checkpoint.hf import bart
from sesame.checkpoint.hf.bart import HALVES, HEAD, holds, read_head, write_head
from sesame.checkpoint.hf.marian import clean, finish
from sesame.checkpoint.hf.shared import both, demand
from sesame.checkpoint.names import Row

__all__ = ["HEAD", "clean", "finish", "holds", "read_head", "write_head"]  # as BART's and Marian's

TASKS: tuple[str, ...] = ()
SILENT = {"pegasus": {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}}


def family(config: EncoderDecoderConfig, heads: set[str]) -> str | None:
    fits = heads <= {HEAD} and config.activation in bart.ACTIVATIONS and config.positions == "sinusoidal"
    return "pegasus" if fits and config.order == "pre" else None


def write_config(config: EncoderDecoderConfig, heads: set[str], task: str | None = None) -> dict[str, Any]:
    model = "PegasusForConditionalGeneration" if HEAD in heads else "PegasusModel"
    return bart.write_halves(config, "pegasus", model) | SILENT["pegasus"]


def read_config(found: Mapping[str, Any], place: str) -> EncoderDecoderConfig:
    """Published files say more of themselves than transformers reads; it must be what the class computes."""
    wanted = {
        "normalize_before": True,
        "normalize_embedding": False,
        "add_final_layer_norm": True,
        "static_position_embeddings": True,
    }
    demand(found, wanted, place)
    return bart.read_halves(found, place, positions="sinusoidal", order="pre")


def table(config: EncoderDecoderConfig, task: tuple[str, str] | None = None) -> list[Row]:
    ends = [row for half in HALVES for row in both(f"backbone.{half}.final_norm", f"model.{half}.layer_norm")]
    return [*bart.halves(config), *ends]
