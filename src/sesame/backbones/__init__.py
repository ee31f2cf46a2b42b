"""Backbones: ids to hidden states. A new one is one file and one line here."""

from typing import Any

from sesame.backbones.base import Backbone, Encoded, State
from sesame.backbones.encoder import Encoder, EncoderConfig
from sesame.backbones.xlnet import XLNet, XLNetConfig

BACKBONES: dict[str, tuple[type[Backbone], type[Any]]] = {"encoder": (Encoder, EncoderConfig)}  # what a recipe may name

__all__ = ["BACKBONES", "Backbone", "Encoded", "Encoder", "EncoderConfig", "State", "XLNet", "XLNetConfig"]
