"""The encoder of a recurrent encoder-decoder by itself: what it has learnt of texts, for tasks that read them.

Paper: Dai & Le 2015 (https://arxiv.org/abs/1511.01432): a sequence autoencoder is an encoder-decoder whose answer is its
source; the encoder then starts a classifier.
"""

import torch

from sesame.backbones.lstm import LSTM, LSTMConfig
from sesame.backbones.recurrent_seq2seq import RecurrentSeq2Seq, RecurrentSeq2SeqConfig

LONGEST = 512  # tokens that are read at once; nothing in either model ends there


def is_plain(c: RecurrentSeq2SeqConfig) -> bool:
    """Whether the encoder is an LSTM like any other, which nobody looks back at."""
    one_way = c.cell == "lstm" and not c.bidirectional and not c.residual
    return one_way and c.attention == "none" and c.state == c.width


@torch.no_grad()
def reader_of(backbone: RecurrentSeq2Seq) -> LSTM:
    """An LSTM with the weights of its token table and its encoder."""
    c = backbone.config
    assert is_plain(c)
    found = LSTM(
        LSTMConfig(
            c.vocab,
            c.width,
            c.depth,
            c.width,
            False,
            c.dropout,
            c.dropout,
            c.dropout,
            0.0,
            0.0,
            LONGEST,
            c.init or 0.1,
        )
    )
    found.tokens.load_state_dict(backbone.tokens.state_dict())
    for block, layer in zip(found.blocks, backbone.encoder.layers, strict=True):
        block.layers[0].load_state_dict(layer.state_dict())  # type: ignore[union-attr, index]
    return found
