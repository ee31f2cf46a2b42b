"""Maps are the backbone's own, rows sum to 1, and encoder-decoders show both kinds."""

import numpy as np
import pytest
import torch

from sesame.backbones import BiLM, BiLMConfig, LSTMConfig, build_backbone
from sesame.checkpoint.folder import Parts
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.explain.alignment import align
from sesame.explain.attention import look
from tests.explain.explain_toys import TEXT, toy

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("kind", ["post", "pre", "rotary", "windows", "albert", "causal", "xlnet", "transformer-xl"])
@pytest.mark.parametrize("pair", [None, "da do"])
def test_all_layers_and_heads(kind: str, pair: str | None) -> None:
    parts = toy(kind, 1)
    assert parts.tokenizer is not None
    (found,) = look(parts, TEXT, pair)
    size = 9 if pair is None else 12
    assert found.rows == found.columns
    assert found.rows[:2] == ["[CLS]", "ba"]
    assert [layer.shape for layer in found.layers] == [(2, size, size)] * 2
    for layer in found.layers:
        np.testing.assert_allclose(layer.sum(-1), 1.0, atol=1e-6)
    encoding = parts.tokenizer.encode(TEXT, True) if pair is None else parts.tokenizer.encode_pair(TEXT, pair)
    segments = torch.tensor([encoding.segments]) if parts.backbone.segment_kinds else None
    with torch.inference_mode():
        maps = parts.backbone(
            Batch(torch.tensor([encoding.ids]), torch.tensor([size]), segments=segments), maps=True
        ).maps
    for layer, wanted in zip(found.layers, maps, strict=True):
        np.testing.assert_allclose(layer, wanted[0].numpy(), atol=1e-6)
    if kind in ("causal", "transformer-xl"):
        assert np.triu(found.layers[0][0], 1).max() == 0.0


@pytest.mark.parametrize("kind", ["transformer", "recurrent"])
def test_encoder_decoders_show_both_kinds(kind: str) -> None:
    parts = toy(kind, 0)
    found = look(parts, "ba de go", answer="fa fe")
    assert (found[0].rows, found[0].columns) == (["fa", "fe", "[SEP]"], ["[CLS]", "ba", "de", "go", "[SEP]"])
    for number, layer in enumerate(found[0].layers, 1):
        np.testing.assert_allclose(layer.mean(0), align(parts, "ba de go", "fa fe", number).weights, atol=1e-6)
        np.testing.assert_allclose(layer.sum(-1), 1.0, atol=1e-6)
    assert len(found) == (2 if kind == "transformer" else 1)
    if kind == "transformer":
        assert [layer.shape for layer in found[1].layers] == [(2, 5, 5)] * 2
        np.testing.assert_allclose(found[1].layers[0].sum(-1), 1.0, atol=1e-6)
        assert found[1].layers[0].std() > 1e-3
        assert not any(block._forward_pre_hooks for block in parts.backbone.encoder.blocks)  # type: ignore[union-attr]


def test_models_without_attention_and_long_texts_are_told() -> None:
    tokenizer = toy("post").tokenizer
    assert tokenizer is not None
    plain = build_backbone(LSTMConfig(len(tokenizer), width=8, depth=1))
    with pytest.raises(SesameError, match="without attention"):
        look(Parts(plain, tokenizer=tokenizer), TEXT)
    spelled = BiLM(BiLMConfig(len(tokenizer), width=8, depth=1, letter_width=5, filters=((1, 3), (3, 4))))
    spelled.spell(tokenizer)
    with pytest.raises(SesameError, match="without attention"):  # nor has it a token table
        look(Parts(spelled, tokenizer=tokenizer), TEXT)
    with pytest.raises(SesameError, match="42 tokens, the model takes 32"):
        look(toy("post"), " ".join(["ba"] * 40))
