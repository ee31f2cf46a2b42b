"""What the descendants of BERT have in common in Hugging Face's files: names, settings, tied output layers."""

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor

from sesame.backbones.encoder import EncoderConfig
from sesame.checkpoint.names import Row
from sesame.errors import SesameError

ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu"}  # ours -> theirs
READ_ACTIVATIONS = {theirs: ours for ours, theirs in ACTIVATIONS.items()} | {
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_python": "gelu",
}
ONLY = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}
SIZES = {  # their keys of whole numbers, ours, and what BERT's config means when it is silent
    "vocab_size": ("vocab", 30522),
    "hidden_size": ("width", 768),
    "num_hidden_layers": ("depth", 12),
    "num_attention_heads": ("heads", 12),
    "intermediate_size": ("inner", 3072),
    "max_position_embeddings": ("max_length", 512),
    "type_vocab_size": ("segments", 2),
}


def demand(found: Mapping[str, Any], wanted: Mapping[str, Any], place: str) -> None:
    """Refuse a setting that changes what is computed; one that is not said, or null, is as wanted."""
    for key, value in wanted.items():
        if found.get(key, value) not in (value, None):
            raise SesameError(f"{place}: {key} = {found[key]!r} is not supported; only {value!r} is")


def odd_summary(found: Mapping[str, Any], usual: Mapping[str, Any], classes: tuple[str, ...]) -> str:
    """In what the summary of a text in one of these classes is not the `usual` one; null means none there."""
    if not str((found.get("architectures") or [""])[0]).endswith(classes):
        return ""
    odd = [key for key, value in usual.items() if (found.get(key, value) or None) != value]
    return ", ".join(f"{key} = {found[key]!r}" for key in odd)


def read_activation(
    found: Mapping[str, Any],
    key: str,
    place: str,
    silent: str = "gelu",
    known: Collection[str] = tuple(READ_ACTIVATIONS),
) -> str:
    """Our name of the activation that config.json names as `key`; `silent` is theirs where it does not."""
    name = found.get(key, silent)
    if name not in known:
        listed = ", ".join(sorted(known))
        raise SesameError(f"{place}: {key}: the activation {name!r} is not known here; known are {listed}")
    return READ_ACTIVATIONS[str(name)]


def read_encoder(
    found: Mapping[str, Any], place: str, silent: Mapping[str, Any] | None = None, **more: Any
) -> EncoderConfig:
    """An encoder from BERT's keys. `silent` is what the family means when a key is missing, `more` settings of ours."""
    demand(found, ONLY, place)
    said = {key: value for key, (_, value) in SIZES.items()} | dict(silent or {}) | dict(found)
    values: dict[str, Any] = {ours: int(read_number(said, theirs, place)) for theirs, (ours, _) in SIZES.items()}
    values |= {
        "activation": read_activation(said, "hidden_act", place),
        "dropout": read_number(said, "hidden_dropout_prob", place, 0.1),
        "attention_dropout": read_number(said, "attention_probs_dropout_prob", place, 0.1),
        "eps": read_number(said, "layer_norm_eps", place, 1e-12),
    }
    return EncoderConfig(**(values | more))


def read_number(said: Mapping[str, Any], key: str, place: str, silent: float = 0.0) -> float:
    """A number of config.json; what is none names its key."""
    try:
        return float(said.get(key, silent))
    except (TypeError, ValueError) as error:
        raise SesameError(f"{place}: {key} = {said[key]!r} is not a number; copy the file again") from error


def write_encoder(config: EncoderConfig, kind: str, model: str) -> dict[str, Any]:
    """BERT's keys of an encoder."""
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


def tidy(found: Mapping[str, Tensor], prefix: str, bare: tuple[str, ...]) -> dict[str, Tensor]:
    """Today's names: TensorFlow's norms are renamed, buffers left out, a bare model's parts get their prefix."""
    whole = any(name.startswith(prefix) for name in found)
    named: dict[str, Tensor] = {}
    for name, tensor in found.items():
        if name.endswith(("position_ids", "embeddings.token_type_ids")):
            continue
        name = today(name)
        named[prefix + name if not whole and name.startswith(bare) else name] = tensor
    return named


def today(name: str) -> str:
    """TensorFlow called a norm's weight gamma and its bias beta."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def wide(tensor: Tensor) -> Tensor:
    """Numbers of 16 bits in 32: what is computed of a file's tensors here must not be rounded once more."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def untie(named: dict[str, Tensor], config: Mapping[str, Any], model: str, bias: str, decoder: str) -> None:
    """An output layer is written twice: as `bias`, and as `decoder`, a whole linear layer that is tied unless told otherwise.

    The bias of the decoder is the one in use, where a file has both.
    """
    own = named.pop(f"{decoder}.bias", None)
    if own is not None:
        named[bias] = own
    tie(named, config, f"{model}.embeddings.word_embeddings.weight", f"{decoder}.weight")


def tie(named: dict[str, Tensor], config: Mapping[str, Any], tokens: str, output: str) -> None:
    """A tied output is a copy of the tokens' table and left out; a file that holds one of the two only has both by it.

    Where they differ the file is believed, not config.json, as in transformers 5: the output has weights of its own.
    """
    if output not in named or config.get("tie_word_embeddings", True) is False:
        return
    own = named[output]
    table = named.setdefault(tokens, own)
    if table.shape == own.shape and bool((table == own).all()):
        del named[output]


def tell_untied(named: dict[str, Tensor], described: dict[str, Any], bias: str, decoder: str) -> None:
    """The way back: say that the output layer has weights of its own, and give it its bias."""
    if f"{decoder}.weight" in named:
        described["tie_word_embeddings"] = False
        named[f"{decoder}.bias"] = named[bias].clone()


def embeddings(config: EncoderConfig, prefix: str) -> list[Row]:
    """The three tables and their norm."""
    return [
        Row("backbone.embeddings.tokens.weight", (f"{prefix}.word_embeddings.weight",), rows=config.vocab),
        Row("backbone.embeddings.positions.weight", (f"{prefix}.position_embeddings.weight",)),
        Row("backbone.embeddings.segments.weight", (f"{prefix}.token_type_embeddings.weight",)),
        *both("backbone.embeddings.norm", f"{prefix}.LayerNorm"),
    ]


def layers(config: EncoderConfig, prefix: str) -> list[Row]:
    """All blocks of an encoder with BERT's names and its norms after each half."""
    rows = []
    for number in range(config.depth):
        ours, theirs = f"backbone.blocks.{number}", f"{prefix}.{number}"
        rows += matrices(ours, theirs)
        rows += both(f"{ours}.attention_norm", f"{theirs}.attention.output.LayerNorm")
        rows += both(f"{ours}.feedforward_norm", f"{theirs}.output.LayerNorm")
    return rows


def matrices(ours: str, theirs: str) -> list[Row]:
    """The matrices of a block, named alike in nearly all descendants of BERT; the norms are not."""
    rows = joined(f"{ours}.attention.qkv", *(f"{theirs}.attention.self.{part}" for part in ("query", "key", "value")))
    rows += both(f"{ours}.attention.out", f"{theirs}.attention.output.dense")
    rows += both(f"{ours}.feedforward.up", f"{theirs}.intermediate.dense")
    return rows + both(f"{ours}.feedforward.down", f"{theirs}.output.dense")


def joined(ours: str, *theirs: str) -> list[Row]:
    """Weight and bias of one module that is several there."""
    return [Row(f"{ours}.{kind}", tuple(f"{name}.{kind}" for name in theirs)) for kind in ("weight", "bias")]


def both(ours: str, theirs: str) -> list[Row]:
    """Weight and bias of one module."""
    return joined(ours, theirs)


def head(task: tuple[str, str] | None) -> list[Row]:
    """The one linear layer of a task, under BERT's names."""
    return [] if task is None else both(task[0], "qa_outputs" if task[1] == "qa" else "classifier")


def decoded_head(task: tuple[str, str] | None) -> list[Row]:
    """The head of a task upon a decoder that reads the text again, under BART's names, which are T5's too."""
    if task is None or task[1] == "qa":
        return head(task)
    return both("pooler", "classification_head.dense") + both(task[0], "classification_head.out_proj")


def reads_again(found: Mapping[str, Any]) -> bool:
    """Whether the class that a config names lets its decoder read the text."""
    return any(str(name).endswith(AGAIN) for name in found.get("architectures") or [])


AGAIN = ("ForSequenceClassification", "ForQuestionAnswering")
SPEAKING = ("LMHeadModel", "DoubleHeadsModel", "MTModel", "ForConditionalGeneration", "ForCausalLM")


def speaks(found: Mapping[str, Any]) -> bool:
    """Whether the class that a config names tells tokens; one that names no class may.

    The weights do not say: an output layer that is tied has none of its own.
    """
    names = [str(name) for name in found.get("architectures") or []]
    return not names or any(name.endswith(SPEAKING) for name in names)


def one_table(named: dict[str, Tensor], table: str, copies: Collection[str]) -> None:
    """Files hold the table of tokens several times, or one of its copies only: keep it once, as `table`."""
    there = [name for name in (table, *copies) if name in named]
    if not there:
        return
    for name in there[1:]:
        if not torch.equal(named[name], named[there[0]]):
            raise ValueError(
                f"{name} and {there[0]} differ; a model whose halves read different tables does not open here"
            )
    named[table] = named[there[0]]
    for name in copies:
        named.pop(name, None)
