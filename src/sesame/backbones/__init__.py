"""Backbones: ids to hidden states. A new one is one file and one line here."""

from sesame.backbones.base import Backbone, Encoded
from sesame.backbones.encoder import Encoder, EncoderConfig

BACKBONES = {"encoder": (Encoder, EncoderConfig)}

__all__ = ["BACKBONES", "Backbone", "Encoded", "Encoder", "EncoderConfig"]
