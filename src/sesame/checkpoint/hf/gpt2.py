"""GPT-2 and the first GPT as Hugging Face writes them (Radford et al. 2018, 2019).

Both read from left to right (`Encoder` with `causal`) and tell tokens by the token table. GPT-2 norms before each part and
once at the end; GPT after each part, and not behind the embeddings.

Unusual there: matrices are applied from the other side than those of a linear layer, so they are turned. GPT's "gelu" is the
one by tanh. Old files hold the triangles of their masks; they are left out. Each place of a dropout has a rate of its own
there; here embeddings and parts have one, that of the parts. Models that divide the scores of layer n by n
(`scale_attn_by_inverse_layer_idx`) have it in the weights of their queries here, and are written so.

Tasks: the class for whole texts reads the last token that is not the padding of config.json, so a batch of several rows needs
one there, and a text must not end with it; its last layer, `score`, has no bias. The first GPT has this class alone. A tied
output layer has no weights, so config.json alone can say that there is one, by its class: a model with the head "lm" keeps
that class, and its tasks beside.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sesame.backbones import EncoderConfig
from sesame.checkpoint.heads import bias_of
from sesame.checkpoint.hf.shared import ACTIVATIONS, both, demand, read_activation, speaks, tie, wide
from sesame.checkpoint.hf.shared import head as task_head
from sesame.checkpoint.names import Row
from sesame.checkpoint.tasks import CLASSES as TASK_CLASSES
from sesame.errors import SesameError
from sesame.objectives.decoder_head import DecoderHead
from sesame.progress import say

POOLING = "cls"
UNBIASED = True
HEAD = "lm"
SILENT: dict[str, dict[str, int]] = {"gpt2": {}, "openai-gpt": {}}
MASKS = (".attn.bias", ".attn.masked_bias", "position_ids")
OUTPUT = "lm_head.weight"
PREFIXES = {"gpt2": "GPT2", "openai-gpt": "OpenAIGPT"}
TABLES = {"gpt2": ("wte", "wpe"), "openai-gpt": ("tokens_embed", "positions_embed")}
FIRST_ACTIVATIONS = {"gelu": "gelu_tanh", "relu": "relu"}  # the first GPT's -> ours


def family(config: EncoderConfig, heads: set[str]) -> str | None:
    if not (config.causal and heads <= {HEAD} and config.activation in ACTIVATIONS):
        return None
    return kind_of(config)


def tasks(config: EncoderConfig) -> tuple[str, ...]:
    return ("classify", "regress", "tag", "qa") if kind_of(config) == "gpt2" else ("classify", "regress")


def kind_of(config: EncoderConfig) -> str:
    return "gpt2" if config.order == "pre" else "openai-gpt"


def write_config(config: EncoderConfig, heads: set[str], task: str | None = None) -> dict[str, Any]:
    kind = kind_of(config)
    model = TASK_CLASSES[task] if task is not None else "LMHeadModel" if HEAD in heads else "Model"
    described: dict[str, Any] = {
        "architectures": [PREFIXES[kind] + model],
        "model_type": kind,
        "vocab_size": config.vocab,
        "n_positions": config.max_length,
        "n_embd": config.width,
        "n_layer": config.depth,
        "n_head": config.heads,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.attention_dropout,
        "layer_norm_epsilon": config.eps,
        "initializer_range": config.init,
        "bos_token_id": None,  # a tokenizer's own take the place of these
        "eos_token_id": None,
        "tie_word_embeddings": True,
    }
    if kind == "gpt2":
        inner = config.inner or 4 * config.width
        return described | {"activation_function": ACTIVATIONS[config.activation], "n_inner": inner}
    return described | {"afn": "gelu" if config.activation == "gelu_tanh" else config.activation}


def read_config(found: Mapping[str, Any], place: str) -> EncoderConfig:
    """Defaults are those of transformers' `GPT2Config` and `OpenAIGPTConfig`."""
    first = found.get("model_type") == "openai-gpt"
    demand(found, {"scale_attn_weights": True, "add_cross_attention": False}, place)
    width, dropout = int(found.get("n_embd", 768)), float(found.get("resid_pdrop", 0.1))
    if float(found.get("embd_pdrop", 0.1)) != dropout:
        say(f"{place}: embd_pdrop is not resid_pdrop; trained here, embeddings are dropped at the rate {dropout} too")
    return EncoderConfig(
        vocab=int(found.get("vocab_size", 40478 if first else 50257)),
        width=width,
        depth=int(found.get("n_layer", 12)),
        heads=int(found.get("n_head", 12)),
        inner=4 * width if first else int(found.get("n_inner") or 4 * width),
        max_length=int(found.get("n_positions", 512 if first else 1024)),
        segments=0,
        order="post" if first else "pre",
        activation=_activation(found, first, place),  # type: ignore[arg-type]
        bare_embeddings=first,
        causal=True,
        dropout=dropout,
        attention_dropout=float(found.get("attn_pdrop", 0.1)),
        eps=float(found.get("layer_norm_epsilon", 1e-5)),
        init=float(found.get("initializer_range", 0.02)),
    )


def _activation(found: Mapping[str, Any], first: bool, place: str) -> str:
    if not first:
        return read_activation(found, "activation_function", place, "gelu_new")
    name = found.get("afn", "gelu")
    if name not in FIRST_ACTIVATIONS:
        raise SesameError(f"{place}: afn = {name!r} is not known here; known are {', '.join(FIRST_ACTIVATIONS)}")
    return FIRST_ACTIVATIONS[name]


def clean(found: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    """Without masks and the tied copy of the table; a bare model, as in the oldest files, gets its prefix."""
    bare = not any(name.startswith("transformer.") for name in found)
    named = {
        f"transformer.{name}" if bare and name != OUTPUT else name: tensor
        for name, tensor in found.items()
        if not name.endswith(MASKS)
    }
    tokens, _ = TABLES[config["model_type"]]
    tie(named, config, f"transformer.{tokens}.weight", OUTPUT)
    if config["model_type"] == "gpt2" and config.get("scale_attn_by_inverse_layer_idx"):
        for name in [name for name in named if ".attn.c_attn." in name]:
            named[name] = _divided(named[name], 1 + int(name.split(".")[2]))
    return named


def _divided(tensor: Tensor, by: int) -> Tensor:
    """Queries, keys and values side by side, the queries divided: so are their scores."""
    q, k, v = wide(tensor).chunk(3, dim=-1)
    return torch.cat([q / by, k, v], dim=-1)


def holds(head: DecoderHead, config: EncoderConfig) -> bool:
    """Whether its class computes such an output layer."""
    return head.scale == 1 and bias_of(head) == "none"


def read_head(found: Mapping[str, Any], config: EncoderConfig, named: Mapping[str, Tensor]) -> DecoderHead | None:
    if not speaks(found):
        return None
    if found.get("tie_word_embeddings", True) is False and OUTPUT not in named:
        raise ValueError(f"tie_word_embeddings is false, but there is no {OUTPUT} in the weights")
    return DecoderHead(config.width, config.vocab, tied=OUTPUT not in named)


def write_head(head: DecoderHead, described: dict[str, Any]) -> None:
    described["tie_word_embeddings"] = head.table is None


def finish(named: dict[str, Tensor], described: dict[str, Any]) -> None:
    if described["architectures"] == [PREFIXES[described["model_type"]] + "Model"]:
        for name in list(named):
            named[name.removeprefix("transformer.")] = named.pop(name)


def table(config: EncoderConfig, task: tuple[str, str] | None = None) -> list[Row]:
    tokens, positions = TABLES[kind_of(config)]
    rows = [
        Row("backbone.embeddings.tokens.weight", (f"transformer.{tokens}.weight",), rows=config.vocab),
        Row("backbone.embeddings.positions.weight", (f"transformer.{positions}.weight",)),
        *both("backbone.final_norm", "transformer.ln_f"),
    ]
    for number in range(config.depth):
        ours, theirs = f"backbone.blocks.{number}", f"transformer.h.{number}"
        rows += _turned(f"{ours}.attention.qkv", f"{theirs}.attn.c_attn")
        rows += _turned(f"{ours}.attention.out", f"{theirs}.attn.c_proj")
        rows += both(f"{ours}.attention_norm", f"{theirs}.ln_1")
        rows += _turned(f"{ours}.feedforward.up", f"{theirs}.mlp.c_fc")
        rows += _turned(f"{ours}.feedforward.down", f"{theirs}.mlp.c_proj")
        rows += both(f"{ours}.feedforward_norm", f"{theirs}.ln_2")
    rows.append(Row(f"{HEAD}.table", (OUTPUT,), rows=config.vocab))
    if task is not None and task[1] in ("classify", "regress"):
        return [*rows, Row(f"{task[0]}.weight", ("score.weight",))]
    return rows + task_head(task)


def _turned(ours: str, theirs: str) -> list[Row]:
    return [Row(f"{ours}.weight", (f"{theirs}.weight",), turned=True), Row(f"{ours}.bias", (f"{theirs}.bias",))]
