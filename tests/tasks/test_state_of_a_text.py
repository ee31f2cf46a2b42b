"""Pooling "cls": the state that stands for a text has read all of it, also where the first token has read itself alone."""

import numpy as np
import pytest
import torch

from sesame.backbones import EncoderConfig, LSTMConfig, build_backbone
from sesame.backbones.fast import FastEncoder
from sesame.tasks.embed import embed
from tests.languages import word_tokenizer

WIDTHS = {"width": 8, "depth": 2}
KINDS = {
    "encoder": (EncoderConfig(20, heads=2, max_length=12, init=0.3, **WIDTHS), 0),
    "causal": (EncoderConfig(20, heads=2, max_length=12, init=0.3, causal=True, **WIDTHS), -1),
    "lstm": (LSTMConfig(20, cell=8, **WIDTHS), -1),
    "backward": (LSTMConfig(20, cell=8, backward=True, **WIDTHS), 0),
}


@pytest.mark.parametrize("layers", ["last", "1"])
@pytest.mark.parametrize("kind", KINDS)
def test_it_has_read_all_of_it(kind: str, layers: str) -> None:
    config, place = KINDS[kind]
    torch.manual_seed(0)
    backbone, tokenizer = build_backbone(config).eval(), word_tokenizer(["a", "b", "c"])
    texts = [tokenizer.encode(text, special=True) for text in ("a b c", "a b", "a b b")]
    readers = [backbone, FastEncoder(backbone)] if isinstance(config, EncoderConfig) else [backbone]  # type: ignore[arg-type]
    for reader in readers:
        found = embed(reader, None, tokenizer, texts, layers, "cls")  # type: ignore[arg-type]
        states = embed(reader, None, tokenizer, texts, layers, "none")  # type: ignore[arg-type]
        for vector, state in zip(found, states, strict=True):
            np.testing.assert_allclose(vector.numpy(), state[place].numpy(), atol=1e-5)
        assert not torch.allclose(found[0], found[1], atol=1e-4)
        assert not torch.allclose(found[0], found[2], atol=1e-4)
