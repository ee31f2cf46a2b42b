"""T5 as Hugging Face writes it, 1.0 and 1.1 (Raffel et al. 2020, https://arxiv.org/abs/1910.10683).

1.0 has ReLU, and tells tokens by the token table, from states that are multiplied by D^-0.5. 1.1 has a gated GELU and a
table of its own for the output, without the factor.

Unusual there: versions before 5 told both by `tie_word_embeddings`; version 5 has `scale_decoder_outputs` for the factor,
takes every output for tied, and unties it when the file holds two different tables. We write what all of them read: without
the factor the output's table is in the file, be it a copy. Relative positions sit in the first block of each half. There is
one dropout for everything; others are kept under "sesame". T5EncoderModel is the encoder alone, and
T5ForTokenClassification is built upon it; in its classes for texts and questions the decoder reads the text again.
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from sesame.backbones import DecodedConfig, EncoderDecoderConfig, EncoderHalfConfig
from sesame.checkpoint.heads import bias_of
from sesame.checkpoint.hf.shared import AGAIN, decoded_head, demand, head, one_table, reads_again, speaks
from sesame.checkpoint.names import Row
from sesame.errors import SesameError
from sesame.nn.feedforward import GATED
from sesame.objectives.decoder_head import DecoderHead

HEAD = "seq2seq"
SILENT = {"t5": {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}}
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_new", "silu": "silu", "geglu_tanh": "gated-gelu"}
ACTIVATIONS |= {"reglu": "gated-relu", "swiglu": "gated-silu"}
READ_ACTIVATIONS = {theirs: ours for ours, theirs in ACTIVATIONS.items()}
READ_ACTIVATIONS |= {"gated-gelu_new": "geglu_tanh", "swish": "silu", "gated-swish": "swiglu"}
POSITIONS = "layer.0.SelfAttention.relative_attention_bias.weight"
HALF, TAGS = "T5EncoderModel", "T5ForTokenClassification"  # classes that have an encoder only
INSIDE = "transformer."  # before the names of what classes for tasks are built upon
OUTPUT, TOKENS, HALVES = "lm_head.weight", "shared.weight", ("encoder", "decoder")
UNUSED = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"  # in old files; never read


def family(config: EncoderDecoderConfig, heads: set[str]) -> str | None:
    return "t5" if heads <= {HEAD} and config.activation in ACTIVATIONS else None


def tasks(config: EncoderDecoderConfig) -> tuple[str, ...]:
    if isinstance(config, DecodedConfig):
        return ("classify", "regress", "qa")
    return ("tag",) if isinstance(config, EncoderHalfConfig) else ()


def write_config(config: EncoderDecoderConfig, heads: set[str], task: str | None = None) -> dict[str, Any]:
    described = {
        "architectures": [_class(config, heads, task)],
        "model_type": "t5",
        "is_encoder_decoder": not isinstance(config, EncoderHalfConfig),
        "vocab_size": config.vocab,
        "d_model": config.width,
        "d_kv": config.head_size or config.width // config.heads,
        "d_ff": config.inner or 4 * config.width,
        "num_layers": config.depth,
        "num_decoder_layers": config.decoder_depth or config.depth,
        "num_heads": config.heads,
        "n_positions": config.max_length,
        "relative_attention_num_buckets": config.buckets,
        "relative_attention_max_distance": config.farthest,
        "dropout_rate": config.dropout,
        "layer_norm_epsilon": config.eps,
        "initializer_factor": 1.0,
        "feed_forward_proj": ACTIVATIONS[config.activation],
        "tie_word_embeddings": True,
        "scale_decoder_outputs": True,
        **SILENT["t5"],
    }
    if isinstance(config, DecodedConfig):
        described["decoder_start_token_id"] = config.start
    dropouts = {"attention_dropout": config.attention_dropout, "inner_dropout": config.inner_dropout}
    if set(dropouts.values()) != {config.dropout}:
        described["sesame"] = dropouts
    return described


def _class(config: EncoderDecoderConfig, heads: set[str], task: str | None) -> str:
    if isinstance(config, EncoderHalfConfig):
        return HALF if task is None else TAGS
    if isinstance(config, DecodedConfig):
        return f"T5{AGAIN[task == 'qa']}"
    return "T5ForConditionalGeneration" if HEAD in heads else "T5Model"


def read_config(found: Mapping[str, Any], place: str) -> EncoderDecoderConfig:
    """Defaults are those of transformers' `T5Config`."""
    half = bool({HALF, TAGS} & set(found.get("architectures") or []))  # old versions call it an encoder-decoder
    demand(found, {"is_decoder": False} | ({} if half else {"is_encoder_decoder": True}), place)
    act = found.get("feed_forward_proj", "relu")
    if act not in READ_ACTIVATIONS:
        listed = ", ".join(sorted(READ_ACTIVATIONS))
        raise SesameError(f"{place}: feed_forward_proj = {act!r} is not known here; known are {listed}")
    depth, dropout = int(found.get("num_layers", 6)), float(found.get("dropout_rate", 0.1))
    own = found.get("sesame")
    others: Mapping[str, Any] = own if isinstance(own, Mapping) else {}
    kind: Any = EncoderHalfConfig if half else EncoderDecoderConfig
    if reads_again(found):
        start = found.get("decoder_start_token_id")
        kind = partial(DecodedConfig, start=SILENT["t5"]["decoder_start_token_id"] if start is None else int(start))
    return kind(  # type: ignore[no-any-return]
        vocab=int(found.get("vocab_size", 32128)),
        width=int(found.get("d_model", 512)),
        depth=depth,
        heads=int(found.get("num_heads", 8)),
        decoder_depth=int(found.get("num_decoder_layers") or depth),
        inner=int(found.get("d_ff", 2048)),
        head_size=int(found.get("d_kv", 64)),
        max_length=int(found.get("n_positions", 512)),
        positions="relative",
        buckets=int(found.get("relative_attention_num_buckets", 32)),
        farthest=int(found.get("relative_attention_max_distance", 128)),
        order="pre",
        norm="rms",
        activation=READ_ACTIVATIONS[act],
        bias=False,
        grow=False,
        scaled=False,
        dropout=dropout,
        attention_dropout=float(others.get("attention_dropout", dropout)),
        inner_dropout=float(others.get("inner_dropout", dropout)),
        eps=float(found.get("layer_norm_epsilon", 1e-6)),
        glorot=False,
    )


def clean(found: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    named = {name.removeprefix(INSIDE): tensor for name, tensor in found.items() if name != UNUSED}
    own = named.pop(OUTPUT, None)
    one_table(named, TOKENS, [f"{half}.embed_tokens.weight" for half in HALVES])
    if own is not None and not torch.equal(named.setdefault(TOKENS, own), own):
        named[OUTPUT] = own
    return named


def holds(head: DecoderHead, config: EncoderDecoderConfig) -> bool:
    """Whether its class computes such an output layer."""
    scaled = math.isclose(head.scale, config.width**-0.5)
    return bias_of(head) == "none" and (head.scale == 1 or (scaled and head.table is None))


def read_head(
    found: Mapping[str, Any], config: EncoderDecoderConfig, named: Mapping[str, Tensor]
) -> DecoderHead | None:
    if not speaks(found):
        return None
    scaled = bool(found.get("scale_decoder_outputs", found.get("tie_word_embeddings", True) is not False))
    scale = config.width**-0.5 if scaled else 1.0
    return DecoderHead(config.width, config.vocab, tied=OUTPUT not in named, scale=scale)


def write_head(head: DecoderHead, described: dict[str, Any]) -> None:
    described["scale_decoder_outputs"] = described["tie_word_embeddings"] = head.scale != 1


def finish(named: dict[str, Tensor], described: dict[str, Any]) -> None:
    if described["architectures"][0] in (TAGS, f"T5{AGAIN[0]}"):
        for name in [name for name in named if not name.startswith("classif")]:
            named[INSIDE + name] = named.pop(name)
    if not speaks(described):
        return
    if not described["scale_decoder_outputs"] and OUTPUT not in named:
        named[OUTPUT] = named[TOKENS].clone()


def table(config: EncoderDecoderConfig, task: tuple[str, str] | None = None) -> list[Row]:
    rows = [Row("backbone.tokens.weight", (TOKENS,), rows=config.vocab)]
    depths = dict(zip(HALVES, (config.depth, config.decoder_depth or config.depth), strict=True))
    if isinstance(config, EncoderHalfConfig):
        del depths["decoder"]
    for half, depth in depths.items():
        rows.append(Row(f"backbone.{half}.bias.table.weight", (f"{half}.block.0.{POSITIONS}",)))
        rows.append(Row(f"backbone.{half}.final_norm.weight", (f"{half}.final_layer_norm.weight",)))
        for number in range(depth):
            rows += _block(config, f"backbone.{half}.blocks.{number}", f"{half}.block.{number}.layer", half)
    found = decoded_head(task) if isinstance(config, DecodedConfig) else head(task)
    return [*rows, *found, Row(f"{HEAD}.table", (OUTPUT,), rows=config.vocab)]


def _block(config: EncoderDecoderConfig, ours: str, theirs: str, half: str) -> list[Row]:
    def matrix(name: str, *parts: str) -> Row:
        return Row(f"{ours}.{name}.weight", tuple(f"{theirs}.{part}.weight" for part in parts))

    rows = [
        matrix("attention.qkv", *(f"0.SelfAttention.{part}" for part in "qkv")),
        matrix("attention.out", "0.SelfAttention.o"),
        matrix("attention_norm", "0.layer_norm"),
    ]
    if half == "decoder":
        rows += [
            matrix("cross.q", "1.EncDecAttention.q"),
            matrix("cross.kv", "1.EncDecAttention.k", "1.EncDecAttention.v"),
            matrix("cross.out", "1.EncDecAttention.o"),
            matrix("cross_norm", "1.layer_norm"),
        ]
    last = 2 if half == "decoder" else 1
    gated = config.activation in GATED
    up = (f"{last}.DenseReluDense.wi_0", f"{last}.DenseReluDense.wi_1") if gated else (f"{last}.DenseReluDense.wi",)
    return [
        *rows,
        matrix("feedforward.up", *up),
        matrix("feedforward.down", f"{last}.DenseReluDense.wo"),
        matrix("feedforward_norm", f"{last}.layer_norm"),
    ]
