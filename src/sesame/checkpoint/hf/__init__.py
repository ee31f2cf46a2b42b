"""The families of Hugging Face that open here and there. A new one is one file and one line.

A family's file has
    family(config, heads)              the model type under which it can write such an encoder, or None
    write_config, read_config          config.json from our settings, and back
    clean(found, config)               a file's tensors under today's names, without copies and buffers
    finish(named, described)           the way back: what transformers wants besides
    table(config, task)                the names of all parameters, theirs and ours
    TASKS                              the kinds of tasks whose heads its classes compute as ours do
    SQUEEZE                            what ends the pooler of these classes, if it is not tanh
"""

from dataclasses import replace
from types import ModuleType
from typing import Any

from sesame.backbones import EncoderConfig, XLNetConfig
from sesame.checkpoint.hf import albert, bert, distilbert, electra, ernie, esm, modernbert, roberta, xlm, xlnet

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
}


def find_family(config: Any, heads: set[str], wanted: str = "", plain: bool = False) -> tuple[str, ModuleType] | None:
    """The model type that computes exactly what this encoder computes, if transformers has one.

    It computes the same if its config.json, read back, gives the same encoder. Where several do, this decides: the
    `wanted` one; with a head "rtd", ELECTRA; else the first in the order of `FAMILIES`. So BERT stays BERT, and RoBERTa
    and ERNIE, which are BERT to the eye of this function, are written when wanted (`wanted_family` in `folder.py`).
    A head "mlm" that is `plain` has a place in XLM only, and any other has none there.
    """
    if isinstance(config, XLNetConfig):  # it has no relatives: all of its settings have a place in its own file
        return ("xlnet", xlnet) if xlnet.family(config, heads) else None
    if not isinstance(config, EncoderConfig):
        return None
    first = [FAMILIES[wanted]] if wanted in FAMILIES else []
    first += [electra] if "rtd" in heads else []
    for module in dict.fromkeys([*first, *(module for module in FAMILIES.values() if module is not xlnet)]):
        kind = module.family(config, heads)
        if kind is not None and ("mlm" not in heads or plain == (module is xlm)):
            back = module.read_config(module.write_config(config, heads), kind)
            if _same(back) == _same(config):
                return str(kind), module
    return None


def _same(config: EncoderConfig) -> EncoderConfig:
    """The settings that a computation depends on, each in one spelling."""
    inner, narrow = config.inner or 4 * config.width, config.embedding_width or config.width
    return replace(config, inner=inner, embedding_width=narrow, init=0.02)
