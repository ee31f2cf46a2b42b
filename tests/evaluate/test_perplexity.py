"""Perplexity against slow sums: one long pass where it is possible, each window by itself where it is not."""

import json
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sesame.backbones import Encoder, EncoderConfig, TransformerXL, TransformerXLConfig
from sesame.backbones.base import Backbone
from sesame.checkpoint.folder import Parts
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.evaluate.perplexity import Reading, Surprise, perplexity
from sesame.objectives import MaskedLMHead
from sesame.text import Tokenizer
from tests.languages import word_tokenizer

WORDS = [f"w{letter}" for letter in "abcdefghijklmno"]
CLS, SEP = 2, 3
VOCAB = 5 + len(WORDS)


def parts_of(backbone: Backbone, seed: int = 0) -> Parts:
    torch.manual_seed(seed)
    head = MaskedLMHead(backbone.width, backbone.width, VOCAB, "gelu", 1e-5, plain=True)
    for parameter in (*backbone.parameters(), *head.parameters()):
        nn.init.normal_(parameter, std=0.3)
    return Parts(backbone.double(), {"mlm": head.double()}, word_tokenizer(WORDS))


def xl(seed: int = 0, **settings: Any) -> Parts:
    return parts_of(TransformerXL(TransformerXLConfig(VOCAB, 16, 2, 2, **settings)), seed)


def causal(seed: int = 0, **settings: Any) -> Parts:
    return parts_of(Encoder(EncoderConfig(VOCAB, 16, 2, 2, max_length=64, causal=True, **settings)), seed)


def texts(seed: int, sizes: tuple[int, ...] = (17, 1, 30)) -> list[str]:
    picks = torch.Generator().manual_seed(seed)
    return [" ".join(WORDS[i] for i in torch.randint(0, len(WORDS), (n,), generator=picks)) for n in sizes]


def ids_of(parts: Parts, text: str) -> list[int]:
    assert parts.tokenizer is not None
    return parts.tokenizer.encode(text).ids


def joined(parts: Parts, found: list[str]) -> list[int]:
    rows = [ids_of(parts, text) for text in found]
    return [id for number, row in enumerate(rows) for id in ([SEP] if number else []) + row]


@torch.no_grad()
def direct(parts: Parts, row: list[int], counted: int | None = None) -> float:
    """Nats of the last `counted` tokens of a row that is read at once."""
    backbone, counted = parts.backbone.eval(), len(row) if counted is None else counted
    ids = torch.tensor([[CLS, *row[:-1]]])
    states: Tensor = backbone(Batch(ids, torch.tensor([ids.shape[1]]), full=True)).last[0]
    logs = parts.heads["mlm"](states, backbone.token_table()).log_softmax(-1)
    return -sum(float(logs[i, row[i]]) for i in range(len(row) - counted, len(row)))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_memory_equals_one_long_pass(seed: int) -> None:
    parts, given = xl(seed), texts(seed)
    row = joined(parts, given)
    for length in (1, 7, 48, 100):
        found = perplexity(parts, given, Reading(length=length))
        assert found.nats == pytest.approx(direct(parts, row), abs=1e-9)
    assert (found.pieces, found.words) == (50, 50)
    assert found.bytes == sum(map(len, given)) + 2
    short = xl(seed, memory=4)
    forgetful = perplexity(short, given, Reading(length=4))
    assert forgetful.nats != pytest.approx(found.nats, abs=1e-3)
    assert perplexity(short, given, Reading(length=4, remember=0)).nats == pytest.approx(found.nats, abs=1e-9)
    alone = perplexity(parts, given, Reading(length=7, joined=False, rows=2))
    assert alone.nats == pytest.approx(sum(direct(parts, ids_of(parts, text)) for text in given), abs=1e-9)
    assert (alone.pieces, alone.words, alone.bytes) == (48, 48, sum(map(len, given)))


def test_a_text_may_be_cut_to_be_read_side_by_side() -> None:
    parts, given = xl(), texts(3)
    row = joined(parts, given)
    wanted = sum(direct(parts, row[begin : begin + 17]) for begin in (0, 17, 34))
    found = perplexity(parts, given, Reading(length=5, rows=3))
    assert found.nats == pytest.approx(wanted, abs=1e-9)
    assert found.pieces == 50


@pytest.mark.parametrize("model", [xl, causal])
@pytest.mark.parametrize(("length", "stride"), [(12, 12), (12, 5), (12, 1), (64, 64)])
def test_windows_count_every_piece_once(model: Any, length: int, stride: int) -> None:
    parts, given = model(1), texts(4)
    row, wanted, done = joined(parts, given), 0.0, 0
    while done < len(row):
        end = min(len(row), length if done == 0 else done + stride)
        wanted += direct(parts, row[max(0, end - length) : end], end - done)
        done = end
    found = perplexity(parts, given, Reading(length=length, stride=stride, memory=False))
    assert found.nats == pytest.approx(wanted, abs=1e-9)
    assert found.pieces == 50
    if model is causal:
        assert perplexity(parts, given, Reading(length=length, stride=stride)).nats == pytest.approx(wanted, abs=1e-9)
    alone = perplexity(parts, given, Reading(length=64, memory=False, joined=False))
    assert alone.nats == pytest.approx(sum(direct(parts, ids_of(parts, text)) for text in given), abs=1e-9)


def test_who_knows_nothing_chooses_among_all(capsys: pytest.CaptureFixture[str]) -> None:
    parts = xl()
    for parameter in (*parts.backbone.parameters(), *parts.heads["mlm"].parameters()):
        nn.init.zeros_(parameter)
    found = perplexity(parts, ["wa  wb\nwc", "wd nothing"])
    assert found.perplexity == pytest.approx(VOCAB)
    assert found.per_word == pytest.approx(VOCAB)  # a word a piece, and the separator
    assert found.bits_per_byte == pytest.approx(6 * math.log2(VOCAB) / 20)
    assert found.figures()["unknown"] == found.unknown == 1
    assert "1 pieces are unknown" in capsys.readouterr().err


def test_a_separator_is_nothing_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    """GPT-2 has one token for both."""
    parts = causal()
    assert parts.tokenizer is not None
    parts.tokenizer = Tokenizer(parts.tokenizer.backend, {**parts.tokenizer.roles, "unk": "[SEP]"})
    assert perplexity(parts, texts(0)).unknown == 0
    assert "unknown" not in capsys.readouterr().err


def test_bad_wishes_are_told() -> None:
    looking = parts_of(Encoder(EncoderConfig(VOCAB, 16, 1, 2)))
    headless, bare = xl(), xl()
    headless.heads.clear()
    bare.tokenizer = None
    for parts, given, reading, why in (
        (looking, ["wa"], {}, "left to right"),
        (headless, ["wa"], {}, "no head"),
        (bare, ["wa"], {}, "tokenizer"),
        (causal(), ["wa"], {"memory": True}, "a model with a memory"),
        (xl(), ["wa"], {"memory": False, "remember": 3}, "a model with a memory"),
        (xl(), ["wa"], {"stride": 3}, "windows"),
        (causal(), ["wa"], {"length": 4, "stride": 5}, "gaps"),
        (causal(), texts(0, (70,)), {"length": 65}, "do not fit"),
        (xl(), [], {}, "no text"),
        (xl(), [" "], {}, "no text"),
        (xl(), ["wa"], {"rows": 0}, "rows"),
    ):
        with pytest.raises(SesameError, match=why):
            perplexity(parts, given, Reading(**reading))  # type: ignore[arg-type]


def test_one_word_without_end_has_no_number() -> None:
    said = Surprise(nats=5000.0, pieces=400, words=1, bytes=1200)
    assert said.per_word == math.inf
    assert said.perplexity == pytest.approx(math.exp(12.5))
    assert said.figures()["perplexity_per_word"] is None  # JSON has no infinity
    json.dumps(said.figures(), allow_nan=False)
