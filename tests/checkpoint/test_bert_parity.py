"""Our BERT and transformers' BERT compute the same, in both directions, with all heads."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForMaskedLM,
    BertConfig,
    BertForMaskedLM,
    BertForNextSentencePrediction,
    BertForPreTraining,
    BertModel,
    EsmConfig,
    EsmForMaskedLM,
    MegatronBertConfig,
    MegatronBertForPreTraining,
    PreTrainedModel,
)

from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.saving import save_parts
from sesame.data.batch import Batch

TINY = {"vocab_size": 97, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
SHAPES: dict[str, dict[str, Any]] = {
    "one layer": {"num_hidden_layers": 1},
    "three heads": {"hidden_size": 33, "num_attention_heads": 3, "intermediate_size": 17},
    "no segments": {"type_vocab_size": 1},
    "many segments": {"type_vocab_size": 5},
    "another eps": {"layer_norm_eps": 1e-3},
    "relu": {"hidden_act": "relu"},
    "gelu by tanh": {"hidden_act": "gelu_new"},
    "long": {"max_position_embeddings": 700},
    "vocabulary of 64": {"vocab_size": 64},
    "one head": {"num_attention_heads": 1},
}


def noisy(model: PreTrainedModel, seed: int = 0) -> Any:
    """Fill everything with noise: zeros and ones at the start would hide a swapped or unloaded tensor."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.3)
    return model.double().eval()


def ragged(config: Any, length: int = 11) -> tuple[Batch, dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, config.vocab_size, (3, length), generator=generator)
    segments = torch.randint(0, config.type_vocab_size, (3, length), generator=generator)
    lengths = torch.tensor([length, length // 2, 1])
    mask = (torch.arange(length)[None] < lengths[:, None]).long()
    return Batch(ids, lengths, segments=segments), {
        "input_ids": ids,
        "token_type_ids": segments,
        "attention_mask": mask,
    }


def answers(parts: Parts, batch: Batch) -> dict[str, torch.Tensor]:
    parts.backbone.eval()
    with torch.no_grad():
        encoded = parts.backbone(batch)
        real = batch.mask()
        assert real is not None
        found = {"hidden": encoded.last[real]}
        if "mlm" in parts.heads:
            logits = parts.heads["mlm"](encoded.last, parts.backbone.token_table())
            found["mlm"] = logits[..., : parts.backbone.vocab][real]
            assert torch.isinf(logits[..., parts.backbone.vocab :]).all()
        if "pooler" in parts.heads:
            found["pooled"] = parts.heads["pooler"](encoded.last[:, 0]).tanh()
            if "nsp" in parts.heads:
                found["nsp"] = parts.heads["nsp"](found["pooled"])
    return found


def assert_equal(found: torch.Tensor, wanted: torch.Tensor, tolerance: float = 1e-9) -> None:
    assert found.shape == wanted.shape
    assert (found - wanted).abs().max() < tolerance


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("family", ["bert", "megatron"])
def test_pretraining_model_both_ways(shape: str, family: str, tmp_path: Path) -> None:
    kinds = {"bert": (BertConfig, BertForPreTraining), "megatron": (MegatronBertConfig, MegatronBertForPreTraining)}
    config = kinds[family][0](**{**TINY, **SHAPES[shape]})
    theirs = noisy(kinds[family][1](config))
    theirs.save_pretrained(tmp_path / "theirs")
    parts = load_parts(tmp_path / "theirs")
    batch, inputs = ragged(config, 600 if shape == "long" else 11)
    found = answers(parts, batch)
    with torch.no_grad():
        wanted = theirs(**inputs, output_hidden_states=True)
    real = inputs["attention_mask"].bool()
    assert_equal(found["hidden"], wanted.hidden_states[-1][real])
    assert_equal(found["mlm"], wanted.prediction_logits[real])
    assert_equal(found["nsp"], wanted.seq_relationship_logits)
    assert parts.unused == []

    (tmp_path / "ours").mkdir()
    save_parts(tmp_path / "ours", parts)
    back, report = kinds[family][1].from_pretrained(tmp_path / "ours", output_loading_info=True, dtype=torch.float64)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    with torch.no_grad():
        again = back.eval()(**inputs)
    assert_equal(again.prediction_logits[real], wanted.prediction_logits[real])
    assert_equal(again.seq_relationship_logits, wanted.seq_relationship_logits)
    assert back.config.architectures == [kinds[family][1].__name__]


def test_bare_model_and_masked_model(tmp_path: Path) -> None:
    config = BertConfig(**TINY)
    batch, inputs = ragged(config)
    bare = noisy(BertModel(config))
    bare.save_pretrained(tmp_path / "bare")
    parts = load_parts(tmp_path / "bare")
    assert set(parts.heads) == {"pooler"}
    with torch.no_grad():
        assert_equal(answers(parts, batch)["pooled"], bare(**inputs).pooler_output)
    masked = noisy(BertForMaskedLM(config))
    masked.save_pretrained(tmp_path / "masked")
    parts = load_parts(tmp_path / "masked")
    assert set(parts.heads) == {"mlm"}
    (tmp_path / "ours").mkdir()
    save_parts(tmp_path / "ours", parts)
    back = AutoModelForMaskedLM.from_pretrained(tmp_path / "ours", dtype=torch.float64).eval()
    with torch.no_grad():
        assert_equal(back(**inputs).logits, masked(**inputs).logits)


def test_next_sentences_alone(tmp_path: Path) -> None:
    """A head without masks beside it was written into a BertModel, which knows nothing of it."""
    config = BertConfig(**TINY)
    theirs = noisy(BertForNextSentencePrediction(config))
    theirs.save_pretrained(tmp_path / "theirs")
    batch, inputs = ragged(config)
    parts = load_parts(tmp_path / "theirs")
    with torch.no_grad():
        wanted = theirs(**inputs).logits
    assert_equal(answers(parts, batch)["nsp"], wanted)
    (tmp_path / "ours").mkdir()
    save_parts(tmp_path / "ours", parts)
    back, report = BertForNextSentencePrediction.from_pretrained(
        tmp_path / "ours", output_loading_info=True, dtype=torch.float64
    )
    assert not any(report.values())
    assert back.config.architectures == ["BertForNextSentencePrediction"]
    with torch.no_grad():
        assert_equal(back.eval()(**inputs).logits, wanted)


def test_untied_output_layer_survives(tmp_path: Path) -> None:
    config = BertConfig(**TINY, tie_word_embeddings=False)
    theirs = noisy(BertForMaskedLM(config))
    theirs.save_pretrained(tmp_path / "theirs")
    batch, inputs = ragged(config)
    parts = load_parts(tmp_path / "theirs")
    with torch.no_grad():
        wanted = theirs(**inputs).logits
    assert_equal(answers(parts, batch)["mlm"], wanted[inputs["attention_mask"].bool()])
    (tmp_path / "ours").mkdir()
    save_parts(tmp_path / "ours", parts)
    back = BertForMaskedLM.from_pretrained(tmp_path / "ours", dtype=torch.float64).eval()
    with torch.no_grad():
        assert_equal(back(**inputs).logits, wanted)


def test_old_names_bin_file_and_shards(tmp_path: Path) -> None:
    config = BertConfig(**TINY)
    theirs = noisy(BertForPreTraining(config))
    batch, inputs = ragged(config)
    with torch.no_grad():
        wanted = theirs(**inputs).prediction_logits[inputs["attention_mask"].bool()]

    old = tmp_path / "old"
    old.mkdir()
    state = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in theirs.state_dict().items()
    }
    torch.save(state, old / "pytorch_model.bin")
    described = {key: value for key, value in config.to_dict().items() if key not in ("model_type", "architectures")}
    import json

    (old / "config.json").write_text(json.dumps(described))
    assert_equal(answers(load_parts(old), batch)["mlm"], wanted)

    theirs.save_pretrained(tmp_path / "shards", max_shard_size="10KB")
    assert len(list((tmp_path / "shards").glob("model-*.safetensors"))) > 1
    assert_equal(answers(load_parts(tmp_path / "shards"), batch)["mlm"], wanted)


def test_padding_never_leaks() -> None:
    """A row alone and the same row in a batch give the same states, whether the padding is masked or left out."""
    from sesame.backbones import Encoder, EncoderConfig

    torch.manual_seed(0)
    for positions in ("learned", "sinusoidal", "rotary"):
        for order in ("post", "pre", "branch"):
            config = EncoderConfig(50, 16, 2, 2, positions=positions, order=order)  # type: ignore[arg-type]
            encoder = Encoder(config).double().eval()
            ids = torch.randint(0, 50, (3, 9))
            lengths = torch.tensor([9, 4, 1])
            both = encoder(Batch(ids, lengths))
            unpadded = encoder(Batch(ids, lengths).unpadded(8))  # 14 tokens and a fill of 2
            for row, length in enumerate(lengths.tolist()):
                alone = encoder(Batch(ids[row : row + 1, :length], lengths[row : row + 1], full=True)).last[0]
                assert_equal(both.last[row, :length], alone, 1e-12)
                assert_equal(unpadded.last[row, :length], alone, 1e-12)
                assert not unpadded.layers[1][row, length:].any()
            only = torch.tensor([[0, 3], [3, 0], [0, 0]])
            assert_equal(encoder(Batch(ids, lengths), only).take(only[:, :1]), both.take(only[:, :1]), 1e-12)
            assert_equal(encoder(Batch(ids, lengths), only).last, both.take(only), 1e-12)
            for multiple in (1, 7, 64):
                assert_equal(encoder(Batch(ids, lengths).unpadded(multiple), only).last, both.take(only), 1e-12)
            assert dataclasses.asdict(config)["order"] == order


def test_norms_first_with_rotary_positions_open_as_esm(tmp_path: Path) -> None:
    config = EsmConfig(
        vocab_size=97, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40, pad_token_id=0,
        mask_token_id=4, position_embedding_type="rotary", emb_layer_norm_before=False, token_dropout=False,
        layer_norm_eps=1e-6,
    )  # fmt: skip
    theirs = noisy(EsmForMaskedLM(config))
    theirs.save_pretrained(tmp_path / "theirs")
    config.type_vocab_size = 1
    batch, inputs = ragged(config)
    inputs = {"input_ids": inputs["input_ids"].clamp(min=5), "attention_mask": inputs["attention_mask"]}
    parts = load_parts(tmp_path / "theirs")
    found = answers(parts, dataclasses.replace(batch, ids=inputs["input_ids"], segments=None))
    real = inputs["attention_mask"].bool()
    with torch.no_grad():
        wanted = theirs(**inputs).logits[real]
    assert_equal(found["mlm"], wanted, 1e-6)  # transformers turns the heads in float32, whatever the model's precision
    (tmp_path / "ours").mkdir()
    save_parts(tmp_path / "ours", parts)
    back, report = AutoModelForMaskedLM.from_pretrained(
        tmp_path / "ours", dtype=torch.float64, output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    with torch.no_grad():
        assert_equal(back.eval()(**inputs).logits[real], wanted)
