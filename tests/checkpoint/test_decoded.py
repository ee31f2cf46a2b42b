"""BART's and T5's classes for texts and questions, where the decoder reads the text again: logits are theirs, both ways."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from sesame.backbones import Decoded, EncoderHalf
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.reading import reading
from sesame.checkpoint.saving import save_parts
from sesame.data.batch import Batch, Targets
from tests.checkpoint.test_bert_parity import noisy
from tests.checkpoint.test_seq2seq_parity import HALVES, T5, exact_norms

__all__ = ["exact_norms"]  # a fixture for all tests here
EOS = {"bart": 2, "t5": 1}
LABELS = {"id2label": {0: "no", 1: "maybe", 2: "yes"}, "label2id": {"no": 0, "maybe": 1, "yes": 2}}
AUTO = {"texts": transformers.AutoModelForSequenceClassification, "qa": transformers.AutoModelForQuestionAnswering}
SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "bart": {
        "plain": {},
        "odd": {"decoder_layers": 3, "encoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 17},
        "starts with another token": {"decoder_start_token_id": 5},
    },
    "t5": {
        "plain": {},
        "gated": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        "odd": {"num_layers": 1, "num_decoder_layers": 3, "num_heads": 5, "d_kv": 4},
    },
}
CASES = [(family, shape) for family, shapes in SETTINGS.items() for shape in shapes]


def made(family: str, shape: str, what: str, **more: Any) -> Any:
    base = {"bart": HALVES, "t5": T5}[family]
    config = transformers.AutoConfig.for_model(family, **{**base, **SETTINGS[family][shape], **more})
    return noisy(AUTO[what].from_config(config)).eval()


def inputs(family: str) -> tuple[Batch, Tensor, dict[str, Tensor]]:
    """Each text ends with its one end token, as their classes demand."""
    luck = torch.Generator().manual_seed(3)
    lengths = torch.tensor([11, 5, 2])
    real = torch.arange(11) < lengths[:, None]
    ids = torch.randint(6, 97, (3, 11), generator=luck).masked_fill(~real, 1 if family == "bart" else 0)
    ids[torch.arange(3), lengths - 1] = EOS[family]
    return Batch(ids, lengths), real, {"input_ids": ids, "attention_mask": real.long()}


@torch.no_grad()
def logits(parts: Parts, batch: Batch) -> Tensor:
    [task] = parts.tasks.values()
    rows = Targets(torch.zeros(3, dtype=torch.long), rows=torch.arange(3))
    batch = batch.with_targets(**{task.name: rows})
    encoded = parts.backbone.eval()(batch, task.looks_at(batch))
    return task.eval().logits(task.features(encoded), batch)


def saved(parts: Parts, folder: Path) -> Path:
    folder.mkdir()
    save_parts(folder, parts)
    return folder


@pytest.mark.parametrize(("family", "shape"), CASES)
@pytest.mark.parametrize("labels", [3, 1])
def test_texts(family: str, shape: str, labels: int, tmp_path: Path) -> None:
    theirs = made(family, shape, "texts", **(LABELS if labels == 3 else {"num_labels": 1}))
    theirs.save_pretrained(tmp_path / "theirs")
    parts = load_parts(tmp_path / "theirs", tokenizer=False)
    assert isinstance(parts.backbone, Decoded)
    assert not parts.unused
    [task] = parts.tasks.values()
    assert (task.config.kind, task.config.labels) == (
        ("classify", ("no", "maybe", "yes")) if labels == 3 else ("regress", ("LABEL_0",))
    )
    batch, _, given = inputs(family)
    with torch.no_grad():
        wanted = theirs(**given).logits
    assert (logits(parts, batch) - wanted).abs().max() < 1e-9
    folder = saved(parts, tmp_path / "ours")
    back = AUTO["texts"].from_pretrained(folder, dtype=torch.float64).eval()
    assert type(back) is type(theirs)
    with torch.no_grad():
        assert (back(**given).logits - wanted).abs().max() < 1e-9
    assert torch.equal(logits(load_parts(folder, tokenizer=False), batch), logits(parts, batch))


@pytest.mark.parametrize(("family", "shape"), CASES)
def test_questions(family: str, shape: str, tmp_path: Path) -> None:
    theirs = made(family, shape, "qa")
    theirs.save_pretrained(tmp_path / "theirs")
    parts = load_parts(tmp_path / "theirs", tokenizer=False)
    assert not parts.unused
    batch, real, given = inputs(family)
    with torch.no_grad():
        said = theirs(**given)
        wanted = torch.stack([said.start_logits, said.end_logits], -1)
        [task] = parts.tasks.values()
        found = task.eval().out(parts.backbone.eval()(batch).last)
    assert (found - wanted)[real].abs().max() < 1e-9
    back = AUTO["qa"].from_pretrained(saved(parts, tmp_path / "ours"), dtype=torch.float64).eval()
    assert type(back) is type(theirs)
    with torch.no_grad():
        assert (back(**given).start_logits - said.start_logits)[real].abs().max() < 1e-9


@pytest.mark.parametrize("family", list(SETTINGS))
def test_a_fine_tuning_starts_from_its_encoder(family: str, tmp_path: Path) -> None:
    theirs = made(family, "plain", "texts", **LABELS)
    theirs.save_pretrained(tmp_path)
    half = reading(load_parts(tmp_path, tokenizer=False)).backbone
    assert isinstance(half, EncoderHalf)
    batch, real, given = inputs(family)
    encoder = theirs.model.encoder if family == "bart" else theirs.transformer.encoder
    with torch.no_grad():
        wanted = encoder(**given).last_hidden_state
        assert (half.eval()(batch).last - wanted)[real].abs().max() < 1e-9


def test_mbarts_decoder_begins_elsewhere_and_its_head_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = transformers.MBartConfig(**HALVES, num_labels=3)
    noisy(transformers.MBartForSequenceClassification(config)).save_pretrained(tmp_path)
    assert not load_parts(tmp_path, tokenizer=False).tasks
    assert "MBartForSequenceClassification has a head that no task here computes" in capsys.readouterr().err


def test_the_padding_of_others_changes_nothing(tmp_path: Path) -> None:
    made("bart", "plain", "texts", **LABELS).save_pretrained(tmp_path)
    parts = load_parts(tmp_path, tokenizer=False)
    batch, *_ = inputs("bart")
    together = logits(parts, batch)
    [task] = parts.tasks.values()
    for row, length in enumerate(batch.lengths.tolist()):
        one = Batch(batch.ids[row : row + 1, :length], batch.lengths[row : row + 1], full=True)
        one = one.with_targets(**{task.name: Targets(torch.zeros(1, dtype=torch.long), rows=torch.arange(1))})
        with torch.no_grad():
            alone = task.logits(task.features(parts.backbone(one, task.looks_at(one))), one)
        assert (alone[0] - together[row]).abs().max() < 1e-12


def test_a_bart_that_names_no_labels_has_three(tmp_path: Path) -> None:
    theirs = made("bart", "plain", "texts", num_labels=3)
    theirs.save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    said = {name: value for name, value in json.loads(file.read_text()).items() if "label" not in name}
    file.write_text(json.dumps(said))  # transformers leaves three out, being its own number
    parts = load_parts(tmp_path, tokenizer=False)
    assert parts.tasks["classify"].config.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    batch, _, given = inputs("bart")
    with torch.no_grad():
        assert (logits(parts, batch) - theirs(**given).logits).abs().max() < 1e-9


def test_config_names_the_class(tmp_path: Path) -> None:
    made("t5", "plain", "qa").save_pretrained(tmp_path / "theirs")
    folder = saved(load_parts(tmp_path / "theirs", tokenizer=False), tmp_path / "ours")
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["T5ForQuestionAnswering"]
