"""Weights that are not what config.json promises: said or refused in one sentence, never read as something else."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    ErnieConfig,
    ErnieModel,
    XLMConfig,
    XLMForMultipleChoice,
)

from sesame.checkpoint.loading import load_parts
from sesame.errors import SesameError
from tests.checkpoint.test_bert_parity import TINY, noisy

State = dict[str, Tensor]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    noisy(BertForSequenceClassification(BertConfig(**TINY, num_labels=3))).save_pretrained(tmp_path)
    return tmp_path


def rewrite(folder: Path, change: Callable[[State], State], **settings: Any) -> None:
    state = change(load_file(folder / "model.safetensors"))
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    said = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(said | settings))


def whole_numbers(state: State) -> State:
    """As quantized models keep their matrices: whole numbers, and what to multiply them with beside."""
    scales = {name.replace("weight", "SCB"): torch.ones(len(t)) for name, t in state.items() if "query.weight" in name}
    return {n: (t * 100).to(torch.int8) if "query.weight" in n else t for n, t in state.items()} | scales


@pytest.mark.parametrize(
    "settings", [{}, {"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}}]
)
def test_quantized_weights_are_not_read_as_weights(settings: dict[str, Any], folder: Path) -> None:
    rewrite(folder, whole_numbers, **settings)
    with pytest.raises(SesameError, match=r"quantized weights do not open here; .* dequantize\(\)") as error:
        load_parts(folder)
    assert ("quantization_config" if settings else "torch.int8") in str(error.value)
    assert "\n" not in str(error.value)


def test_weights_that_say_nothing_of_a_quantization_open(folder: Path) -> None:
    rewrite(folder, lambda state: state, quantization_config=None)
    assert set(load_parts(folder).tasks) == {"classify"}


@pytest.mark.parametrize("gap", ["classifier.bias", "bert.pooler.dense.weight"])
def test_a_head_that_is_not_whole_is_left_out_aloud(gap: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rewrite(folder, lambda state: {name: tensor for name, tensor in state.items() if name != gap})
    assert load_parts(folder).tasks == {}
    ours = "pooler.weight" if "pooler" in gap else "classify.bias"
    assert f"the weights lack {ours}: the head 'classify' is left out" in capsys.readouterr().err


def test_layers_that_config_json_does_not_name_are_told_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A number mistyped gave half a model, which answered like a bad one. Buffers, old heads and poolers are no news."""
    old = {"bert.embeddings.position_ids": torch.arange(4)[None], "cls.predictions.extra.3.weight": torch.ones(2)}
    rewrite(folder, lambda state: state | old)
    load_parts(folder)
    assert "layers" not in capsys.readouterr().err
    rewrite(folder, lambda state: state, num_hidden_layers=TINY["num_hidden_layers"] - 1)
    for _ in range(2):
        assert load_parts(folder).backbone.depth == TINY["num_hidden_layers"] - 1
    said = capsys.readouterr().err
    assert said.count("the weights hold more layers than config.json names, and 16 tensors are not read") == 1
    assert f"bert.encoder.layer.{TINY['num_hidden_layers'] - 1}." in said


@pytest.mark.parametrize("bits", [torch.float16, torch.bfloat16])
def test_what_is_computed_of_weights_of_16_bits_is_not_rounded_again(bits: torch.dtype, tmp_path: Path) -> None:
    """Task types are added to segments, two layers are multiplied: in 32 bits, as the model itself is."""
    types = noisy(ErnieModel(ErnieConfig(**TINY, use_task_id=True))).to(bits)
    types.save_pretrained(tmp_path / "types")
    embeddings = types.double().embeddings
    wanted = embeddings.token_type_embeddings.weight + embeddings.task_type_embeddings.weight[0]
    found = load_parts(tmp_path / "types").state()["backbone.embeddings.segments.weight"]
    assert (found - wanted).abs().max() < 1e-6

    layers = noisy(XLMForMultipleChoice(XLMConfig(n_words=97, emb_dim=24, n_layers=1, n_heads=2, num_labels=1))).to(
        bits
    )
    layers.save_pretrained(tmp_path / "layers")
    first, second = layers.double().sequence_summary.summary, layers.logits_proj
    state = load_parts(tmp_path / "layers").state()
    assert (state["choice.weight"] - second.weight @ first.weight).abs().max() < 1e-6
    assert (state["choice.bias"] - second(first.bias)).abs().max() < 1e-6


def test_weights_that_may_not_be_read_are_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(file: Path) -> dict[str, Tensor]:  # as safetensors answers; root, who runs tests too, may read all
        raise FileNotFoundError(f"No such file or directory: {file}")

    monkeypatch.setattr("sesame.checkpoint.weights.load_file", refused)
    with pytest.raises(SesameError, match=r"model\.safetensors: cannot be read; check its permissions"):
        load_parts(folder)
