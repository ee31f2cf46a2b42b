"""Backbones as speakers: hidden states become logits, a `State` is the memory.

    decoder           the prompt goes in at once, then token by token; keys and values are kept
    encoder-decoder   the source is read once, then the decoder goes on from its first tokens (`batch.outputs`)
                      on a CPU by a `FastDecoder`, unless somebody asks where it looks

The output layer belongs to whoever trained it, so it comes as a function from states (N, D) to logits (N, V padded).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sesame.backbones import Backbone, Encoded, State
from sesame.backbones.fast_decoder import Branches, FastDecoder
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.generate.base import Heard, Memory

Head = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class BackboneSpeaker:
    backbone: Backbone
    head: Head

    @property
    def vocab(self) -> int:
        return self.backbone.vocab

    @torch.inference_mode()
    def begin(self, batch: Batch, looks: bool = False) -> Heard:
        if self.backbone.answers and batch.outputs is None:
            raise SesameError("an encoder-decoder must be told its first token; give outputs, such as the start token")
        encoded = self.backbone.go_on(batch, State(), looks)
        if batch.outputs is not None:
            return self._heard(encoded, encoded.last[:, -1])
        last = (batch.lengths - 1)[:, None, None].expand(-1, 1, self.backbone.width)
        return self._heard(encoded, encoded.last.gather(1, last)[:, 0])

    @torch.inference_mode()
    def next(self, ids: Tensor, memory: Memory, looks: bool = False) -> Heard:
        assert isinstance(memory, State)
        batch = Batch(ids[:, None], torch.ones_like(ids), full=True)
        if memory.source:
            batch = replace(batch, outputs=ids[:, None])
        encoded = self.backbone.go_on(batch, memory, looks)
        return self._heard(encoded, encoded.last[:, -1])

    def _heard(self, encoded: Encoded, hidden: Tensor) -> Heard:
        logits = self.head(hidden)[:, : self.vocab]
        assert encoded.state is not None
        looked = encoded.maps[-1][:, :, -1].mean(1) if encoded.maps else None
        return Heard(logits.float() if logits.dtype == torch.bfloat16 else logits, encoded.state, looked)


@dataclass(frozen=True)
class FastSpeaker:
    """An encoder-decoder on a CPU, in 32 bits. The packed output layer gives (N, V)."""

    plain: BackboneSpeaker
    decoder: FastDecoder
    head: Head

    @property
    def vocab(self) -> int:
        return self.plain.vocab

    def begin(self, batch: Batch, looks: bool = False) -> Heard:
        heard = self.plain.begin(batch, looks)
        if looks:
            return heard
        assert isinstance(heard.memory, State)
        return Heard(heard.logits, self.decoder.take_over(heard.memory))

    @torch.inference_mode()
    def next(self, ids: Tensor, memory: Memory, looks: bool = False) -> Heard:
        if isinstance(memory, State):
            return self.plain.next(ids, memory, looks)
        assert isinstance(memory, Branches)
        hidden, after = self.decoder.next(ids, memory)
        return Heard(self.head(hidden), after)
