"""The families of Hugging Face that open here and there. A new one is one file and one line."""

from types import ModuleType

from sesame.checkpoint.hf import bert

FAMILIES: dict[str, ModuleType] = {"bert": bert, "megatron-bert": bert}
