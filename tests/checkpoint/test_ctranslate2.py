"""The export for CTranslate2 says what our model says; skipped where that engine is not installed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sesame.backbones import EncoderDecoder, EncoderDecoderConfig
from sesame.checkpoint.ctranslate2 import LIMITS, check, export, vocabulary
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.speech import Speech, answers, speaker
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.generate import Settings, generate
from sesame.objectives.decoder_head import DecoderHead
from sesame.text import Tokenizer
from sesame.text.samples import ENGLISH
from sesame.text.train import train_tokenizer

MARIAN = EncoderDecoderConfig(350, 64, 2, 4, decoder_depth=3, inner=96, max_length=80)
SHAPES = {
    "marian": replace(MARIAN, activation="silu"),
    "transformer": MARIAN,
    "pegasus": replace(MARIAN, order="pre"),
    "bart": replace(MARIAN, positions="learned", activation="gelu", embedding_norm=True, grow=False),
    "mbart": replace(MARIAN, positions="learned", activation="gelu", embedding_norm=True, order="pre"),
}
SEEDS = (0, 1, 2)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(ENGLISH, "bpe", 300, template="end")


def made(tokenizer: Tokenizer, shape: str, seed: int, noise: float = 0.15) -> Parts:
    """Random weights whose answers are not all one token, and end at times."""
    torch.manual_seed(seed)
    backbone = EncoderDecoder(SHAPES[shape])  # with dropout, as a folder gives it
    with torch.no_grad():
        for weight in backbone.parameters():
            weight.add_(torch.randn_like(weight) * noise)
    head = DecoderHead(64, 350, tied=seed != 1, bias="fixed")
    head.bias.normal_()
    end, pad = tokenizer.id("sep"), tokenizer.id("pad")
    head.bias[end], head.bias[pad] = 2.0, 9.0
    return Parts(
        backbone, {"seq2seq": head}, tokenizer, speech=Speech(start=(pad,), end=(end,), pad=pad, banned=((pad,),))
    )


def theirs(folder: Path, tokenizer: Tokenizer, beams: int) -> list[list[str]]:
    engine: Any = pytest.importorskip("ctranslate2")
    translator = engine.Translator(str(folder), device="cpu", intra_threads=1)
    rows = [tokenizer.backend.encode(text).tokens for text in ENGLISH]
    found = translator.translate_batch(rows, beam_size=beams, max_decoding_length=12, min_decoding_length=0)
    return [one.hypotheses[0] for one in found]


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_answers(tokenizer: Tokenizer, tmp_path: Path, shape: str, seed: int) -> None:
    pytest.importorskip("ctranslate2")
    parts = made(tokenizer, shape, seed)
    assert export(tmp_path, parts).difference < 1e-4
    assert {"model.bin", "tokenizer.json", "README.md"} <= {file.name for file in tmp_path.iterdir()}
    encoded = tokenizer.encode_batch(list(ENGLISH), special=True)
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(one.ids) for one in encoded], True)
    batch = Batch(ids, torch.tensor([len(one.ids) for one in encoded]), outputs=torch.zeros(len(encoded), 1).long())
    found = generate(speaker(parts), batch, Settings(most=12, never=(0,)), (tokenizer.id("sep"),))
    ours = [[tokenizer.backend.id_to_token(id) or f"<unused {id}>" for id in one[0].ids] for one in found]
    assert theirs(tmp_path, tokenizer, 1) == ours
    assert len({tuple(row) for row in ours}) > 2


def test_eight_bits_and_weights_that_stay(tokenizer: Tokenizer, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    parts = made(tokenizer, "marian", 0, noise=0.0)
    before = {name: tensor.clone() for name, tensor in parts.state().items()}
    (tmp_path / "whole").mkdir()
    (tmp_path / "small").mkdir()
    whole, small = export(tmp_path / "whole", parts), export(tmp_path / "small", parts, "int8")
    assert whole.difference < small.difference < LIMITS["int8"]
    assert (tmp_path / "small/model.bin").stat().st_size < 0.5 * (tmp_path / "whole/model.bin").stat().st_size
    assert all(torch.equal(tensor, before[name]) for name, tensor in parts.state().items())
    with torch.no_grad():
        parts.backbone.token_table().mul_(1.5)
    assert check(tmp_path / "whole", parts, ENGLISH).difference > 0.01  # the check can fail


def test_reversed_sources_and_what_is_never_said(
    tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lines of README.md say what our model says, which reads sources from their end and must not say its first word."""
    engine: Any = pytest.importorskip("ctranslate2")
    parts, asked = made(tokenizer, "transformer", 0), {"most": 12, "beams": 1}
    word = answers(parts, [ENGLISH[0]], asked)[0][0].ids[0]
    parts = replace(parts, speech=replace(parts.speech or Speech(), reverse=True, plain=True, suppressed=(word,)))
    export(tmp_path, parts)
    assert "README.md shows how" in capsys.readouterr().err
    lines = [line[4:] for line in (tmp_path / "README.md").read_text().splitlines() if line.startswith("    ")]
    code = "\n".join(lines[2:-1]).replace("beam_size=5", "beam_size=1, max_decoding_length=12, min_decoding_length=0")
    given = {"tokenizer": tokenizer.backend, "translator": engine.Translator(str(tmp_path), device="cpu")}
    names, spaced = vocabulary(tokenizer, 350), [f" {text.replace(' ', '  ')}\n" for text in ENGLISH]
    for text, [said] in zip(spaced, answers(parts, spaced, asked), strict=True):
        exec(code, known := given | {"text": text})
        assert known["found"][0].hypotheses[0] == [names[id] for id in said.ids]


def test_what_is_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    parts = made(tokenizer, "marian", 0)
    with pytest.raises(SesameError, match="--precision bf16"):
        export(tmp_path, parts, "bf16")
    with pytest.raises(SesameError, match="no tokenizer"):
        export(tmp_path, replace(parts, tokenizer=None))
    with pytest.raises(SesameError, match="decoder reads first"):
        export(tmp_path, replace(parts, speech=None))
    for other in (replace(MARIAN, positions="relative"), replace(MARIAN, order="branch")):
        with pytest.raises(SesameError, match="computes otherwise"):
            export(tmp_path, replace(parts, backbone=EncoderDecoder(other)))
    with pytest.raises(SesameError, match="encoder-decoders with an output layer"):
        export(tmp_path, replace(parts, heads={}))
    assert not list(tmp_path.iterdir())
