"""How XLNet's and ELECTRA's classes make one vector of a text is a matter of config.json: another way is left out aloud."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from sesame.checkpoint.loading import load_parts
from sesame.data.batch import Batch
from tests.checkpoint.test_bert_parity import TINY, noisy

XLNET = {"vocab_size": 97, "d_model": 24, "n_layer": 1, "n_head": 4, "d_inner": 40}
SHAPES: dict[str, dict[str, Any]] = {"xlnet": XLNET, "electra": {**TINY, "embedding_size": 10}}
IDS = torch.arange(8, 19)[None]
LEFT_OUT: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "first": ("xlnet", "XLNetForSequenceClassification", {"summary_type": "first"}, "summary_type = 'first'"),
    "no end": ("xlnet", "XLNetForMultipleChoice", {"summary_activation": ""}, "summary_activation = ''"),
    "no layer": ("xlnet", "XLNetForSequenceClassification", {"summary_use_proj": False}, "summary_use_proj = False"),
    "beam": ("xlnet", "XLNetForQuestionAnswering", {}, "it searches with a beam"),
    "mean": ("electra", "ElectraForMultipleChoice", {"summary_type": "mean"}, "summary_type = 'mean'"),
    "straight": ("electra", "ElectraForMultipleChoice", {"summary_activation": ""}, "summary_activation = ''"),
}


@torch.no_grad()
@pytest.mark.parametrize("case", LEFT_OUT)
def test_another_summary_is_left_out_aloud(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    family, name, more, why = LEFT_OUT[case]
    model = noisy(getattr(transformers, name)(transformers.AutoConfig.for_model(family, **SHAPES[family], **more)))
    model.save_pretrained(tmp_path)
    capsys.readouterr()  # their bar
    parts = load_parts(tmp_path)
    assert (parts.tasks, parts.heads) == ({}, {})
    assert f"{name} has a head that no task here computes ({why}); left out" in capsys.readouterr().err
    found = parts.backbone.eval()(Batch(IDS, torch.tensor([IDS.shape[1]]))).last
    assert (found - model.base_model(IDS).last_hidden_state).abs().max() < 1e-9


@pytest.mark.parametrize("name", ["XLNetLMHeadModel", "XLNetForTokenClassification"])
def test_a_class_without_a_summary_takes_no_notice(name: str, tmp_path: Path) -> None:
    config = transformers.XLNetConfig(**XLNET, summary_type="mean", summary_activation="")
    noisy(getattr(transformers, name)(config)).save_pretrained(tmp_path)
    parts = load_parts(tmp_path)
    assert {*parts.heads, *parts.tasks} == {"plm" if name.endswith("LMHeadModel") else "tag"}
