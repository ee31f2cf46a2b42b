"""Perplexity against slow sums: one long pass where it is possible, each window by itself where it is not."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sesame.backbones import (
    LSTM,
    BiLM,
    BiLMConfig,
    Encoder,
    EncoderConfig,
    LSTMConfig,
    TransformerXL,
    TransformerXLConfig,
)
from sesame.backbones.base import Backbone
from sesame.checkpoint.folder import Parts
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.evaluate.both_ways import both_ways
from sesame.evaluate.perplexity import Reading, Surprise, perplexity
from sesame.objectives import MaskedLMHead
from sesame.objectives.bilm import SOFTMAXES
from sesame.text import Tokenizer
from sesame.text.train import train_tokenizer
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


@pytest.mark.parametrize(("length", "stride"), [(12, 12), (12, 5), (12, 1), (64, 64)])
def test_who_reads_from_the_end_is_asked_for_what_stands_before(length: int, stride: int) -> None:
    """ULMFiT's backward half: windows from the end of the text, each after the mark that ended rows in training."""
    config = LSTMConfig(VOCAB, 16, 2, 24, backward=True, max_length=64)
    parts, given = parts_of(LSTM(config), 2), texts(4)
    row, wanted, done = joined(parts, given), 0.0, 0
    parts.backbone.eval()
    while done < len(row):
        told = min(len(row), length if done == 0 else done + stride)
        window = row[len(row) - told : len(row) - max(0, told - length)]
        ids = torch.tensor([[*window[1:], SEP]])
        with torch.no_grad():
            states = parts.backbone(Batch(ids, torch.tensor([ids.shape[1]]), full=True)).last[0]
            logs = parts.heads["mlm"](states, parts.backbone.token_table()).log_softmax(-1)
        wanted -= sum(float(logs[i, window[i]]) for i in range(told - done))
        done = told
    found = perplexity(parts, given, Reading(length=length, stride=stride))
    assert found.nats == pytest.approx(wanted, abs=1e-9)
    assert (found.pieces, found.words, found.bytes) == (50, 50, sum(map(len, given)) + 2)
    with pytest.raises(SesameError, match="a model with a memory"):
        perplexity(parts, given, Reading(memory=True))


def elmo(softmax: str = "bilm", **settings: Any) -> Parts:
    torch.manual_seed(3)
    shape = {"width": 16, "cell": 24, "letter_width": 8, "filters": ((1, 8), (3, 8)), "highways": 1, "max_length": 64}
    backbone = BiLM(BiLMConfig(VOCAB, **{**shape, **settings})).double()
    tokenizer = word_tokenizer(WORDS)
    backbone.spell(tokenizer)
    head = SOFTMAXES[softmax](8, VOCAB).double()
    for parameter in (*backbone.parameters(), *head.parameters()):
        nn.init.normal_(parameter, std=0.3)
    return Parts(backbone, {softmax: head}, tokenizer)


@pytest.mark.parametrize("softmax", ["bilm", "bilm_adaptive"])
@pytest.mark.parametrize("reads", ["tokens", "characters"])
@pytest.mark.parametrize("length", [9, 64])
def test_each_half_of_a_model_that_reads_both_ways(softmax: str, reads: str, length: int) -> None:
    parts, given = elmo(softmax, reads=reads), texts(5)
    row, wanted = joined(parts, given), {"forward": 0.0, "backward": 0.0}
    parts.backbone.eval()
    head = parts.heads[softmax]
    for begin in range(0, len(row), length - 2):
        words = row[begin : begin + length - 2]
        ids = torch.tensor([[CLS, *words, SEP]])
        with torch.no_grad():
            states = parts.backbone(Batch(ids, torch.tensor([ids.shape[1]]), full=True)).last[0]
            for way, half in (("forward", states[:-2, :8]), ("backward", states[2:, 8:])):
                found = head(half, None)[:, :VOCAB].log_softmax(-1) if softmax == "bilm" else None
                logs = head.groups.float().log_prob(half.float()) if found is None else found  # type: ignore[union-attr, operator]
                wanted[way] -= sum(float(logs[at, word]) for at, word in enumerate(words))
    told = both_ways(parts, given, Reading(length=length))
    assert told.keys() == wanted.keys()
    for way, surprise in told.items():
        assert surprise.nats == pytest.approx(wanted[way], rel=1e-5)
        assert (surprise.pieces, surprise.words, surprise.bytes) == (50, 50, sum(map(len, given)) + 2)
    assert abs(told["forward"].nats - told["backward"].nats) > 1e-3


def test_words_of_several_tokens_are_one_that_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    parts = elmo()
    parts.tokenizer = train_tokenizer(["the dog sees the cat"] * 3, "word", 280)
    parts.backbone = BiLM(replace(parts.backbone.config, vocab=len(parts.tokenizer)))
    parts.backbone.spell(parts.tokenizer)
    parts.heads = {"bilm": SOFTMAXES["bilm"](8, len(parts.tokenizer))}
    told = both_ways(parts, ["the dogs see the cat", "the dog"])
    assert {(one.pieces, one.unknown, one.words) for one in told.values()} == {(8, 2, 8)}
    assert "2 pieces are unknown" in capsys.readouterr().err
    for reading, why in (
        (Reading(stride=3), "neither memory nor stride"),
        (Reading(memory=True), "neither memory nor stride"),
        (Reading(length=65), "from 3 to 64"),
        (Reading(length=2), "from 3 to 64"),
    ):
        with pytest.raises(SesameError, match=why):
            both_ways(parts, ["the dog"], reading)
    with pytest.raises(SesameError, match="no text"):
        both_ways(parts, [" "])
    parts.heads.clear()
    with pytest.raises(SesameError, match="tells no words"):
        both_ways(parts, ["the dog"])


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
