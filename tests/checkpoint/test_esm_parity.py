"""ESM: settings that change what is computed are read, written again, or refused; none is passed over in silence."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from sesame.checkpoint.loading import load_parts
from sesame.data.batch import Batch
from sesame.errors import SesameError
from tests.checkpoint.test_bert_parity import noisy
from tests.checkpoint.test_families import ours, theirs, write

TINY: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 41,
    "max_position_embeddings": 37, "pad_token_id": 1, "mask_token_id": 4, "position_embedding_type": "rotary",
    "emb_layer_norm_before": False, "token_dropout": False,
}  # fmt: skip
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "untied": (transformers.EsmForMaskedLM, {"tie_word_embeddings": False}),
    "other angles": (transformers.EsmForMaskedLM, {"rope_theta": 31.0}),
    "with its pooler": (transformers.EsmModel, {"layer_norm_eps": 1e-3}),
}


def ragged() -> tuple[Batch, dict[str, Tensor]]:
    lengths = torch.tensor([23, 11, 1])
    real = torch.arange(23) < lengths[:, None]
    ids = torch.randint(5, 97, (3, 23), generator=torch.Generator().manual_seed(1)).masked_fill(~real, 1)
    return Batch(ids, lengths), {"input_ids": ids, "attention_mask": real.long()}


@pytest.mark.parametrize("case", CASES)
def test_both_ways(case: str, tmp_path: Path) -> None:
    kind, more = CASES[case]
    model = noisy(kind(transformers.EsmConfig(**TINY, **more)))
    model.save_pretrained(tmp_path / "theirs")
    parts, (batch, inputs) = load_parts(tmp_path / "theirs"), ragged()
    found, wanted = ours(parts, batch), theirs(model, inputs)
    assert parts.unused == []
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert (found[name] - tensor).abs().max() < 1e-6, name  # transformers turns queries and keys in 32 bits
    folder = write(parts, tmp_path / "ours")
    back, report = kind.from_pretrained(folder, output_loading_info=True, dtype=torch.float64)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    for name, tensor in theirs(back.eval(), inputs).items():
        assert torch.equal(tensor, wanted[name]), name
    assert load_parts(folder).backbone.config == parts.backbone.config


@pytest.mark.parametrize("key", ["is_decoder", "add_cross_attention"])
def test_a_decoder_is_refused(key: str, tmp_path: Path) -> None:
    described = transformers.EsmConfig(**TINY).to_dict() | {key: True}
    (tmp_path / "config.json").write_text(json.dumps(described))
    with pytest.raises(SesameError, match=f"{key} = True is not supported; only False is"):
        load_parts(tmp_path)
