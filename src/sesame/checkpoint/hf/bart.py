"""BART and mBART as Hugging Face writes them (Lewis et al. 2020, https://arxiv.org/abs/1910.13461; Liu et al. 2020,
https://arxiv.org/abs/2001.08210): the same but for the norms, which mBART has before each part and once more at the end.

Unusual there: the position tables have two rows in front that are never read; they are dropped, and written as zeros. The
output has a bias, `final_logits_bias`, that is kept with the weights and never trained; one of zeros is left out here. With
`tie_word_embeddings` false the halves have tables of their own; here they share one, so theirs must be equal. BART's classes
for texts and questions let the decoder read the text again (`backbones/decoded.py`); mBART's are left out.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sesame.backbones import DecodedConfig, EncoderDecoderConfig
from sesame.checkpoint.hf.shared import (
    AGAIN,
    both,
    decoded_head,
    demand,
    joined,
    one_table,
    read_activation,
    reads_again,
    speaks,
)
from sesame.checkpoint.names import Row
from sesame.objectives.decoder_head import DecoderHead

HEAD = "seq2seq"
SILENT = {
    "bart": {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2},
    "mbart": {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2},  # it starts with a language, which differs
}
LABELS = 3  # of a class for texts whose config.json is silent: BartConfig's (mBART's heads do not open)
CLASSES = {"bart": "Bart", "mbart": "MBart"}
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_new", "silu": "silu"}
UNREAD = 2  # rows before the positions
BIAS, OUTPUT, TOKENS = "final_logits_bias", "lm_head.weight", "model.shared.weight"
HALVES = ("encoder", "decoder")
COPIES = [f"model.{half}.embed_tokens.weight" for half in HALVES]


def tasks(config: EncoderDecoderConfig) -> tuple[str, ...]:
    return ("classify", "regress", "qa") if isinstance(config, DecodedConfig) else ()


def family(config: EncoderDecoderConfig, heads: set[str]) -> str | None:
    if isinstance(config, DecodedConfig) and config.order != "post":
        return None
    fits = heads <= {HEAD} and config.activation in ACTIVATIONS and config.positions == "learned"
    return ("bart" if config.order == "post" else "mbart") if fits else None


def write_config(config: EncoderDecoderConfig, heads: set[str], task: str | None = None) -> dict[str, Any]:
    kind = "bart" if config.order == "post" else "mbart"
    if isinstance(config, DecodedConfig):
        again = {"decoder_start_token_id": config.start}
        return write_halves(config, kind, f"Bart{AGAIN[task == 'qa']}") | SILENT[kind] | again
    model = CLASSES[kind] + ("ForConditionalGeneration" if HEAD in heads else "Model")
    return write_halves(config, kind, model) | SILENT[kind]


def write_halves(config: EncoderDecoderConfig, kind: str, model: str) -> dict[str, Any]:
    """What fairseq's children say of an encoder-decoder."""
    described: dict[str, Any] = {
        "architectures": [model],
        "model_type": kind,
        "is_encoder_decoder": True,
        "vocab_size": config.vocab,
        "d_model": config.width,
        "encoder_layers": config.depth,
        "decoder_layers": config.decoder_depth or config.depth,
        "num_hidden_layers": config.depth,
        "max_position_embeddings": config.max_length,
        "activation_function": ACTIVATIONS[config.activation],
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.inner_dropout,
        "scale_embedding": config.grow,
        "init_std": config.init,
        "forced_eos_token_id": None,  # silence would mean 2
        "tie_word_embeddings": True,
    }
    for half in HALVES:
        _, heads, inner = config.half(half == "decoder")
        described |= {f"{half}_attention_heads": heads, f"{half}_ffn_dim": inner}
    return described


def read_config(found: Mapping[str, Any], place: str) -> EncoderDecoderConfig:
    """Defaults are those of transformers' `BartConfig`, which are `MBartConfig`'s too."""
    pre = found.get("model_type") == "mbart"
    order = {"normalize_before": pre, "add_final_layer_norm": pre, "normalize_embedding": True}
    demand(found, {**order, "static_position_embeddings": False, "extra_pos_embeddings": UNREAD}, place)
    config = read_halves(found, place, positions="learned", order="pre" if pre else "post", embedding_norm=True)
    if not reads_again(found) or pre:  # mBART's decoder begins with the text's last token
        return config
    start = found.get("decoder_start_token_id")
    return DecodedConfig(
        **vars(config), start=SILENT["bart"]["decoder_start_token_id"] if start is None else int(start)
    )


def read_halves(found: Mapping[str, Any], place: str, **more: Any) -> EncoderDecoderConfig:
    """The settings that fairseq's children share; `more` are ours that tell them apart."""
    demand(found, {"is_encoder_decoder": True, "is_decoder": False, "add_bias_logits": False}, place)
    return EncoderDecoderConfig(
        vocab=int(found.get("vocab_size", 50265)),
        width=int(found.get("d_model", 1024)),
        depth=int(found.get("encoder_layers", 12)),
        heads=int(found.get("encoder_attention_heads", 16)),
        decoder_depth=int(found.get("decoder_layers", 12)),
        decoder_heads=int(found.get("decoder_attention_heads", 16)),
        inner=int(found.get("encoder_ffn_dim", 4096)),
        decoder_inner=int(found.get("decoder_ffn_dim", 4096)),
        max_length=int(found.get("max_position_embeddings", 1024)),
        activation=_activation(found, place),  # type: ignore[arg-type]
        grow=bool(found.get("scale_embedding", False)),
        dropout=float(found.get("dropout", 0.1)),
        attention_dropout=float(found.get("attention_dropout", 0.0)),
        inner_dropout=float(found.get("activation_dropout", 0.0)),
        init=float(found.get("init_std", 0.02)),
        glorot=False,
        **more,
    )


def _activation(found: Mapping[str, Any], place: str) -> str:
    key = "activation_function"
    return "silu" if found.get(key) in ("silu", "swish") else read_activation(found, key, place)


def clean(found: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    named = clean_halves(found, config)
    for half in HALVES:
        name = f"model.{half}.embed_positions.weight"
        if name in named:
            named[name] = named[name][UNREAD:]
    return named


def clean_halves(found: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    """One table of tokens, no versions; a bare model's parts get their prefix; a bias only if it says something."""
    bare = not any(name.startswith("model.") for name in found)
    named = {
        f"model.{name}" if bare and name not in (BIAS, OUTPUT) else name: tensor
        for name, tensor in found.items()
        if not name.endswith("coder.version")
    }
    tied = config.get("tie_word_embeddings", True) is not False
    if not tied and all(name in named for name in COPIES):
        named.pop(TOKENS, None)  # which nobody reads then
    one_table(named, TOKENS, [*COPIES, *([OUTPUT] if tied else [])])
    bias = named.pop(BIAS, None)
    if bias is not None and bool(bias.any()):
        named[BIAS] = bias.flatten()
    return named


def holds(head: DecoderHead, config: EncoderDecoderConfig) -> bool:
    """Whether its class computes such an output layer."""
    return head.scale == 1


def read_head(
    found: Mapping[str, Any], config: EncoderDecoderConfig, named: Mapping[str, Tensor]
) -> DecoderHead | None:
    if not speaks(found):
        return None
    if found.get("tie_word_embeddings", True) is False and OUTPUT not in named:
        raise ValueError(f"tie_word_embeddings is false, but there is no {OUTPUT} in the weights")
    bias = "fixed" if BIAS in named else "none"
    return DecoderHead(config.width, config.vocab, tied=OUTPUT not in named, bias=bias)  # type: ignore[arg-type]


def write_head(head: DecoderHead, described: dict[str, Any]) -> None:
    described["tie_word_embeddings"] = head.table is None


def finish(named: dict[str, Tensor], described: dict[str, Any]) -> None:
    for half in HALVES:
        name = f"model.{half}.embed_positions.weight"
        named[name] = torch.cat([named[name].new_zeros(UNREAD, named[name].shape[1]), named[name]])
    finish_halves(named, described)


def finish_halves(named: dict[str, Tensor], described: dict[str, Any]) -> None:
    """An untied output asks for a table of each half; the bias is a row; a bare model's parts have no prefix."""
    tokens = named[TOKENS]
    if not described["tie_word_embeddings"]:
        named |= {name: tokens.clone() for name in COPIES}
    if speaks(described):
        bias = named.get(BIAS)
        named[BIAS] = tokens.new_zeros(1, len(tokens)) if bias is None else bias[None].contiguous()
    elif not reads_again(described):
        for name in list(named):
            named[name.removeprefix("model.")] = named.pop(name)


def table(config: EncoderDecoderConfig, task: tuple[str, str] | None = None) -> list[Row]:
    rows = halves(config)
    for half in HALVES:
        rows.append(Row(f"backbone.{half}.positions.weight", (f"model.{half}.embed_positions.weight",)))
        rows += both(f"backbone.{half}.norm", f"model.{half}.layernorm_embedding")
        rows += both(f"backbone.{half}.final_norm", f"model.{half}.layer_norm") if config.order == "pre" else []
    return rows + decoded_head(task)


def halves(config: EncoderDecoderConfig) -> list[Row]:
    """All but positions and the norms outside of the blocks."""
    rows = [Row("backbone.tokens.weight", (TOKENS,), rows=config.vocab)]
    for half, depth in zip(HALVES, (config.depth, config.decoder_depth or config.depth), strict=True):
        for number in range(depth):
            ours, theirs = f"backbone.{half}.blocks.{number}", f"model.{half}.layers.{number}"
            rows += joined(f"{ours}.attention.qkv", *(f"{theirs}.self_attn.{part}_proj" for part in "qkv"))
            rows += both(f"{ours}.attention.out", f"{theirs}.self_attn.out_proj")
            rows += both(f"{ours}.attention_norm", f"{theirs}.self_attn_layer_norm")
            rows += _cross(ours, f"{theirs}.encoder_attn") if half == "decoder" else []
            rows += both(f"{ours}.feedforward.up", f"{theirs}.fc1")
            rows += both(f"{ours}.feedforward.down", f"{theirs}.fc2")
            rows += both(f"{ours}.feedforward_norm", f"{theirs}.final_layer_norm")
    return [*rows, Row(f"{HEAD}.table", (OUTPUT,), rows=config.vocab), Row(f"{HEAD}.bias", (BIAS,))]


def _cross(ours: str, theirs: str) -> list[Row]:
    return [
        *both(f"{ours}.cross.q", f"{theirs}.q_proj"),
        *joined(f"{ours}.cross.kv", f"{theirs}.k_proj", f"{theirs}.v_proj"),
        *both(f"{ours}.cross.out", f"{theirs}.out_proj"),
        *both(f"{ours}.cross_norm", f"{theirs}_layer_norm"),
    ]
