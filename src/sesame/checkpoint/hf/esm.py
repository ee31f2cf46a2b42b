"""ESM as Hugging Face writes it: the one encoder there with norms first, rotary positions, biases and GELU.

It was made for proteins (Lin et al. 2022), but nothing in it is about proteins; our `order = "pre"` with
`positions = "rotary"` and no segments computes the same.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sesame.backbones.encoder import EncoderConfig
from sesame.checkpoint.hf.shared import both, head, matrices, tie, today
from sesame.checkpoint.names import Row
from sesame.checkpoint.tasks import CLASSES as TASK_CLASSES
from sesame.errors import SesameError

TASKS = ("classify", "regress", "tag")
BASE = 10000.0  # of the angles, when a config is silent: files before transformers 5 are, always
TOKENS, DECODER = "esm.embeddings.word_embeddings.weight", "lm_head.decoder.weight"


def family(config: EncoderConfig, heads: set[str]) -> str | None:
    fits = (
        config.order == "pre"
        and config.positions == "rotary"
        and config.segments == 0
        and config.bias
        and config.activation == "gelu"
        and config.share == "none"
        and config.embedding_width in (0, config.width)
        and heads <= {"mlm", "pooler"}
    )
    return "esm" if fits else None


def write_config(config: EncoderConfig, heads: set[str], task: str | None = None) -> dict[str, Any]:
    model = TASK_CLASSES[task] if task is not None else "ForMaskedLM" if "mlm" in heads else "Model"
    return {
        "architectures": ["Esm" + model],
        "model_type": "esm",
        "vocab_size": config.vocab,
        "hidden_size": config.width,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.heads,
        "intermediate_size": config.inner or 4 * config.width,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "max_position_embeddings": config.max_length,
        "layer_norm_eps": config.eps,
        "position_embedding_type": "rotary",
        "rope_theta": config.rotary_base,
        "emb_layer_norm_before": False,
        "token_dropout": False,
        "is_folding_model": False,
        "pad_token_id": 0,  # the class insists on one; a tokenizer's own takes its place
        "initializer_range": config.init,
        "tie_word_embeddings": True,
    }


def read_config(found: Mapping[str, Any], place: str) -> EncoderConfig:
    wanted = {
        "position_embedding_type": "rotary",
        "emb_layer_norm_before": False,
        "token_dropout": False,
        "is_folding_model": False,
        "is_decoder": False,
        "add_cross_attention": False,
    }
    for key, value in wanted.items():
        if (found.get(key) or False) != (value or False):
            raise SesameError(f"{place}: {key} = {found.get(key)!r} is not supported; only {value!r} is")
    return EncoderConfig(
        vocab=int(found["vocab_size"]),
        width=int(found["hidden_size"]),
        depth=int(found["num_hidden_layers"]),
        heads=int(found["num_attention_heads"]),
        inner=int(found["intermediate_size"]),
        max_length=int(found.get("max_position_embeddings", 1026)),
        segments=0,
        positions="rotary",
        rotary_base=float(found.get("rope_theta") or BASE),
        order="pre",
        dropout=float(found.get("hidden_dropout_prob", 0.1)),
        attention_dropout=float(found.get("attention_probs_dropout_prob", 0.1)),
        eps=float(found.get("layer_norm_eps", 1e-12)),
    )


def clean(found: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    """Leave out buffers, the contact head for proteins, and a tied copy of the table."""
    bare = not any(name.startswith("esm.") for name in found)
    skip = ("position_ids", "inv_freq")
    named = {today(f"esm.{name}" if bare else name): tensor for name, tensor in found.items()}
    named = {name: t for name, t in named.items() if not name.endswith(skip) and ".contact_head." not in name}
    tie(named, config, TOKENS, DECODER)
    return named


def finish(named: dict[str, Tensor], described: dict[str, Any]) -> None:
    """The contact head and the angles are part of the class there; zeros keep the head quiet."""
    size = described["hidden_size"] // described["num_attention_heads"]
    angles = described["rope_theta"] ** (-torch.arange(0, size, 2, dtype=torch.float32) / size)
    named["esm.rotary_embeddings.inv_freq"] = angles
    maps = described["num_hidden_layers"] * described["num_attention_heads"]
    table = named[TOKENS]
    named["esm.contact_head.regression.weight"] = torch.zeros(1, maps, dtype=table.dtype)
    named["esm.contact_head.regression.bias"] = torch.zeros(1, dtype=table.dtype)
    if DECODER in named:
        described["tie_word_embeddings"] = False


def table(config: EncoderConfig, task: tuple[str, str] | None = None) -> list[Row]:
    rows = [
        Row("backbone.embeddings.tokens.weight", (TOKENS,), rows=config.vocab),
        *both("backbone.final_norm", "esm.encoder.emb_layer_norm_after"),
    ]
    for number in range(config.depth):
        ours, theirs = f"backbone.blocks.{number}", f"esm.encoder.layer.{number}"
        rows += matrices(ours, theirs)
        rows += both(f"{ours}.attention_norm", f"{theirs}.attention.LayerNorm")
        rows += both(f"{ours}.feedforward_norm", f"{theirs}.LayerNorm")
    rows += both("mlm.dense", "lm_head.dense")
    rows += both("mlm.norm", "lm_head.layer_norm")
    rows.append(Row("mlm.bias", ("lm_head.bias",)))
    rows.append(Row("mlm.table", (DECODER,), rows=config.vocab))
    if task is not None and task[1] != "tag":  # its classifier has the pooler inside
        return rows + both("pooler", "classifier.dense") + both(task[0], "classifier.out_proj")
    return rows + both("pooler", "esm.pooler.dense") + head(task)
