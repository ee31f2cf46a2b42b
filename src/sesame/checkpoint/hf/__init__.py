"""The families of Hugging Face that open here and there. A new one is one file and one line.

A family's file has
    family(config, heads)              the model type under which it can write such an encoder, or None
    write_config, read_config          config.json from our settings, and back
    clean(found, config)               a file's tensors under today's names, without copies and buffers
    finish(named, described)           the way back: what transformers wants besides
    table(config, task)                the names of all parameters, theirs and ours
    TASKS, or tasks(config)            the kinds of tasks whose heads its classes compute as ours do
    SQUEEZE                            what ends the pooler of these classes, if it is not tanh
    POOLING                            what takes its place in classes for whole texts, if there is none
    UNBIASED                           True, if their last layer has no bias
    LABELS                             how many labels a class has where config.json does not say it, if they are not two
    unlike(found)                      what config.json asks of a head that no task here computes, if it can
and one whose models speak also
    HEAD                               the name of its output layer here
    SILENT                             by model type: the tokens that begin and end answers, where no file says them
    holds(head, config)                whether it computes such an output layer
    read_head, write_head              the output layer from config.json and weights, and what config.json says of it
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

from sesame.backbones import DecodedConfig, EncoderConfig, EncoderDecoderConfig, EncoderHalfConfig, XLNetConfig
from sesame.checkpoint.hf import (
    albert,
    bart,
    bert,
    distilbert,
    electra,
    ernie,
    esm,
    gpt2,
    marian,
    modernbert,
    pegasus,
    roberta,
    t5,
    xlm,
    xlnet,
)
from sesame.data.tables import listed
from sesame.errors import SesameError
from sesame.objectives.decoder_head import DecoderHead

FAMILIES: dict[str, ModuleType] = {
    "bert": bert,
    "megatron-bert": bert,
    "esm": esm,
    "modernbert": modernbert,
    "albert": albert,
    "electra": electra,
    "distilbert": distilbert,
    "roberta": roberta,
    "xlm-roberta": roberta,
    "camembert": roberta,
    "ernie": ernie,
    "xlm": xlm,
    "xlnet": xlnet,
    "gpt2": gpt2,
    "openai-gpt": gpt2,
    "t5": t5,
    "bart": bart,
    "mbart": bart,
    "marian": marian,
    "pegasus": pegasus,
}
ANSWERING = (t5, bart, marian, pegasus)  # with a source
ALIASES: dict[str, tuple[str, str, str]] = {  # how those types that have names of their own say BERT's `SAYINGS`
    "distilbert": ("dim", "n_heads", "n_layers"),
    "xlm": ("emb_dim", "n_heads", "n_layers"),
    "xlnet": ("d_model", "n_head", "n_layer"),
    "gpt2": ("n_embd", "n_head", "n_layer"),
    "openai-gpt": ("n_embd", "n_head", "n_layer"),
    "t5": ("d_model", "num_heads", "num_layers"),
    **dict.fromkeys(("bart", "mbart", "marian", "pegasus"), ("d_model", "encoder_attention_heads", "encoder_layers")),
}
WHOLE = listed(  # keys of whole numbers, of all families
    """vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size max_position_embeddings type_vocab_size
    embedding_size dim hidden_dim n_layers n_heads emb_dim n_words n_langs d_model n_head n_layer d_inner mem_len reuse_len
    clamp_len n_token n_embd n_inner n_positions num_heads num_layers num_decoder_layers d_ff d_kv encoder_layers
    decoder_layers encoder_attention_heads decoder_attention_heads encoder_ffn_dim decoder_ffn_dim local_attention
    sliding_window global_attn_every_n_layers relative_attention_num_buckets relative_attention_max_distance"""
)
SAYINGS = ("hidden_size", "num_attention_heads", "num_hidden_layers")


def native(found: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """config.json with a type's own names. transformers takes BERT's for them, and where a file has both, BERT's decide."""
    own = dict(zip(SAYINGS, ALIASES.get(kind, ()), strict=False))
    return {**found, **{own[key]: found[key] for key in own if found.get(key) is not None}}


def check_whole(found: Mapping[str, Any], place: str) -> None:
    """Refuse 4.7 heads: cut to 4 they would open, and compute something else."""
    for key in WHOLE:
        try:
            whole = float(found.get(key, 0)).is_integer()
        except (TypeError, ValueError):
            continue  # is no number, of which whoever reads it complains
        if not whole:
            raise SesameError(f"{place}: {key} = {found[key]!r} is not a whole number; copy the file again")


def find_family(
    config: Any, heads: set[str], wanted: str = "", plain: bool = False, output: DecoderHead | None = None
) -> tuple[str, ModuleType] | None:
    """The model type that computes exactly what this model computes, if transformers has one.

    It computes the same if its config.json, read back, gives the same backbone. Where several do, this decides: the
    `wanted` one; with a head "rtd", ELECTRA; else the first in the order of `FAMILIES`. So BERT stays BERT, and RoBERTa
    and ERNIE, which are BERT to the eye of this function, are written when wanted (`wanted_family` in `saving.py`).
    A head "mlm" that is `plain` has a place in XLM only, and any other has none there; `output` is the output layer of a
    model that speaks, which must be one that the family's class has.
    """
    if isinstance(config, XLNetConfig):  # it has no relatives: all of its settings have a place in its own file
        return ("xlnet", xlnet) if xlnet.family(config, heads) else None
    for module in _candidates(config, heads, wanted):
        kind = module.family(config, heads)
        if kind is None or ("mlm" in heads and plain != (module is xlm)):
            continue
        if output is not None and not (hasattr(module, "holds") and module.holds(output, config)):
            continue
        back = module.read_config(module.write_config(config, heads), kind)
        if _same(back) == _same(config):
            return str(kind), module
    return None


def _candidates(config: Any, heads: set[str], wanted: str) -> Iterable[ModuleType]:
    """Who may write such a backbone, the favourites first."""
    if isinstance(config, EncoderDecoderConfig):
        return {EncoderHalfConfig: (t5,), DecodedConfig: (t5, bart)}.get(type(config), ANSWERING)
    if not isinstance(config, EncoderConfig):
        return ()
    first = [FAMILIES[wanted]] if wanted in FAMILIES else []
    first += [electra] if "rtd" in heads else []
    known = dict.fromkeys([*first, *FAMILIES.values()])
    return [module for module in known if module is not xlnet and module not in ANSWERING]


def _same(config: Any) -> Any:
    """The settings that a computation depends on, each in one spelling."""
    inner = config.inner or 4 * config.width
    if isinstance(config, EncoderDecoderConfig):
        (_, heads, _), (depth, decoder_heads, decoder_inner) = config.half(False), config.half(True)
        size = config.head_size or (config.width // heads if heads == decoder_heads else 0)
        distances: dict[str, Any] = {} if config.positions == "relative" else {"buckets": 32, "farthest": 128}
        same: dict[str, Any] = {
            "inner": inner,
            "decoder_depth": depth,
            "decoder_heads": decoder_heads,
            "decoder_inner": decoder_inner,
            "head_size": size,
            "init": 0.02,
            "glorot": False,
        }
        return replace(config, **same, **distances)
    plain: dict[str, Any] = {} if config.local_layers else {"window": 64, "local_base": 10000.0}
    return replace(config, inner=inner, embedding_width=config.embedding_width or config.width, init=0.02, **plain)
