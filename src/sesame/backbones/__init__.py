"""Backbones: ids to hidden states. A new one is one file and one line here."""

from typing import Any

from sesame.backbones.base import Backbone, Encoded, State
from sesame.backbones.bilm import BiLM, BiLMConfig
from sesame.backbones.encoder import Encoder, EncoderConfig
from sesame.backbones.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from sesame.backbones.recurrent_seq2seq import RecurrentSeq2Seq, RecurrentSeq2SeqConfig
from sesame.backbones.transformer_xl import TransformerXL, TransformerXLConfig
from sesame.backbones.words import Words, WordsConfig
from sesame.backbones.xlnet import XLNet, XLNetConfig

BACKBONES: dict[str, tuple[type[Backbone], type[Any]]] = {  # what a recipe may name
    "encoder": (Encoder, EncoderConfig),
    "encoder-decoder": (EncoderDecoder, EncoderDecoderConfig),
    "recurrent-seq2seq": (RecurrentSeq2Seq, RecurrentSeq2SeqConfig),
    "xlnet": (XLNet, XLNetConfig),
    "bilm": (BiLM, BiLMConfig),
    "transformer-xl": (TransformerXL, TransformerXLConfig),
    "words": (Words, WordsConfig),
}


def build_backbone(config: Any) -> Backbone:
    """The backbone that these settings describe."""
    kinds: dict[type, type[Any]] = {settings: kind for kind, settings in BACKBONES.values()}
    return kinds[type(config)](config)  # type: ignore[no-any-return]


__all__ = [
    "BACKBONES",
    "Backbone",
    "BiLM",
    "BiLMConfig",
    "Encoded",
    "Encoder",
    "EncoderConfig",
    "EncoderDecoder",
    "EncoderDecoderConfig",
    "RecurrentSeq2Seq",
    "RecurrentSeq2SeqConfig",
    "State",
    "TransformerXL",
    "TransformerXLConfig",
    "Words",
    "WordsConfig",
    "XLNet",
    "XLNetConfig",
    "build_backbone",
]
