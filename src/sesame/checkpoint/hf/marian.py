"""Marian as Hugging Face writes it (Junczys-Dowmunt et al. 2018, https://arxiv.org/abs/1804.00344; the models of OPUS-MT).

BART's names without norms behind the embeddings, and with sinusoids for positions: sines in the first half of a row, cosines
in the second, computed in 32 bits. The padding token, which the decoder also reads first, is the last of the vocabulary.

Unusual there: the sinusoids, though computed, are looked for among the weights, and people are warned where they are missing.
So their table is written, and never read: in a file of 16 bits it is rounded.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from sesame.backbones import EncoderDecoderConfig
from sesame.checkpoint.hf import bart
from sesame.checkpoint.hf.bart import HALVES, HEAD, holds, read_head, write_head
from sesame.checkpoint.hf.shared import demand
from sesame.checkpoint.names import Row
from sesame.nn.positions import half_sinusoids

__all__ = ["HEAD", "holds", "read_head", "write_head"]  # as BART's

TASKS: tuple[str, ...] = ()
SILENT = {"marian": {"pad_token_id": 58100, "eos_token_id": 0, "decoder_start_token_id": 58100}}


def family(config: EncoderDecoderConfig, heads: set[str]) -> str | None:
    fits = heads <= {HEAD} and config.activation in bart.ACTIVATIONS and config.positions == "sinusoidal"
    return "marian" if fits else None


def write_config(config: EncoderDecoderConfig, heads: set[str], task: str | None = None) -> dict[str, Any]:
    pad = config.vocab - 1
    tokens = {"pad_token_id": pad, "bos_token_id": None, "eos_token_id": 0, "decoder_start_token_id": pad}
    described = bart.write_halves(config, "marian", "MarianMTModel" if HEAD in heads else "MarianModel")
    return described | tokens | {"decoder_vocab_size": config.vocab, "share_encoder_decoder_embeddings": True}


def read_config(found: Mapping[str, Any], place: str) -> EncoderDecoderConfig:
    wanted = {
        "normalize_before": False,
        "normalize_embedding": False,
        "add_final_layer_norm": False,
        "static_position_embeddings": True,
        "share_encoder_decoder_embeddings": True,
        "decoder_vocab_size": found.get("vocab_size"),
    }
    demand(found, wanted, place)
    return bart.read_halves({"vocab_size": 58101, **found}, place, positions="sinusoidal", order="post")


def clean(found: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    named = bart.clean_halves(found, config)
    return {name: tensor for name, tensor in named.items() if not name.endswith("embed_positions.weight")}


def finish(named: dict[str, Tensor], described: dict[str, Any]) -> None:
    for half in HALVES:
        table = half_sinusoids(described["max_position_embeddings"], described["d_model"])
        named[f"model.{half}.embed_positions.weight"] = table.to(named[bart.TOKENS])
    bart.finish_halves(named, described)


def table(config: EncoderDecoderConfig, task: tuple[str, str] | None = None) -> list[Row]:
    return bart.halves(config)
