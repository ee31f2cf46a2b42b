"""What of a folder reads a text: of an encoder-decoder its encoder (`backbones/encoder_half.py`), of others all of it.

Of recurrent ones an LSTM in one direction without attention, as a sequence autoencoder has it, is a plain LSTM
(`backbones/reader.py`: Dai & Le 2015); any other encoder gives context vectors beside those of the tokens
(`backbones/cove.py`: McCann et al. 2017), and so does one that was taught to read sources from their end: the separator
came last then too, which no plain LSTM knows.
"""

from sesame.backbones import EncoderDecoder, RecurrentSeq2Seq
from sesame.backbones.cove import encoder_of
from sesame.backbones.encoder_half import half_of
from sesame.backbones.reader import is_plain, reader_of
from sesame.checkpoint.folder import Parts
from sesame.text.template import around


def reading(parts: Parts) -> Parts:
    """Parts whose backbone gives states of a text. What only speaks is left out."""
    backbone = parts.backbone
    if not isinstance(backbone, EncoderDecoder | RecurrentSeq2Seq):
        return parts
    reverse = parts.speech is not None and parts.speech.reverse
    ends = (0, 1) if parts.tokenizer is None else tuple(map(len, around(parts.tokenizer)))
    if isinstance(backbone, EncoderDecoder):
        half = half_of(backbone, reverse, *ends) if reverse else half_of(backbone)
        return Parts(half, {}, parts.tokenizer, pad=parts.pad)
    if is_plain(backbone.config) and not reverse:
        return Parts(reader_of(backbone), {}, parts.tokenizer)
    return Parts(encoder_of(backbone, reverse, *ends), {}, parts.tokenizer)
