"""ModernBERT as Hugging Face writes it (Warner et al. 2024, https://arxiv.org/abs/2412.13663): our house recipe opens as it.

Norms first, rotary positions, gated feed-forward, no segments, and as a rule no biases; the first norm stands behind the
embeddings and the first block has none of its own. Our `order = "pre"`, `embedding_norm`, `positions = "rotary"`,
`activation = "geglu"` computes the same. `intermediate_size` is the width after the gate, as our `inner`. As a rule two
layers of three look at a window only (`layer_types`, in old files `global_attn_every_n_layers`; our `local_layers`), whose
whole breadth is `local_attention`, and turn by angles of their own.

Not opened: angles that are scaled, biases in some places and not in others. The head of the masked language model and that of
a task have one name there, so a folder with a task keeps the former beside it, under our name. transformers turns queries and
keys in 32 bits whatever the precision of the model.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sesame.backbones.encoder import EncoderConfig
from sesame.checkpoint.hf.shared import both, demand, tie
from sesame.checkpoint.names import Row
from sesame.checkpoint.tasks import CLASSES as TASK_CLASSES
from sesame.errors import SesameError
from sesame.progress import say

TASKS = ("classify", "regress", "tag", "qa", "choice")
TRANSFORM = True  # its classes have norm(gelu(dense)) before the last layer
BIASES = ("attention_bias", "mlp_bias", "norm_bias", "classifier_bias")
FULL, NEAR = "full_attention", "sliding_attention"
BASES = {FULL: 160_000.0, NEAR: 10_000.0}  # of the angles, when a config is silent
TOKENS = "model.embeddings.tok_embeddings.weight"
OLD_BASES = {FULL: "global_rope_theta", NEAR: "local_rope_theta"}


def family(config: EncoderConfig, heads: set[str]) -> str | None:
    fits = (
        config.order == "pre"
        and config.embedding_norm
        and config.positions == "rotary"
        and config.segments == 0
        and config.activation == "geglu"
        and config.share == "none"
        and config.embedding_width in (0, config.width)
        and not config.causal
    )
    return "modernbert" if fits else None


def write_config(config: EncoderConfig, heads: set[str], task: str | None = None) -> dict[str, Any]:
    model = TASK_CLASSES[task] if task is not None else "ForMaskedLM" if "mlm" in heads else "Model"
    return {
        "architectures": ["ModernBert" + model],
        "model_type": "modernbert",
        "vocab_size": config.vocab,
        "hidden_size": config.width,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.heads,
        "intermediate_size": config.inner or 4 * config.width,
        "hidden_activation": "gelu",
        "classifier_activation": "gelu",
        "max_position_embeddings": config.max_length,
        "embedding_dropout": config.dropout,
        "mlp_dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "norm_eps": config.eps,
        **dict.fromkeys(BIASES, config.bias),
        "decoder_bias": True,
        "layer_types": [NEAR if number in config.local_layers else FULL for number in range(config.depth)],
        "local_attention": 2 * config.window,
        "rope_parameters": {
            FULL: {"rope_type": "default", "rope_theta": config.rotary_base},
            NEAR: {"rope_type": "default", "rope_theta": config.local_base},
        },
        **_for_old_versions(config),
        "initializer_range": config.init,
        "pad_token_id": 0,  # a tokenizer's own take the place of these
        "bos_token_id": None,
        "eos_token_id": None,
        "cls_token_id": None,
        "sep_token_id": None,
        "tie_word_embeddings": True,
    }


def read_config(found: Mapping[str, Any], place: str) -> EncoderConfig:
    """Defaults are those of transformers' `ModernBertConfig`."""
    demand(found, {"hidden_activation": "gelu", "classifier_activation": "gelu"}, place)
    depth = int(found.get("num_hidden_layers", 22))
    biases = {key: bool(found.get(key, False)) for key in BIASES}
    if len(set(biases.values())) > 1:
        raise SesameError(f"{place}: {biases} is not supported; biases are everywhere here, or nowhere")
    dropout = float(found.get("mlp_dropout", 0.0))
    if float(found.get("embedding_dropout", 0.0)) != dropout:
        say(
            f"{place}: embedding_dropout is not mlp_dropout; trained here, embeddings are dropped at the rate {dropout} too"
        )
    return EncoderConfig(
        vocab=int(found.get("vocab_size", 50368)),
        width=int(found.get("hidden_size", 768)),
        depth=depth,
        heads=int(found.get("num_attention_heads", 12)),
        inner=int(found.get("intermediate_size", 1152)),
        max_length=int(found.get("max_position_embeddings", 8192)),
        segments=0,
        positions="rotary",
        order="pre",
        embedding_norm=True,
        activation="geglu",
        bias=biases["norm_bias"],
        dropout=dropout,
        attention_dropout=float(found.get("attention_dropout", 0.0)),
        eps=float(found.get("norm_eps", 1e-5)),
        rotary_base=_base(found, FULL, place),
        local_layers=_local_layers(found, depth, place),
        window=_window(found),
        local_base=_base(found, NEAR, place),
    )


def _for_old_versions(config: EncoderConfig) -> dict[str, Any]:
    """What versions before `layer_types` and `rope_parameters` read, as far as they can say it."""
    found: dict[str, Any] = {OLD_BASES[FULL]: config.rotary_base, OLD_BASES[NEAR]: config.local_base}
    for every in range(1, config.depth + 1):
        if config.local_layers == tuple(number for number in range(config.depth) if number % every):
            found["global_attn_every_n_layers"] = every
            break
    return found


def _local_layers(found: Mapping[str, Any], depth: int, place: str) -> tuple[int, ...]:
    every = int(found.get("global_attn_every_n_layers", 3))
    kinds = found.get("layer_types") or [NEAR if number % every else FULL for number in range(depth)]
    if len(kinds) < depth or not set(kinds) <= {FULL, NEAR}:
        raise SesameError(f"{place}: layer_types must say {FULL!r} or {NEAR!r} of each of the {depth} layers")
    return tuple(number for number in range(depth) if kinds[number] == NEAR)


def _window(found: Mapping[str, Any]) -> int:
    """How far a layer looks to each side: half of `local_attention`, unless a file says it under its newer name."""
    side = found.get("sliding_window")
    return int(found.get("local_attention", 128)) // 2 if side is None else int(side)


def _base(found: Mapping[str, Any], kind: str, place: str) -> float:
    """What the angles of layers of this kind are made of."""
    said = (found.get("rope_parameters") or {}).get(kind) or {}
    way = said.get("rope_type", said.get("type", "default"))
    scaled = f"rope_type = {way!r}" if way != "default" else ""
    if scaled or found.get("rope_scaling"):
        odd = scaled or f"rope_scaling = {found['rope_scaling']!r}"
        raise SesameError(f"{place}: {odd}: scaled rotary positions are not supported; only rope_type 'default' is")
    return float(said.get("rope_theta") or found.get(OLD_BASES[kind]) or BASES[kind])


def clean(found: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    """A bare model gets its prefix; the tied copy of the table is left out, and an output without a bias has one of zeros."""
    bare = not any(name.startswith("model.") for name in found)
    named = {f"model.{name}" if bare else name: tensor for name, tensor in found.items()}
    tie(named, config, TOKENS, "decoder.weight")
    table = named.get(TOKENS)
    if table is not None and "classifier.weight" not in named and "head.dense.weight" in named:
        named.setdefault("decoder.bias", torch.zeros(len(table), dtype=table.dtype))
    return named


def finish(named: dict[str, Tensor], described: dict[str, Any]) -> None:
    if "decoder.weight" in named:
        described["tie_word_embeddings"] = False


def table(config: EncoderConfig, task: tuple[str, str] | None = None) -> list[Row]:
    rows = [
        Row("backbone.embeddings.tokens.weight", (TOKENS,), rows=config.vocab),
        *both("backbone.embeddings.norm", "model.embeddings.norm"),
        *both("backbone.final_norm", "model.final_norm"),
    ]
    for number in range(config.depth):
        ours, theirs = f"backbone.blocks.{number}", f"model.layers.{number}"
        rows += both(f"{ours}.attention_norm", f"{theirs}.attn_norm") if number else []
        rows += both(f"{ours}.attention.qkv", f"{theirs}.attn.Wqkv")
        rows += both(f"{ours}.attention.out", f"{theirs}.attn.Wo")
        rows += both(f"{ours}.feedforward_norm", f"{theirs}.mlp_norm")
        rows += both(f"{ours}.feedforward.up", f"{theirs}.mlp.Wi")
        rows += both(f"{ours}.feedforward.down", f"{theirs}.mlp.Wo")
    if task is not None:
        name = f"{task[0]}.transform"
        return (
            rows + both(f"{name}.dense", "head.dense") + both(f"{name}.norm", "head.norm") + both(task[0], "classifier")
        )
    rows += both("mlm.dense", "head.dense") + both("mlm.norm", "head.norm")
    rows.append(Row("mlm.bias", ("decoder.bias",)))
    rows.append(Row("mlm.table", ("decoder.weight",), rows=config.vocab))
    return rows
