"""XLM: our numbers are transformers', in both directions, with languages, given positions, padding and both heads."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from sesame.backbones import Encoder, EncoderConfig
from sesame.backbones.fast import FastEncoder
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.saving import save_parts
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.objectives import MaskedLMHead
from tests.checkpoint.test_bert_parity import noisy
from tests.checkpoint.test_task_parity import assert_equal

TINY: dict[str, Any] = {"n_words": 97, "emb_dim": 24, "n_layers": 2, "n_heads": 4, "max_position_embeddings": 40}
NAMES = {"lang2id": {"ru": 2, "en": 0, "de": 1}, "n_langs": 3}
SHAPES: dict[str, dict[str, Any]] = {
    "plain": NAMES,
    "one layer": {**NAMES, "n_layers": 1},
    "three heads": {**NAMES, "emb_dim": 33, "n_heads": 3},
    "vocabulary of 64": {**NAMES, "n_words": 64},
    "relu": {**NAMES, "gelu_activation": False},
    "another eps": {**NAMES, "layer_norm_eps": 1e-3},
    "left to right": {**NAMES, "causal": True},
    "no language": {"n_langs": 1},
    "languages not used": {**NAMES, "use_lang_emb": False},
    "untied": {**NAMES, "tie_word_embeddings": False},
}


def theirs(shape: str, kind: Any = transformers.XLMWithLMHeadModel) -> Any:
    torch.manual_seed(3)
    model = kind(transformers.XLMConfig(**{**TINY, **SHAPES[shape]})).double().eval()
    noisy(model)
    return model


def inputs(model: Any, length: int = 11) -> tuple[Batch, dict[str, Tensor]]:
    """Rows of several lengths: two sides with a language and positions of their own."""
    luck = torch.Generator().manual_seed(1)
    lengths = torch.tensor([length, length // 2, 1])
    places = torch.arange(length).expand(3, -1)
    real = places < lengths[:, None]
    ids = torch.randint(8, model.config.vocab_size, (3, length), generator=luck).masked_fill(~real, 2)
    side = places >= torch.tensor([4, 2, 1])[:, None]
    positions = torch.where(side, places - torch.tensor([4, 2, 1])[:, None], places)
    langs = torch.where(side, model.config.n_langs - 1, 0)
    said = {"input_ids": ids, "attention_mask": real.long(), "langs": langs, "position_ids": positions}
    return Batch(ids, lengths, langs=langs, positions=positions), said


@torch.no_grad()
def ours(parts: Parts, batch: Batch) -> Tensor:
    encoded = parts.backbone.eval()(batch)
    where = torch.arange(batch.ids.shape[1]) < batch.lengths[:, None]
    if "mlm" not in parts.heads:
        return encoded.last[where]
    found: Tensor = parts.heads["mlm"](encoded.last, parts.backbone.token_table())
    return found[..., : parts.backbone.vocab][where]


@torch.no_grad()
def said(model: Any, given: dict[str, Tensor]) -> Tensor:
    """Their attention rounds scores to 32 bits before the softmax, which alone makes 1e-8; here it keeps all 64."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tensor, "float", lambda x: x)
        found: Tensor = model(**given)[0]
    return found[given["attention_mask"].bool()]


@pytest.mark.parametrize("kind", [transformers.XLMWithLMHeadModel, transformers.XLMModel])
@pytest.mark.parametrize("shape", list(SHAPES))
def test_there_and_back(shape: str, kind: Any, tmp_path: Path) -> None:
    if shape == "untied" and kind is transformers.XLMModel:
        pytest.skip("no output layer")
    model = theirs(shape, kind)
    model.save_pretrained(tmp_path / "theirs")
    parts = load_parts(tmp_path / "theirs")
    assert parts.unused == []
    assert set(parts.heads) == ({"mlm"} if kind is transformers.XLMWithLMHeadModel else set())
    known = () if shape in ("no language", "languages not used") else ("en", "de", "ru")
    assert parts.backbone.config.languages == known
    batch, given = inputs(model)
    assert_equal(ours(parts, batch), said(model, given))

    (tmp_path / "ours").mkdir()
    save_parts(tmp_path / "ours", parts)
    back = kind.from_pretrained(tmp_path / "ours", dtype=torch.float64).eval()
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["model_type"] == "xlm"
    assert back.config.lang2id == {name: number for number, name in enumerate(known)}
    assert_equal(said(back, given), said(model, given))


def test_without_languages_none_is_added(tmp_path: Path) -> None:
    model = theirs("plain")
    model.save_pretrained(tmp_path)
    parts = load_parts(tmp_path)
    batch, given = inputs(model)
    silent = Batch(batch.ids, batch.lengths)
    assert_equal(ours(parts, silent), said(model, {name: given[name] for name in ("input_ids", "attention_mask")}))
    assert not torch.allclose(ours(parts, silent), ours(parts, Batch(batch.ids, batch.lengths, langs=batch.langs)))


def made(**more: Any) -> Parts:
    torch.manual_seed(5)
    config = EncoderConfig(50, 16, 2, 2, max_length=20, segments=0, languages=("en", "ru"), **more)
    parts = Parts(Encoder(config), {"mlm": MaskedLMHead(16, 16, 50, "gelu", 1e-12, plain=True)})
    noisy(parts.backbone).float()
    return parts


def test_a_folder_of_ours_keeps_its_languages_and_plain_head(tmp_path: Path) -> None:
    for number, parts in enumerate((made(), made(inner=20), made(order="pre"), made(positions="rotary"))):
        folder = tmp_path / str(number)
        folder.mkdir()
        save_parts(folder, parts)
        back = load_parts(folder)
        assert back.backbone.config.languages == ("en", "ru")
        assert (back.family == "xlm") == (number == 0)
        head = back.heads["mlm"]
        assert isinstance(head, MaskedLMHead)
        assert head.dense is None
        batch = Batch(torch.tensor([[2, 9, 3, 7]]), torch.tensor([4]), langs=torch.tensor([[0, 0, 1, 1]]))
        assert torch.equal(ours(back, batch), ours(parts, batch))


def test_every_way_to_run_an_encoder_takes_languages_and_positions() -> None:
    """Padded, unpadded, asked at some places, and the one that answers on a CPU."""
    for positions in ("learned", "sinusoidal", "rotary"):
        encoder = made(positions=positions).backbone.eval()
        ids = torch.randint(5, 50, (3, 9), generator=torch.Generator().manual_seed(0))
        lengths, places = torch.tensor([9, 7, 4]), torch.arange(9).expand(3, -1)
        batch = Batch(ids, lengths, langs=(places > 3).long(), positions=torch.where(places > 3, places - 4, places))
        real = places < lengths[:, None]
        with torch.no_grad():
            whole = encoder(batch).last[real]
            only = torch.tensor([[0, 5], [1, 6], [2, 3]])
            few = torch.gather(encoder(batch).last, 1, only[..., None].expand(-1, -1, 16))
            assert torch.allclose(encoder(batch.unpadded(8)).last[real], whole, atol=1e-5)
            assert torch.allclose(encoder(batch.unpadded(8), only).last, few, atol=1e-5)
            assert torch.allclose(encoder(batch, only).last, few, atol=1e-5)
            fast = FastEncoder(encoder)
            assert torch.allclose(fast(batch).last[real], whole, atol=1e-5)
            assert torch.allclose(fast(batch, only).last, few, atol=1e-5)
            assert not torch.allclose(encoder(Batch(ids, lengths)).last[real], whole, atol=1e-3)


def test_a_wrong_list_of_languages_is_told(tmp_path: Path) -> None:
    theirs("plain").save_pretrained(tmp_path)
    found = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**found, "lang2id": {"en": 0, "ru": 7}}))
    with pytest.raises(SesameError, match="lang2id does not number 3 languages"):
        load_parts(tmp_path)
