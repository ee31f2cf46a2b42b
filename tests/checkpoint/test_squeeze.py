"""A fine-tuned ELECTRA or DistilBERT opens in transformers with its head: the pooler ends as that of its family."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import sesame
from sesame.checkpoint.loading import load_parts
from sesame.config import build
from sesame.errors import SesameError
from sesame.finetuning.run import Wishes, finetune
from sesame.tasks import TaskConfig
from tests.tasks.toys import examples, start_folder, write_examples

pytestmark = pytest.mark.usefixtures("one_thread")

QUICK = ["batch=16", "epochs=8", "least_steps=0", "rate_width=0", "optimizer.rate=3e-3"]
SHAPES: dict[str, dict[str, Any]] = {"electra": {"embedding_width": 16}, "distilbert": {"segments": 0}}
SQUEEZES = {"electra": "gelu", "distilbert": "relu"}


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("family", SHAPES)
def test_taught_here_and_opened_there(family: str, tmp_path: Path) -> None:
    begin = start_folder(tmp_path / "start", width=32, **SHAPES[family])
    assert load_parts(begin).family == family
    train = write_examples(tmp_path / "train.csv", "classify", examples("classify", 240, 1))
    told = examples("classify", 40, 2)
    valid = write_examples(tmp_path / "valid.csv", "classify", told)
    out = tmp_path / "run"
    given: dict[str, Any] = {"seeds": 1, "device": "cpu", "precision": "fp32", "settings": QUICK, "baselines": False}
    with torch.enable_grad():
        finetune(Wishes(str(begin), "classify", str(train), out, valid=str(valid), **given))
    results = json.loads((out / "results.json").read_text())
    assert results["scores"]["valid"][results["metric"]]["mean"] > 0.9
    model = sesame.load(out, "cpu")
    assert model.task().config.squeeze == SQUEEZES[family]
    assert set(model.parts.heads) == {"classify", "classify.pooler"}
    there, report = AutoModelForSequenceClassification.from_pretrained(out / "final", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    inputs = AutoTokenizer.from_pretrained(out / "final")([e.text for e in told], padding=True, return_tensors="pt")
    chances = there.eval()(**inputs).logits / model.task().config.temperature
    for reply, row in zip(model.predict(told), chances.softmax(-1).tolist(), strict=True):
        for number, chance in enumerate(row):
            assert abs(reply["probabilities"][there.config.id2label[number]] - chance) < 1e-4


def test_a_wrong_squeeze_is_told() -> None:
    with pytest.raises(SesameError, match="squeeze"):
        build(TaskConfig, {"kind": "classify", "squeeze": "sigmoid"}, "config.json")
