"""Whether a model is told which text is the second: as the folder's tokenizer_config.json says, here and in transformers."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.saving import save_parts
from sesame.data.examples import Example
from sesame.pretraining.tokenizer_choice import framed_for
from sesame.recipe import resolve
from sesame.tasks.inputs import ids_and_segments
from sesame.tasks.predict import predict
from sesame.text import Tokenizer
from tests.checkpoint.test_bert_parity import TINY, noisy
from tests.tasks.toys import toy_tokenizer

SILENT = ["input_ids", "attention_mask"]
TOLD = ["input_ids", "token_type_ids", "attention_mask"]
A, B = "der Hund schläft", "die Katze"


def stranger(folder: Path, names: list[str] | None) -> Path:
    tokenizer = toy_tokenizer()
    roles = {f"{role}_token": token for role, token in tokenizer.roles.items()}
    shape = BertConfig(**TINY | {"vocab_size": len(tokenizer)}, num_labels=3)
    noisy(BertForSequenceClassification(shape)).save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend, **roles).save_pretrained(folder)
    file = folder / "tokenizer_config.json"
    if names is not None:
        file.write_text(json.dumps(json.loads(file.read_text()) | {"model_input_names": names}))
    return folder


def their_answer(folder: Path) -> torch.Tensor:
    model = BertForSequenceClassification.from_pretrained(folder, dtype=torch.float64).eval()
    with torch.no_grad():
        return model(**AutoTokenizer.from_pretrained(folder)(A, B, return_tensors="pt")).logits.softmax(-1)[0]


@pytest.mark.parametrize("names", [SILENT, TOLD, None])  # None: as transformers 5 saves it
def test_pairs_are_answered_as_there(names: list[str] | None, tmp_path: Path) -> None:
    last = stranger(tmp_path / "start", names)
    wanted = their_answer(last)
    for folder in (tmp_path / "first", tmp_path / "second"):
        parts = load_parts(last)
        assert parts.tokenizer is not None
        (reply,) = predict(parts.tasks["classify"], parts.backbone, parts.tokenizer, [Example("here:1", A, B)])
        found = torch.tensor([reply["probabilities"][label] for label in ("LABEL_0", "LABEL_1", "LABEL_2")])
        assert (found - wanted).abs().max() < 1e-6
        folder.mkdir()
        save_parts(folder, parts)
        assert torch.equal(their_answer(folder), wanted)
        last = folder


def test_a_new_model_is_told_all_the_same(tmp_path: Path) -> None:
    """What the inputs of the model were that a tokenizer comes from is nothing to the one that begins with it."""
    tokenizer = Tokenizer.load(stranger(tmp_path, SILENT))
    assert max(tokenizer.encode_pair(A, B).segments) == 0
    assert all(max(found.segments) == 0 for found in ids_and_segments(tokenizer, [A, B]))
    fresh = framed_for(tokenizer, resolve("bert"))
    assert fresh.input_names() == TOLD
    assert max(fresh.encode_pair(A, B).segments) == 1
