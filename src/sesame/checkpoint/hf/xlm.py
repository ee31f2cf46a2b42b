"""XLM as Hugging Face writes it: BERT's layers under names of its own, a table of languages, a plain output layer.

Unusual there: the feed-forward layer is four times as wide, always; a token's segment is looked up in the table of tokens,
so segments have no place, and the tokenizer beside the model must not give any (`segments = 0`); without `langs` no language
is added, as here. Sinusoidal positions are in the file as a table, so they open as one. Languages are numbered by `lang2id`;
a file that has several but names none gets their numbers as names.

Tasks: a summary of a text is its first state through one linear layer, with nothing between (`POOLING`). Its settings allow
more: other places (the last one, the mean: both read padding), no layer, a layer as wide as the states, an activation behind
the answer. Such a head is left out, and so is the beam of ForQuestionAnswering. The first state of a model that reads from
left to right knows one token, where ours reads the last: the classes for whole texts do not hold those tasks.
ForMultipleChoice has two linear layers in a row, which are one: they are multiplied when read, and written as ours and 1.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sesame.backbones.encoder import EncoderConfig
from sesame.checkpoint.hf import shared
from sesame.checkpoint.hf.shared import both, joined
from sesame.checkpoint.names import Row
from sesame.checkpoint.tasks import CLASSES as TASK_CLASSES
from sesame.errors import SesameError

POOLING = "cls"
SUMMARY = {
    "summary_type": "first",
    "summary_use_proj": True,
    "summary_activation": None,
    "summary_proj_to_labels": True,
}
SUMMARIZING = ("ForSequenceClassification", "ForMultipleChoice")
TOKENS, DECODER = "transformer.embeddings.weight", "pred_layer.proj"
LAYER, CHOICE = "sequence_summary.summary", "logits_proj"


def tasks(config: EncoderConfig) -> tuple[str, ...]:
    return ("tag", "qa") if config.causal else ("classify", "regress", "tag", "qa", "choice")


def unlike(found: Mapping[str, Any]) -> str:
    model = str((found.get("architectures") or [""])[0])
    if model.endswith("ForQuestionAnswering"):
        return "it searches with a beam"
    return shared.odd_summary(found, SUMMARY, SUMMARIZING)


def family(config: EncoderConfig, heads: set[str]) -> str | None:
    return "xlm" if config.activation in ("gelu", "relu") and config.segments == 0 else None


def write_config(config: EncoderConfig, heads: set[str], task: str | None = None) -> dict[str, Any]:
    model = TASK_CLASSES[task] if task is not None else "WithLMHeadModel" if "mlm" in heads else "Model"
    model += "Simple" if task == "qa" else ""  # the other one searches with a beam
    summary = SUMMARY if model.endswith(SUMMARIZING) else {}
    return {
        "architectures": ["XLM" + model],
        "model_type": "xlm",
        "n_words": config.vocab,
        "emb_dim": config.width,
        "n_layers": config.depth,
        "n_heads": config.heads,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "gelu_activation": config.activation == "gelu",
        "sinusoidal_embeddings": False,
        "causal": config.causal,
        "asm": False,
        "n_langs": max(1, len(config.languages)),
        "use_lang_emb": bool(config.languages),
        "lang2id": {language: number for number, language in enumerate(config.languages)},
        "id2lang": {str(number): language for number, language in enumerate(config.languages)},
        "max_position_embeddings": config.max_length,
        "embed_init_std": 0.02,
        "init_std": 0.02,
        "layer_norm_eps": config.eps,
        "is_encoder": True,
        "tie_word_embeddings": True,
        **summary,
    }


def read_config(found: Mapping[str, Any], place: str) -> EncoderConfig:
    shared.demand(found, {"asm": False, "is_encoder": True}, place)
    width = int(found.get("emb_dim", 2048))
    return EncoderConfig(
        vocab=int(found.get("n_words", found.get("vocab_size", 30145))),
        width=width,
        depth=int(found.get("n_layers", 12)),
        heads=int(found.get("n_heads", 16)),
        inner=4 * width,
        max_length=int(found.get("max_position_embeddings", 512)),
        segments=0,
        languages=_languages(found, place),
        activation="gelu" if found.get("gelu_activation", True) else "relu",
        causal=bool(found.get("causal", False)),
        dropout=float(found.get("dropout", 0.1)),
        attention_dropout=float(found.get("attention_dropout", 0.1)),
        eps=float(found.get("layer_norm_eps", 1e-12)),
    )


def _languages(found: Mapping[str, Any], place: str) -> tuple[str, ...]:
    count = int(found.get("n_langs", 1))
    if count < 2 or not found.get("use_lang_emb", True):
        return ()
    numbers = {int(number): str(language) for language, number in (found.get("lang2id") or {}).items()}
    if numbers and sorted(numbers) != list(range(count)):
        raise SesameError(f"{place}: lang2id does not number {count} languages from 0; copy the file again")
    return tuple(numbers[number] if numbers else str(number) for number in range(count))


def clean(found: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    parts = ("embeddings.", "position_embeddings.", "lang_embeddings.", "layer_norm", "attentions.", "ffns.")
    named = shared.tidy(found, "transformer.", parts)
    shared.tie(named, config, TOKENS, f"{DECODER}.weight")
    if not _languages(config, ""):
        named.pop("transformer.lang_embeddings.weight", None)
    whole = {f"{layer}.{part}" for layer in (LAYER, CHOICE) for part in ("weight", "bias")} <= named.keys()
    if whole and not unlike(config):
        second, bias = (shared.wide(named.pop(f"{CHOICE}.{part}")) for part in ("weight", "bias"))
        named[f"{LAYER}.bias"] = second @ shared.wide(named[f"{LAYER}.bias"]) + bias
        named[f"{LAYER}.weight"] = second @ shared.wide(named[f"{LAYER}.weight"])
    return named


def finish(named: dict[str, Tensor], described: dict[str, Any]) -> None:
    if f"{DECODER}.weight" in named:
        described["tie_word_embeddings"] = False
    if described["architectures"] == ["XLMForMultipleChoice"]:
        like = named[f"{LAYER}.weight"]
        named |= {f"{CHOICE}.weight": torch.ones_like(like[:, :1]), f"{CHOICE}.bias": torch.zeros_like(like[:, 0])}
        described |= {"id2label": {"0": "score"}, "label2id": {"score": 0}}  # as many numbers between the two


def table(config: EncoderConfig, task: tuple[str, str] | None = None) -> list[Row]:
    rows = [
        Row("backbone.embeddings.tokens.weight", (TOKENS,), rows=config.vocab),
        Row("backbone.embeddings.positions.weight", ("transformer.position_embeddings.weight",)),
        Row("backbone.embeddings.languages.weight", ("transformer.lang_embeddings.weight",)),
        *both("backbone.embeddings.norm", "transformer.layer_norm_emb"),
    ]
    for number in range(config.depth):
        ours, theirs = f"backbone.blocks.{number}", f"transformer.attentions.{number}"
        rows += joined(f"{ours}.attention.qkv", *(f"{theirs}.{part}_lin" for part in ("q", "k", "v")))
        rows += both(f"{ours}.attention.out", f"{theirs}.out_lin")
        rows += both(f"{ours}.attention_norm", f"transformer.layer_norm1.{number}")
        rows += both(f"{ours}.feedforward.up", f"transformer.ffns.{number}.lin1")
        rows += both(f"{ours}.feedforward.down", f"transformer.ffns.{number}.lin2")
        rows += both(f"{ours}.feedforward_norm", f"transformer.layer_norm2.{number}")
    rows.append(Row("mlm.bias", (f"{DECODER}.bias",)))
    rows.append(Row("mlm.table", (f"{DECODER}.weight",), rows=config.vocab))
    if task is not None and task[1] not in ("tag", "qa"):
        return rows + both(task[0], LAYER)
    return rows + shared.head(task)
