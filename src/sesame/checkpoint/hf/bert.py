"""BERT as Hugging Face writes it: `BertModel`, `BertForMaskedLM`, `BertForPreTraining`, old and new names.

`megatron-bert` is the same with the norms before each half (pre-LN): what our `order = "pre"` opens as.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from sesame.backbones.encoder import EncoderConfig
from sesame.checkpoint.names import Row
from sesame.checkpoint.tasks import CLASSES as TASK_CLASSES
from sesame.errors import SesameError

ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu"}  # ours -> theirs
READ_ACTIVATIONS = {theirs: ours for ours, theirs in ACTIVATIONS.items()} | {
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
}
CLASSES = {"bert": "Bert", "megatron-bert": "MegatronBert"}
TASKS = ("classify", "regress", "tag", "qa", "choice")  # it has classes for all


def family(config: EncoderConfig, heads: set[str]) -> str | None:
    """The model type that computes exactly what this encoder computes, or None."""
    plain = (
        config.positions == "learned"
        and config.bias
        and config.activation in ACTIVATIONS
        and config.share == "none"
        and config.embedding_width in (0, config.width)
        and config.segments > 0
    )
    return {"post": "bert", "pre": "megatron-bert"}.get(config.order) if plain else None


def finish(named: dict[str, Tensor], described: dict[str, Any]) -> None:
    """An output layer with weights of its own has, for transformers, a bias of its own too."""
    if "cls.predictions.decoder.weight" in named:
        described["tie_word_embeddings"] = False
        named["cls.predictions.decoder.bias"] = named["cls.predictions.bias"].clone()


def write_config(config: EncoderConfig, heads: set[str], task: str | None = None) -> dict[str, Any]:
    kind = family(config, heads)
    assert kind is not None
    if task is not None:
        model = CLASSES[kind] + TASK_CLASSES[task]
    elif "mlm" in heads:
        model = CLASSES[kind] + ("ForPreTraining" if "nsp" in heads else "ForMaskedLM")
    else:
        model = CLASSES[kind] + "Model"
    return {
        "architectures": [model],
        "model_type": kind,
        "vocab_size": config.vocab,
        "hidden_size": config.width,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.heads,
        "intermediate_size": config.inner or 4 * config.width,
        "hidden_act": ACTIVATIONS[config.activation],
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "max_position_embeddings": config.max_length,
        "type_vocab_size": config.segments,
        "initializer_range": 0.02,
        "layer_norm_eps": config.eps,
        "tie_word_embeddings": True,
    }


def read_config(found: Mapping[str, Any], place: str) -> EncoderConfig:
    """Defaults are those of transformers' `BertConfig`: old files leave much unsaid."""
    kind = found.get("model_type", "bert")
    for key, wanted in (("position_embedding_type", "absolute"), ("is_decoder", False), ("add_cross_attention", False)):
        if found.get(key, wanted) not in (wanted, None):
            raise SesameError(f"{place}: {key} = {found[key]!r} is not supported; only {wanted!r} is")
    activation = found.get("hidden_act", "gelu")
    if activation not in READ_ACTIVATIONS:
        known = ", ".join(sorted(READ_ACTIVATIONS))
        raise SesameError(f"{place}: the activation {activation!r} is not known; known are {known}")
    width = int(found.get("hidden_size", 768))
    return EncoderConfig(
        vocab=int(found.get("vocab_size", 30522)),
        width=width,
        depth=int(found.get("num_hidden_layers", 12)),
        heads=int(found.get("num_attention_heads", 12)),
        inner=int(found.get("intermediate_size", 3072)),
        max_length=int(found.get("max_position_embeddings", 512)),
        segments=int(found.get("type_vocab_size", 2)),
        order="pre" if kind == "megatron-bert" else "post",
        activation=READ_ACTIVATIONS[activation],  # type: ignore[arg-type]
        dropout=float(found.get("hidden_dropout_prob", 0.1)),
        attention_dropout=float(found.get("attention_probs_dropout_prob", 0.1)),
        eps=float(found.get("layer_norm_eps", 1e-12)),
    )


def clean(found: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    """Old TensorFlow names and bare `BertModel` files, in today's names; buffers and tied copies are left out."""
    tied = config.get("tie_word_embeddings", True)
    bare = not any(name.startswith("bert.") for name in found)
    tidy: dict[str, Tensor] = {}
    for name, tensor in found.items():
        if name == "cls.predictions.decoder.bias" and not tied:
            tidy["cls.predictions.bias"] = tensor  # the one that is used when nothing is tied
        copy = name == "cls.predictions.decoder.bias" or (tied and name == "cls.predictions.decoder.weight")
        if copy or name in tidy or name.endswith(("position_ids", "embeddings.token_type_ids")):
            continue
        name = today(name)
        if bare and name.startswith(("embeddings.", "encoder.", "pooler.")):
            name = "bert." + name
        tidy[name] = tensor
    return tidy


def today(name: str) -> str:
    """TensorFlow called a norm's weight gamma and its bias beta."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def table(config: EncoderConfig, task: tuple[str, str] | None = None) -> list[Row]:
    """Backbone, then the heads: "mlm", "pooler", "nsp", and that of a task, given by name and kind."""
    pre = config.order == "pre"
    v = config.vocab
    rows = [
        Row("backbone.embeddings.tokens.weight", ("bert.embeddings.word_embeddings.weight",), rows=v),
        Row("backbone.embeddings.positions.weight", ("bert.embeddings.position_embeddings.weight",)),
        Row("backbone.embeddings.segments.weight", ("bert.embeddings.token_type_embeddings.weight",)),
    ]
    if pre:
        rows += both("backbone.final_norm", "bert.encoder.ln")
    else:
        rows += both("backbone.embeddings.norm", "bert.embeddings.LayerNorm")
    for number in range(config.depth):
        ours, theirs = f"backbone.blocks.{number}", f"bert.encoder.layer.{number}"
        rows += matrices(ours, theirs)
        rows += both(f"{ours}.attention_norm", f"{theirs}.attention." + ("ln" if pre else "output.LayerNorm"))
        rows += both(f"{ours}.feedforward_norm", f"{theirs}." + ("ln" if pre else "output.LayerNorm"))
    rows += both("mlm.dense", "cls.predictions.transform.dense")
    rows += both("mlm.norm", "cls.predictions.transform.LayerNorm")
    rows.append(Row("mlm.bias", ("cls.predictions.bias",)))
    rows.append(Row("mlm.table", ("cls.predictions.decoder.weight",), rows=v))
    rows += both("pooler", "bert.pooler.dense")
    rows += both("nsp", "cls.seq_relationship")
    if task is not None:
        rows += both(task[0], "qa_outputs" if task[1] == "qa" else "classifier")
    return rows


def matrices(ours: str, theirs: str) -> list[Row]:
    """The matrices of a block, named alike in all descendants of BERT; the norms are not."""
    rows = []
    for kind in ("weight", "bias"):
        parts = tuple(f"{theirs}.attention.self.{part}.{kind}" for part in ("query", "key", "value"))
        rows.append(Row(f"{ours}.attention.qkv.{kind}", parts))
    rows += both(f"{ours}.attention.out", f"{theirs}.attention.output.dense")
    rows += both(f"{ours}.feedforward.up", f"{theirs}.intermediate.dense")
    return rows + both(f"{ours}.feedforward.down", f"{theirs}.output.dense")


def both(ours: str, theirs: str) -> list[Row]:
    """Weight and bias of one module."""
    return [Row(f"{ours}.{kind}", (f"{theirs}.{kind}",)) for kind in ("weight", "bias")]
