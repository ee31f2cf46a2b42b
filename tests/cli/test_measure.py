"""`sesame evaluate` of models that were not taught: perplexity of a text, answers to prompts, and what is refused."""

import json
import math
from pathlib import Path

import pytest
import torch

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
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.saving import save_parts
from sesame.checkpoint.speech import Speech
from sesame.evaluate.perplexity import Reading, Surprise, perplexity
from sesame.objectives import MaskedLMHead
from sesame.objectives.bilm import SOFTMAXES
from sesame.objectives.decoder_head import DecoderHead
from tests.cli.calling import Cli
from tests.languages import Chain, word_tokenizer

CHAIN = Chain(20, 0)
TOKENIZER = word_tokenizer([*CHAIN.words, "Answer:"])
VOCAB = len(TOKENIZER)


def kept(folder: Path, parts: Parts) -> Path:
    folder.mkdir()
    save_parts(folder, parts)
    return folder


@pytest.fixture
def gpt(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    config = EncoderConfig(VOCAB, 16, 1, 2, max_length=32, causal=True, segments=0, order="pre", eps=1e-5, init=0.2)
    parts = Parts(Encoder(config), {"lm": DecoderHead(16, VOCAB)}, TOKENIZER, speech=Speech((), (3,), 0))
    return kept(tmp_path / "gpt", parts)


@pytest.fixture
def xl(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    backbone = TransformerXL(TransformerXLConfig(VOCAB, 16, 2, 2, memory=6, init=0.2))
    head = MaskedLMHead(16, 16, VOCAB, "relu", 1e-5, plain=True)
    return kept(tmp_path / "xl", Parts(backbone, {"mlm": head}, TOKENIZER, speech=Speech((), (3,), 0)))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text(CHAIN.text(3, 1, 50, 0), encoding="utf-8")
    return tmp_path / "text.txt"


def test_perplexity_of_a_decoder(cli: Cli, gpt: Path, text: Path) -> None:
    texts = text.read_text(encoding="utf-8").strip().split("\n\n")
    for options, reading in (
        ((), Reading()),
        (("--length", 8), Reading(8)),
        (("--length", 8, "--stride", 2), Reading(8, stride=2)),
    ):
        found = json.loads(cli("evaluate", gpt, "--text", text, *options, "--device", "cpu", "--json").fine().out)
        wanted = perplexity(load_parts(gpt), texts, reading)
        assert found["nats"] == pytest.approx(wanted.nats, rel=1e-5)
        assert found["perplexity"] == pytest.approx(math.exp(wanted.nats / wanted.pieces), rel=1e-5)
    said = cli("evaluate", gpt, "--text", text).fine().out
    assert len(said.splitlines()) == 1
    for part in ("per piece", "per word", "bits per byte", "152 pieces"):
        assert part in said


def test_perplexity_of_who_reads_from_the_end_and_of_both_ways(cli: Cli, text: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    shape = {"width": 16, "cell": 24, "letter_width": 8, "filters": ((1, 8), (3, 8)), "highways": 1, "max_length": 32}
    elmo = BiLM(BiLMConfig(VOCAB, **shape))  # type: ignore[arg-type]
    both = kept(tmp_path / "elmo", Parts(elmo, {"bilm": SOFTMAXES["bilm"](8, VOCAB)}, TOKENIZER))
    said = cli("evaluate", both, "--text", text).fine().out.splitlines()
    assert [line.split(" perplexity ")[0] for line in said] == ["forward", "backward"]
    found = json.loads(cli("evaluate", both, "--text", text, "--json").fine().out)
    assert {way: figures["pieces"] for way, figures in found.items()} == {"forward": 152, "backward": 152}
    lstm = LSTM(LSTMConfig(VOCAB, 16, 1, 24, backward=True, max_length=32))
    end = kept(tmp_path / "end", Parts(lstm, {"lm": DecoderHead(16, VOCAB, bias="trained")}, TOKENIZER))
    assert json.loads(cli("evaluate", end, "--text", text, "--json").fine().out)["pieces"] == 152
    assert "152 pieces" in cli("evaluate", end, "--text", text, "--length", 8, "--stride", 2).fine().out


@pytest.mark.parametrize(
    ("found", "said"),
    [(math.inf, "none per word (too few spaces)"), (6.84e103, "6.8e+103 per word"), (1234.567, "1234.57 per word")],
)
def test_perplexity_where_words_are_long_or_without_end(
    cli: Cli, gpt: Path, text: Path, monkeypatch: pytest.MonkeyPatch, found: float, said: str
) -> None:
    """Of a line of Chinese, which is one word, a hundred digits were written."""
    monkeypatch.setattr(Surprise, "per_word", found)
    assert f" per piece, {said}, " in cli("evaluate", gpt, "--text", text).fine().out


def test_perplexity_with_a_memory(cli: Cli, xl: Path, text: Path) -> None:
    def nats(*options: object) -> float:
        return float(json.loads(cli("evaluate", xl, "--text", text, *options, "--json").fine().out)["nats"])

    assert nats("--length", 4) == nats("--length", 4, "--memory")
    assert nats("--length", 4) != pytest.approx(nats("--length", 4, "--no-memory"), rel=1e-4)
    cli("evaluate", xl, "--text", text, "--stride", 2).refused("stride", "turn the memory off")


def test_a_transformer_xl_goes_on(cli: Cli, xl: Path) -> None:
    """Beyond the length of its training rows, and alike in any batch."""
    prompts = [" ".join(CHAIN.words[:n]) for n in (1, 5, 3)]
    together = cli("generate", xl, *prompts, "--greedy", "--most", 20).fine().out.splitlines()
    alone = [cli("generate", xl, prompt, "--greedy", "--most", 20).fine().out.strip() for prompt in prompts]
    assert [line.strip() for line in together] == alone


def test_what_perplexity_refuses(cli: Cli, gpt: Path, text: Path, tmp_path: Path) -> None:
    bert = kept(tmp_path / "bert", Parts(Encoder(EncoderConfig(VOCAB, 16, 1, 2)), {}, TOKENIZER))
    cli("evaluate", bert, "--text", text).refused(bert, "reads from left to right")
    (tmp_path / "empty.txt").write_text("\n \n", encoding="utf-8")
    cli("evaluate", gpt, "--text", tmp_path / "empty.txt").refused("empty.txt", "no text inside")
    cli("evaluate", gpt, "--text", text, "--length", 8, "--stride", 9).refused("a stride of 9", "windows of 8")
    cli("evaluate", gpt, "--text", text, "--length", 99).refused("windows of 99", "model of 32")
    cli("evaluate", gpt, "--text", text, "--memory").refused("need a model with a memory")
    cli("evaluate", gpt, "--text", tmp_path / "none.txt").refused("none.txt")


def test_ways_do_not_mix(cli: Cli, gpt: Path, text: Path) -> None:
    cli("evaluate", gpt).refused("give --data FILE", "--text FILE")
    cli("evaluate", gpt, "--text", text, "--data", text).refused("--text and --data do not go together")
    cli("evaluate", gpt, "--data", text, "--shots", 0, "--suite", "glue").refused("do not go together")
    cli("evaluate", gpt, "--text", text, "--words", "a=b").refused("--words", "goes with --shots only")
    cli("evaluate", gpt, "--data", text, "--stride", 2).refused("--stride", "goes with --text only")
    cli("evaluate", gpt, "--data", text, "--shots", 0, "--against", gpt).refused(
        "--against", "does not go with --shots"
    )
    for way, option, value in ((("--data", text, "--shots", 0), "--most", 64), (("--text", text), "--alpha", 0)):
        cli("evaluate", gpt, *way, option, value).refused(option, "does not go with")  # were passed over
    cli("evaluate", gpt, "--data", text, "--alpha", 0).refused("--alpha", "is for encoder-decoders")
    cli("evaluate", gpt, "--text", text, "--seeds", 2).refused("--seeds", "goes with --suite or --shots only")


def test_answers_to_prompts(cli: Cli, gpt: Path, tmp_path: Path) -> None:
    rows = [f"{CHAIN.words[n % 7]} {CHAIN.words[n % 5]},{'xy'[n % 2]}" for n in range(30)]
    data = tmp_path / "rows.csv"
    data.write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    words = ("--words", f"x={CHAIN.words[0]},y={CHAIN.words[1]}")
    options = ("evaluate", gpt, "--data", data, "--shots", "0,1,4", "--template", r"{text}\nAnswer: {label}", *words)
    found = json.loads(cli(*options, "--seeds", 2, "--by", "calibrated", "--json").fine().out)
    assert [row["shots"] for row in found["results"]] == [0, 1, 4]
    assert [row["seeds"] for row in found["results"]] == [1, 2, 2]
    assert found["template"] == "{text}\nAnswer: {label}"
    shown = cli(*options, "--seeds", 2).fine().out
    assert "always the commonest label" in shown
    assert "±" in shown
    cli(*options[:4], "--shots", "one").refused("--shots one", "such as 0,1,5")
    cli(*options[:4], "--shots", 0, "--words", "x").refused("--words", "label=word")
    cli(*options[:4], "--shots", 0, "--words", "z=a").refused("unknown label 'z'")
    cli(*options[:4], "--shots", 0, "--by", "luck").refused("calibrated", "no 'luck'")
    cli(*options[:4], "--shots", 0, "--template", "{text}").refused("{label} once")
