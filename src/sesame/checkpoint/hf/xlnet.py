"""XLNet as Hugging Face writes it: `XLNetModel`, `XLNetLMHeadModel`, and its classes for tasks.

Its matrices are (D, H, d) and applied from the other side than those of a linear layer; `clean` and `finish` turn them. What
makes one vector of a text is called `sequence_summary` there and reads the last token, so rows must be padded on the left or
not at all; here they are padded on the right and the last real token is read, which is the same.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from sesame.backbones.xlnet import XLNetConfig
from sesame.checkpoint.hf.shared import ACTIVATIONS, both, demand, odd_summary, read_activation, tie
from sesame.checkpoint.names import Row
from sesame.checkpoint.tasks import CLASSES as TASK_CLASSES
from sesame.progress import say

TASKS = ("classify", "regress", "tag", "qa", "choice")
VECTORS = {"content_bias": "r_w_bias", "distance_bias": "r_r_bias", "segment_bias": "r_s_bias"}  # ours -> theirs
SUMMARY = {"summary_type": "last", "summary_use_proj": True, "summary_activation": "tanh"}
SUMMARIZING = ("ForSequenceClassification", "ForMultipleChoice")
TOKENS, OUTPUT = "transformer.word_embedding.weight", "lm_loss.weight"
PARTS = ("transformer.", "lm_loss.", "sequence_summary.", "logits_proj.", "classifier.", "qa_outputs.")


def unlike(found: Mapping[str, Any]) -> str:
    if str((found.get("architectures") or [""])[0]).endswith("ForQuestionAnswering"):
        return "it searches with a beam"
    return odd_summary(found, SUMMARY, SUMMARIZING)


def family(config: object, heads: set[str]) -> str | None:
    fits = isinstance(config, XLNetConfig) and heads <= {"plm", "pooler"}
    return "xlnet" if fits else None


def write_config(config: XLNetConfig, heads: set[str], task: str | None = None) -> dict[str, Any]:
    if task is not None:
        model = TASK_CLASSES[task] + ("Simple" if task == "qa" else "")  # the other one searches with a beam
    else:
        model = "LMHeadModel" if "plm" in heads else "Model"
    return {
        "architectures": ["XLNet" + model],
        "model_type": "xlnet",
        "vocab_size": config.vocab,
        "d_model": config.width,
        "n_layer": config.depth,
        "n_head": config.heads,
        "d_head": config.width // config.heads,
        "d_inner": config.inner or 4 * config.width,
        "ff_activation": ACTIVATIONS[config.activation],
        "dropout": config.dropout,
        "layer_norm_eps": config.eps,
        "mem_len": config.memory or None,
        "reuse_len": config.reuse or None,
        "clamp_len": config.clamp or -1,
        "attn_type": "bi",
        "bi_data": False,
        "same_length": False,
        "untie_r": True,
        **SUMMARY,
        "initializer_range": config.init,
        "tie_word_embeddings": True,
        "sesame": {"max_length": config.max_length, "attention_dropout": config.attention_dropout},  # no place there
    }


def read_config(found: Mapping[str, Any], place: str) -> XLNetConfig:
    """Defaults are those of transformers' `XLNetConfig`."""
    demand(found, {"attn_type": "bi", "same_length": False, "untie_r": True}, place)
    if found.get("bi_data"):  # is about a batch, not about the model
        say(
            f"{place}: bi_data turns distances round in half of a batch there; here no text depends on its place in a batch"
        )
    said = found.get("sesame")
    own: Mapping[str, Any] = said if isinstance(said, Mapping) else {}
    dropout = float(found.get("dropout", 0.1))

    def number(*names: str, default: int) -> int:
        return int(next((found[name] for name in names if name in found), default))

    return XLNetConfig(
        vocab=number("vocab_size", "n_token", default=32000),
        width=number("d_model", "hidden_size", default=1024),
        depth=number("n_layer", "num_hidden_layers", default=24),
        heads=number("n_head", "num_attention_heads", default=16),
        inner=number("d_inner", default=4096),
        max_length=int(own.get("max_length", 512)),
        memory=int(found.get("mem_len", 512) or 0),
        reuse=int(found.get("reuse_len") or 0),
        clamp=max(0, int(found.get("clamp_len", -1))),
        activation=read_activation(found, "ff_activation", place),  # type: ignore[arg-type]
        dropout=dropout,
        attention_dropout=float(own.get("attention_dropout", dropout)),
        eps=float(found.get("layer_norm_eps", 1e-12)),
        init=float(found.get("initializer_range", 0.02)),
    )


def clean(found: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    """Their tensors in our shapes: matrices (out, in), vectors flat. Tied copies of the token table are left out."""
    bare = not any(name.startswith("transformer.") for name in found)
    tidy: dict[str, Tensor] = {}
    for name, tensor in found.items():
        if bare and not name.startswith(PARTS):
            name = "transformer." + name
        last = name.rsplit(".", 1)[-1]
        if ".rel_attn." in name and last in ("q", "k", "v", "r"):
            tensor = tensor.flatten(1).t().contiguous()
        elif ".rel_attn." in name and last == "o":
            tensor = tensor.flatten(1)
        elif last == "mask_emb" or last in VECTORS.values():
            tensor = tensor.flatten()
        tidy[name] = tensor
    tie(tidy, config, TOKENS, OUTPUT)
    if unlike(config):  # what was taught there is no pooler of ours
        tidy = {name: tensor for name, tensor in tidy.items() if not name.startswith("sequence_summary.")}
    return tidy


def finish(named: dict[str, Tensor], described: dict[str, Any]) -> None:
    """Our shapes to theirs."""
    heads, size = described["n_head"], described["d_head"]
    described["tie_word_embeddings"] = OUTPUT not in named
    for name, tensor in named.items():
        last = name.rsplit(".", 1)[-1]
        if ".rel_attn." in name and last in ("q", "k", "v", "r"):
            named[name] = tensor.t().reshape(-1, heads, size).contiguous()
        elif ".rel_attn." in name and last == "o":
            named[name] = tensor.reshape(-1, heads, size).contiguous()
        elif last == "mask_emb":
            named[name] = tensor.reshape(1, 1, -1)
        elif last in VECTORS.values():
            named[name] = tensor.reshape(heads, size)


def table(config: XLNetConfig, task: tuple[str, str] | None = None) -> list[Row]:
    """Backbone, then the heads: "plm", "pooler" (their summary), and that of a task, given by name and kind."""
    rows = [
        Row("backbone.tokens.weight", (TOKENS,), rows=config.vocab),
        Row("backbone.asking", ("transformer.mask_emb",)),
    ]
    for number in range(config.depth):
        ours, theirs = f"backbone.blocks.{number}", f"transformer.layer.{number}"
        attention, relative = f"{ours}.attention", f"{theirs}.rel_attn"
        rows.append(Row(f"{attention}.q.weight", (f"{relative}.q",)))
        rows.append(Row(f"{attention}.kv.weight", (f"{relative}.k", f"{relative}.v")))
        rows.append(Row(f"{attention}.far.weight", (f"{relative}.r",)))
        rows.append(Row(f"{attention}.out.weight", (f"{relative}.o",)))
        rows.append(Row(f"{attention}.segments", (f"{relative}.seg_embed",)))
        rows += [Row(f"{attention}.{name}", (f"{relative}.{their}",)) for name, their in VECTORS.items()]
        rows += both(f"{ours}.attention_norm", f"{relative}.layer_norm")
        rows += both(f"{ours}.feedforward.up", f"{theirs}.ff.layer_1")
        rows += both(f"{ours}.feedforward.down", f"{theirs}.ff.layer_2")
        rows += both(f"{ours}.feedforward_norm", f"{theirs}.ff.layer_norm")
    rows.append(Row("plm.bias", ("lm_loss.bias",)))
    rows.append(Row("plm.table", (OUTPUT,), rows=config.vocab))
    rows += both("pooler", "sequence_summary.summary")
    if task is not None:
        rows += both(task[0], {"tag": "classifier", "qa": "qa_outputs"}.get(task[1], "logits_proj"))
    return rows
