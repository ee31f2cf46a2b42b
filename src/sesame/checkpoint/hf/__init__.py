"""The families of Hugging Face that open here and there. A new one is one file and one line."""

from types import ModuleType

from sesame.backbones.encoder import EncoderConfig
from sesame.checkpoint.hf import bert, esm

FAMILIES: dict[str, ModuleType] = {"bert": bert, "megatron-bert": bert, "esm": esm}


def find_family(config: EncoderConfig, heads: set[str]) -> tuple[str, ModuleType] | None:
    """The model type that computes exactly what this encoder with these heads computes, if transformers has one."""
    for module in dict.fromkeys(FAMILIES.values()):
        kind = module.family(config, heads)
        if kind is not None:
            return kind, module
    return None
