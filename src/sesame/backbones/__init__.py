"""Backbones: ids to hidden states. A new one is one file and one line here."""

from typing import Any

from sesame.backbones.base import Backbone, Encoded, State
from sesame.backbones.bilm import BiLM, BiLMConfig
from sesame.backbones.cove import CoVe, CoVeConfig
from sesame.backbones.decoded import Decoded, DecodedConfig
from sesame.backbones.encoder import Encoder, EncoderConfig
from sesame.backbones.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from sesame.backbones.encoder_half import EncoderHalf, EncoderHalfConfig
from sesame.backbones.lstm import LSTM, LSTMConfig
from sesame.backbones.recurrent_seq2seq import RecurrentSeq2Seq, RecurrentSeq2SeqConfig
from sesame.backbones.skip_thought import SkipThought, SkipThoughtConfig
from sesame.backbones.tagger import Tagger, TaggerConfig
from sesame.backbones.transformer_xl import TransformerXL, TransformerXLConfig
from sesame.backbones.xlnet import XLNet, XLNetConfig

BACKBONES: dict[str, tuple[type[Backbone], type[Any]]] = {  # what a recipe may name
    "encoder": (Encoder, EncoderConfig),
    "encoder-decoder": (EncoderDecoder, EncoderDecoderConfig),
    "encoder-half": (EncoderHalf, EncoderHalfConfig),
    "decoded": (Decoded, DecodedConfig),
    "recurrent-seq2seq": (RecurrentSeq2Seq, RecurrentSeq2SeqConfig),
    "xlnet": (XLNet, XLNetConfig),
    "bilm": (BiLM, BiLMConfig),
    "lstm": (LSTM, LSTMConfig),
    "cove": (CoVe, CoVeConfig),
    "skip-thought": (SkipThought, SkipThoughtConfig),
    "tagger": (Tagger, TaggerConfig),
    "transformer-xl": (TransformerXL, TransformerXLConfig),
}


def build_backbone(config: Any) -> Backbone:
    """The backbone that these settings describe."""
    kinds: dict[type, type[Any]] = {settings: kind for kind, settings in BACKBONES.values()}
    return kinds[type(config)](config)  # type: ignore[no-any-return]


__all__ = [
    "BACKBONES",
    "LSTM",
    "Backbone",
    "BiLM",
    "BiLMConfig",
    "CoVe",
    "CoVeConfig",
    "Decoded",
    "DecodedConfig",
    "Encoded",
    "Encoder",
    "EncoderConfig",
    "EncoderDecoder",
    "EncoderDecoderConfig",
    "EncoderHalf",
    "EncoderHalfConfig",
    "LSTMConfig",
    "RecurrentSeq2Seq",
    "RecurrentSeq2SeqConfig",
    "SkipThought",
    "SkipThoughtConfig",
    "State",
    "Tagger",
    "TaggerConfig",
    "TransformerXL",
    "TransformerXLConfig",
    "XLNet",
    "XLNetConfig",
    "build_backbone",
]
