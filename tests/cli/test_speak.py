"""`sesame translate` and `sesame generate`: order, batches, n-best, what is too long, what cannot speak."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import sesame
from sesame.backbones import Backbone, Encoder, EncoderConfig, EncoderDecoder, EncoderDecoderConfig
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.saving import save_parts
from sesame.checkpoint.speech import Speech
from sesame.errors import SesameError
from sesame.evaluate.spoken import judge_answers
from sesame.objectives.decoder_head import DecoderHead
from sesame.text.template import framed
from tests.cli.calling import Cli
from tests.languages import word_tokenizer

WORDS = [f"w{chr(97 + i)}" for i in range(20)]
LONGEST = 16


def written(folder: Path, backbone: Backbone, heads: dict[str, torch.nn.Module], speech: Speech | None) -> Path:
    torch.manual_seed(3)
    with torch.no_grad():
        for module in (backbone, *heads.values()):
            for weight in module.parameters():
                weight.normal_(0.0, 0.6)
    folder.mkdir()
    tokenizer = framed(word_tokenizer(WORDS), "end")
    save_parts(folder, Parts(backbone, heads, tokenizer, speech=speech))
    return folder


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    backbone = EncoderDecoder(EncoderDecoderConfig(25, 16, 1, 2, max_length=LONGEST))
    return written(
        tmp_path / "answers",
        backbone,
        {"seq2seq": DecoderHead(16, 25, tied=False, bias="fixed")},
        Speech((2,), (3,), 0),
    )


@pytest.fixture
def decoder(tmp_path: Path) -> Path:
    backbone = Encoder(EncoderConfig(25, 16, 1, 2, segments=0, causal=True, order="pre", max_length=LONGEST, eps=1e-5))
    return written(tmp_path / "decoder", backbone, {"lm": DecoderHead(16, 25, tied=False)}, Speech((), (3,), 0))


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    return written(tmp_path / "encoder", Encoder(EncoderConfig(25, 16, 1, 2)), {}, None)


def test_answers_come_in_order_whatever_the_batch(cli: Cli, answers: Path, tmp_path: Path) -> None:
    sources = ["wa", "wb wc wd we wf", "wa wb", "wk wl wm wn wo wp wq"]
    file = tmp_path / "sources.txt"
    file.write_text("\n".join(sources))
    together = cli("translate", answers, "--file", file).fine().out.splitlines()
    alone = [cli("translate", answers, source).fine().out.rstrip("\n") for source in sources]
    small = cli("translate", answers, "--file", file, "--batch", 2).fine().out.splitlines()
    assert together == alone == small
    assert len(set(together)) > 1


def test_several_answers_with_scores(cli: Cli, answers: Path) -> None:
    line = json.loads(cli("translate", answers, "wa wb wc", "--best", 3, "--json").fine().out)
    scores = [answer["score"] for answer in line["answers"]]
    assert line["text"] == "wa wb wc"
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 3
    greedy = sesame.load(answers).translate("wa wb wc", beams=1, alpha=0.0)[0][0]
    assert greedy.score == greedy.logprob


def test_empty_lines_keep_their_place(cli: Cli, answers: Path, tmp_path: Path) -> None:
    file = tmp_path / "sources.txt"
    file.write_text("wa\n\nwb wc\n\n\nwd\n")
    result = cli("translate", answers, "--file", file).fine()
    lines = result.out.split("\n")
    assert [bool(line) for line in lines[:6]] == [True, False, True, False, False, True]
    assert "3 of 6 lines are empty" in result.err
    piped = cli("translate", answers, given=b"wa\n\nwb wc\n").fine().out.split("\n")
    assert piped[:3] == lines[:3]
    several = cli("translate", answers, "--best", 2, "--beams", 2, given=b"wa\n\nwb wc\n").fine().out.splitlines()
    assert [bool(line) for line in several] == [True, True, False, False, True, True], "n lines for each, read by n"


def test_what_every_answer_begins_with(cli: Cli, answers: Path) -> None:
    found = cli("translate", answers, "wa", "wb wc", "--begin", "wk wl").fine().out.splitlines()
    assert all(line.startswith("wk wl") for line in found)


def test_long_sources_are_counted(cli: Cli, answers: Path) -> None:
    result = cli("translate", answers, "wa", " ".join(["wb"] * 40)).fine()
    assert "1 of 2 sources have more than 16 tokens; their ends are not read: text 2\n" in result.err
    assert len(result.out.splitlines()) == 2


def test_answers_that_are_cut_are_told(cli: Cli, answers: Path, decoder: Path, tmp_path: Path) -> None:
    """A parser's answers have many more tokens than their sources: 128 were their end, in scores too."""
    data = tmp_path / "test.tsv"
    data.write_text("wa wb\twc\nwd\twe wf\n")
    told = "of 2 answers do not end within 2 tokens and are cut; --most allows more"
    for call in (("translate", answers, "wa wb", "wd"), ("evaluate", answers, "--data", data)):
        assert told in cli(*call, "--most", 2).fine().err
    for most in (2, 15):
        result = cli("translate", answers, "wa wb", "wd", "--most", most, "--json").fine()
        cut = sum(not json.loads(line)["answers"][0]["ended"] for line in result.out.splitlines())
        assert (f"{cut} of 2 answers do not end" in result.err) == (cut > 0)
    assert "do not end" not in cli("generate", decoder, "wa", "--most", 2, "--greedy").fine().err


def test_whoever_lets_an_encoder_decoder_predict_is_sent_to_translate(cli: Cli, answers: Path) -> None:
    """The sentence told to teach it, also to those who just had."""
    cli("predict", answers, "wa wb").refused("not taught any task with labels", "sesame translate")


def test_a_prefix_that_was_taught_is_missed(cli: Cli, answers: Path, tmp_path: Path) -> None:
    data = tmp_path / "test.tsv"
    data.write_text("wa wb\twc\nwd\twe wf\n")
    (answers / "sesame.toml").write_text('[run]\nprefix = "wk: "\n')
    call, told = ("evaluate", answers, "--data", data, "--beams", 1), "was taught with the prefix 'wk: '"
    assert told in cli(*call).fine().err
    assert told not in cli(*call, "--prefix", "wk: ").fine().err


def test_what_is_too_long_is_told_by_its_line(cli: Cli, answers: Path, decoder: Path, tmp_path: Path) -> None:
    """Lines of the file, empty ones and all; and no more than five of them."""
    long, file = " ".join(["wb"] * 40), tmp_path / "sources.txt"
    file.write_text(f"\n\nwa\n{long}\n\n{long}\n")
    result = cli("translate", answers, "--file", file, "--beams", 1).fine()
    assert f"2 of 3 sources have more than 16 tokens; their ends are not read: {file}:4, 6\n" in result.err
    piped = cli("translate", answers, "--beams", 1, given=file.read_bytes()).fine()
    assert "their ends are not read: standard input, line 4, 6\n" in piped.err
    cli("generate", decoder, "--file", file).refused(f"{file}:4: has 40 tokens")
    file.write_text("\n" + f"{long}\n" * 7)
    result = cli("translate", answers, "--file", file, "--beams", 1).fine()
    assert f"7 of 7 sources have more than 16 tokens; their ends are not read: {file}:2, 3, 4, 5, 6 ...\n" in result.err


@pytest.mark.parametrize("suffix", ["tsv", "csv", "jsonl"])
def test_sources_of_a_test_set_that_are_too_long_are_told_by_their_lines(
    cli: Cli, answers: Path, tmp_path: Path, suffix: str
) -> None:
    long, file = " ".join(["wb"] * 40), tmp_path / f"test.{suffix}"
    pairs = [("wa", "wb"), (long, "wc"), ("wd", ""), (long, "we")]
    mark = "\t" if suffix == "tsv" else ","
    rows = [mark.join(pair) for pair in (("source", "target"), *pairs)]
    if suffix == "jsonl":
        rows = [json.dumps({"source": a, "target": b}) for a, b in pairs]
    rows.insert(1, "")
    file.write_text("\n".join(["", *rows]) + "\n")
    lines = [number for number, row in enumerate(file.read_text().split("\n"), 1) if long in row]
    result = cli("evaluate", answers, "--data", file, "--beams", 1).fine()
    assert f"sources have more than 16 tokens; their ends are not read: {file}:{lines[0]}, {lines[1]}\n" in result.err


def test_the_sides_of_two_files(answers: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = " ".join(["wb"] * 40)
    (tmp_path / "a").write_text(f"\nwa\n{long}\n")
    (tmp_path / "b").write_text("\nwa\nwb\n")
    judge_answers(str(answers), f"{tmp_path / 'a'},{tmp_path / 'b'}", device="cpu", beams=1)
    assert (
        f"1 of 2 sources have more than 16 tokens; their ends are not read: {tmp_path / 'a'}:3\n"
        in capsys.readouterr().err
    )


def test_draws_depend_on_seed_and_number_alone(cli: Cli, decoder: Path) -> None:
    prompts = ["wa wb", "wc", "wd we wf"]
    many = cli("generate", decoder, *prompts, "--most", 8).fine().out.splitlines()
    again = cli("generate", decoder, *prompts, "--most", 8, "--batch", 1).fine().out.splitlines()
    other = cli("generate", decoder, *prompts, "--most", 8, "--seed", 1).fine().out.splitlines()
    assert many == again != other
    assert all(line.startswith(f"{prompt} w") for line, prompt in zip(many, prompts, strict=True))


def test_greedy_equals_transformers(cli: Cli, decoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = AutoModelForCausalLM.from_pretrained(decoder), AutoTokenizer.from_pretrained(decoder)
    ids = tokenizer("wa wb wc", return_tensors="pt", add_special_tokens=False)["input_ids"]
    theirs = model.generate(ids, do_sample=False, max_new_tokens=8)[0, 3:].tolist()
    ours = sesame.load(decoder).generate("wa wb wc", most=8)[0][0]
    assert ours.ids + ([3] if ours.ended else []) == theirs


def test_a_prompt_that_leaves_no_room(cli: Cli, decoder: Path) -> None:
    cli("generate", decoder, "wa", " ".join(["wb"] * 16)).refused("text 2", "16 tokens")
    with pytest.raises(SesameError, match="prompt 2: has 16 tokens"):
        sesame.load(decoder).generate(["wa", " ".join(["wb"] * 16)])
    found = sesame.load(decoder).generate(" ".join(["wb"] * 14), most=50)[0][0]
    assert len(found.ids) <= 2


@pytest.mark.parametrize("wishes", [{}, {"beams": 3}, {"sample": True, "best": 2}], ids=["greedy", "beam", "sample"])
def test_a_long_prompt_takes_no_room_from_others(decoder: Path, wishes: dict[str, Any]) -> None:
    loaded, prompts = sesame.load(decoder), ["wa", " ".join(["wb"] * 13), "wc wd we", " ".join(["wf"] * 13)]
    found, alone = (loaded.generate(prompts, most=9, batch=size, **wishes) for size in (32, 1))
    assert [[one.ids for one in some] for some in found] == [[one.ids for one in some] for some in alone]
    assert max(len(one.ids) for one in found[0]) > LONGEST - 13, "the toy ends too soon to tell"


def test_models_that_cannot(cli: Cli, answers: Path, decoder: Path, encoder: Path) -> None:
    cli("generate", answers, "wa").refused("sesame translate")
    cli("translate", decoder, "wa").refused("sesame generate")
    cli("translate", encoder, "wa").refused("no encoder and decoder")
    cli("generate", encoder, "wa").refused("left to right")


def test_settings_that_cannot_be(cli: Cli, answers: Path, decoder: Path) -> None:
    cli("translate", answers, "wa", "--best", 9).refused("beams")
    cli("translate", answers, "wa", "--penalty", "odd").refused("penalty")
    cli("generate", decoder, "wa", "--temperature", 0).refused("temperature")
    cli("generate", decoder, "wa", "--beams", 3, "--temperature", 0.5).refused("--beams 3 does not draw")
    cli("generate", decoder, "wa", "--greedy", "--top-p", 0.5).refused("--greedy does not draw")
    cli("generate", decoder, "wa", "--greedy", "--beams", 3).refused("give one of them")
    cli("generate", decoder, "wa", "--greedy", "--top-p", 1, "--most", 2).fine()
    cli("translate", answers, given=b" \n").refused("holds no text")


def test_no_temperature_means_greedy(cli: Cli, decoder: Path) -> None:
    cli("generate", decoder, "wa wb", "--temperature", 0).refused("temperature is 0", "--greedy")


def test_an_answer_is_one_line(cli: Cli, answers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = [[sesame.tasks.speak.Said(f"one\ntwo {number}", 0.0, 0.0, True, [])] for number in range(2)]
    monkeypatch.setattr(sesame.Loaded, "translate", lambda self, texts, **settings: said)
    assert cli("translate", answers, "wa", "wb").fine().out == "one two 0\none two 1\n"


def test_a_search_that_the_folder_asks_for_is_told(cli: Cli, answers: Path) -> None:
    """The options decide; what differs from generation_config.json is said, and only that."""
    file = answers / "generation_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "num_beams": 3, "repetition_penalty": 1.3}))
    asked = cli("translate", answers, "wa wb", "--beams", 3).fine()
    assert "asks for repetition_penalty = 1.3; the options of this command decide" in asked.err
    assert "num_beams = 3, repetition_penalty" in cli("translate", answers, "wa wb").fine().err
