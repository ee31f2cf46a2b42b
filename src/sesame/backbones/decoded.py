"""An encoder-decoder that reads a text twice: the encoder reads it, and the decoder reads it again, one place behind.

Paper: Lewis et al. 2020, "BART", section 3.1 (https://arxiv.org/abs/1910.13461): for tasks on whole texts and on tokens the
same input goes into both halves, and the decoder's states are the text's; that of the last token, which has seen all of it,
stands for the whole. transformers' classes of BART and T5 for texts and questions compute it, and so published ones open
here. `encoder_half.py`, which costs half of it, is what a fine-tuning starts from.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from sesame.backbones.base import Encoded
from sesame.backbones.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from sesame.data.batch import Batch


@dataclass(frozen=True)
class DecodedConfig(EncoderDecoderConfig):
    start: int = 0  # the token that the decoder reads first


class Decoded(EncoderDecoder):
    config: DecodedConfig
    answers = False
    cls_last = True

    def __init__(self, config: DecodedConfig) -> None:
        super().__init__(config)
        self.depth = len(self.decoder.blocks)

    @property
    def blocks(self) -> nn.ModuleList:  # type: ignore[override]
        return self.decoder.blocks

    @property
    def longest(self) -> int | None:
        return self.config.max_length  # of T5 too: its cost grows by the square

    def forward(self, batch: Batch, only: Tensor | None = None, maps: bool = False) -> Encoded:
        first = torch.full_like(batch.ids[:, :1], self.config.start)
        outputs = torch.cat([first, batch.ids[:, :-1]], 1)
        return super().forward(replace(batch, outputs=outputs), only, maps)
