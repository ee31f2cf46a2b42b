"""Our own format, for models that transformers has no class for: which backbone, its settings, its output layers."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from torch import nn

from sesame.backbones import BACKBONES
from sesame.checkpoint.heads import describe_speaking
from sesame.config import build, unknown
from sesame.errors import SesameError


def write_own(config: Any, heads: Mapping[str, nn.Module]) -> dict[str, Any]:
    """What config.json says; the settings stand under the backbone's name."""
    kind = next(name for name, (_, settings) in BACKBONES.items() if settings is type(config))
    architecture = f"Sesame{BACKBONES[kind][0].__name__}"
    described = {"architectures": [architecture], "backbone": kind, kind: asdict(config)}
    outputs = describe_speaking(heads)
    return described | ({"heads": outputs} if outputs else {})


def read_own(found: Mapping[str, Any], place: str) -> Any:
    """The settings of the backbone; folders that name none hold an encoder."""
    kind = found.get("backbone", "encoder")
    if kind not in BACKBONES:
        raise SesameError(unknown(str(kind), BACKBONES, place, "backbone"))
    return build(BACKBONES[kind][1], found.get(kind, {}), place)
