"""What of a folder reads a text: of a recurrent translation model its encoder (`backbones/cove.py`), of others all of it."""

from sesame.backbones import RecurrentSeq2Seq
from sesame.backbones.cove import encoder_of
from sesame.checkpoint.folder import Parts
from sesame.text.template import around


def reading(parts: Parts) -> Parts:
    """Parts whose backbone gives states of a text. Weights are shared; what only speaks is left out."""
    if not isinstance(parts.backbone, RecurrentSeq2Seq):
        return parts
    reverse = parts.speech is not None and parts.speech.reverse
    ends = (0, 1) if parts.tokenizer is None else tuple(map(len, around(parts.tokenizer)))
    return Parts(encoder_of(parts.backbone, reverse, *ends), {}, parts.tokenizer)
