"""The encoder of an encoder-decoder by itself: its states are transformers', it is taught and saved, T5's opens there."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from sesame.backbones import EncoderDecoder, EncoderDecoderConfig, EncoderHalf, EncoderHalfConfig
from sesame.backbones.encoder_half import half_of
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.reading import reading
from sesame.checkpoint.saving import save_parts
from sesame.data.batch import Batch
from sesame.tasks import TaskConfig, build_task
from tests.checkpoint.test_bert_parity import noisy
from tests.checkpoint.test_seq2seq_parity import CASES, SHAPES, T5, exact_norms, inputs, made

__all__ = ["exact_norms"]  # a fixture for all tests here
HALVES = [(shape, family) for shape, family in CASES if "untied" not in shape]
T5S = [shape for shape, family in HALVES if family == "t5"]


@torch.no_grad()
def states(backbone: Any, batch: Batch) -> tuple[Tensor, ...]:
    return tuple(backbone.eval()(batch).layers)


def real_of(batch: Batch) -> Tensor:
    return torch.arange(batch.ids.shape[1]) < batch.lengths[:, None]


@pytest.mark.parametrize(("shape", "family"), HALVES)
def test_the_states_are_those_of_their_encoder(shape: str, family: str, tmp_path: Path) -> None:
    theirs = made(family, shape, bare=True)
    theirs.save_pretrained(tmp_path)
    batch, _, given = inputs(theirs.config.vocab_size)
    half = reading(load_parts(tmp_path, tokenizer=False)).backbone
    assert isinstance(half, EncoderHalf)
    found, real = states(half, batch), real_of(batch)
    with torch.no_grad():
        wanted = theirs(**given, output_hidden_states=True)
    assert (found[-1] - wanted.encoder_last_hidden_state)[real].abs().max() < 1e-9
    assert len(found) == half.depth + 1 == len(wanted.encoder_hidden_states)
    for ours, layer in zip(found[:-1], wanted.encoder_hidden_states[:-1], strict=True):
        assert (ours - layer)[real].abs().max() < 1e-9


def test_padding_and_few_places_change_nothing() -> None:
    torch.manual_seed(0)
    for positions in ("relative", "learned", "sinusoidal"):
        config = EncoderHalfConfig(50, 16, 2, 2, positions=positions, dropout=0.0)  # type: ignore[arg-type]
        half = noisy(EncoderHalf(config).double())
        batch, *_ = inputs(50)
        whole = states(half, batch)[-1]
        for row, length in enumerate(batch.lengths.tolist()):
            alone = Batch(batch.ids[row : row + 1, :length], batch.lengths[row : row + 1], full=True)
            assert (states(half, alone)[-1][0] - whole[row, :length]).abs().max() < 1e-12
        few = torch.tensor([[0, 3], [2, 5], [0, 0]])
        wanted = torch.stack([whole[row, at] for row, at in enumerate(few)])
        assert (half(batch, few).last - wanted).abs().max() < 1e-12
        maps = half(batch, maps=True).maps
        assert len(maps) == 2
        assert torch.allclose(maps[0][0].sum(-1), torch.ones(2, 13).double())


def test_sources_that_were_learnt_from_their_end_are_read_from_there() -> None:
    torch.manual_seed(0)
    whole = noisy(EncoderDecoder(EncoderDecoderConfig(50, 16, 2, 2, dropout=0.0)).double()).eval()
    ids = torch.tensor([[5, 6, 7, 8, 2], [9, 4, 2, 0, 0]])
    wanted = whole.read(Batch(torch.tensor([[8, 7, 6, 5, 2], [4, 9, 2, 0, 0]]), torch.tensor([5, 3])))
    found = half_of(whole, reverse=True, front=0, back=1)(Batch(ids, torch.tensor([5, 3]))).last
    assert (found[0] - wanted[0, [3, 2, 1, 0, 4]]).abs().max() < 1e-12
    assert (found[1, :3] - wanted[1, [1, 0, 2]]).abs().max() < 1e-12


@pytest.mark.parametrize("shape", T5S)
def test_t5s_encoder_opens_there_and_theirs_here(shape: str, tmp_path: Path) -> None:
    config = transformers.T5Config(**{**T5, **SHAPES[shape]["t5"]})
    theirs = noisy(transformers.T5EncoderModel(config))
    theirs.save_pretrained(tmp_path / "theirs")
    parts = load_parts(tmp_path / "theirs", tokenizer=False)
    assert isinstance(parts.backbone, EncoderHalf)
    assert not parts.unused
    batch, _, given = inputs(config.vocab_size)
    ask = {name: given[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        wanted = theirs(**ask).last_hidden_state
    real = real_of(batch)
    assert (states(parts.backbone, batch)[-1] - wanted)[real].abs().max() < 1e-9
    (tmp_path / "ours").mkdir()
    save_parts(tmp_path / "ours", Parts(parts.backbone))
    back, report = transformers.T5EncoderModel.from_pretrained(
        tmp_path / "ours", dtype=torch.float64, output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    with torch.no_grad():
        assert (back.eval()(**ask).last_hidden_state - wanted)[real].abs().max() < 1e-9
    again = load_parts(tmp_path / "ours", tokenizer=False).backbone
    assert torch.equal(states(again, batch)[-1], states(parts.backbone, batch)[-1])


@pytest.mark.parametrize("gated", [False, True])
def test_its_tagger_opens_there_and_theirs_here(gated: bool, tmp_path: Path) -> None:
    more = {"feed_forward_proj": "gated-gelu"} if gated else {}
    config = transformers.T5Config(**T5, **more, id2label={0: "O", 1: "B-x", 2: "I-x"}, architectures=None)
    theirs = noisy(transformers.T5ForTokenClassification(config))
    theirs.save_pretrained(tmp_path / "theirs")
    parts = load_parts(tmp_path / "theirs", tokenizer=False)
    assert not parts.unused
    [task] = parts.tasks.values()
    assert task.config.labels == ("O", "B-x", "I-x")
    batch, _, given = inputs(97)
    ask = {name: given[name] for name in ("input_ids", "attention_mask")}
    real = real_of(batch)
    with torch.no_grad():
        wanted = theirs.eval()(**ask).logits
        found = task.eval().logits(task.features(parts.backbone.eval()(batch)), batch)
    assert (found - wanted)[real].abs().max() < 1e-9
    (tmp_path / "ours").mkdir()
    save_parts(tmp_path / "ours", parts)
    back = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "ours", dtype=torch.float64).eval()
    assert back.config.id2label == {0: "O", 1: "B-x", 2: "I-x"}
    with torch.no_grad():
        assert (back(**ask).logits - wanted)[real].abs().max() < 1e-9


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_what_no_class_holds_is_kept_in_our_way(family: str, tmp_path: Path) -> None:
    made(family, "plain", bare=True).float().save_pretrained(tmp_path / "start")
    half = reading(load_parts(tmp_path / "start", tokenizer=False)).backbone
    task = build_task("mood", TaskConfig("classify", ("bad", "good"), pooling="mean"), half)
    parts = Parts(half, task.heads(), tasks={"mood": task})
    (tmp_path / "taught").mkdir()
    save_parts(tmp_path / "taught", parts)
    kind = json.loads((tmp_path / "taught/config.json").read_text())["architectures"][0]
    assert kind == ("T5EncoderModel" if family == "t5" else "SesameEncoderHalf")
    again = load_parts(tmp_path / "taught", tokenizer=False)
    batch, *_ = inputs(97)
    assert torch.equal(states(again.backbone, batch)[-1], states(half, batch)[-1])
    for ours, back in zip(task.parameters(), again.tasks["mood"].parameters(), strict=True):
        assert torch.equal(ours, back)
