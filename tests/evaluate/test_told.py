"""The perplexity of answers is what transformers' loss says of the same labels, pair by pair."""

import json
import math
from pathlib import Path

import pytest
import torch
import transformers

from sesame.evaluate.spoken import judge_answers, open_answering
from sesame.evaluate.told import surprise_of
from sesame.text.template import around
from tests.answer_toys import stranger

PAIRS = [("ba be", "da"), ("bo", "be ba di da"), ("da di ba be bo", "bo bo")]


@pytest.mark.parametrize("family", ["t5", "t5-1.1", "bart", "marian"])
def test_it_is_the_loss_of_transformers(family: str, tmp_path: Path) -> None:
    folder = stranger(tmp_path / "model", family)
    oracle, parts = (
        transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval(),
        open_answering(str(folder), "cpu"),
    )
    assert parts.tokenizer is not None
    before, _ = around(parts.tokenizer) if family == "bart" else ((), ())
    nats = pieces = 0.0
    for source, answer in PAIRS:
        ids = torch.tensor([parts.tokenizer.encode(source, special=True).ids])
        labels = torch.tensor([[*before, *parts.tokenizer.encode(answer).ids, parts.tokenizer.id("sep")]])
        with torch.no_grad():
            nats += float(oracle(input_ids=ids, labels=labels).loss) * labels.numel()
        pieces += labels.numel()
    found = surprise_of(parts, *zip(*PAIRS, strict=True))
    assert (found.pieces, found.words) == (pieces, 7)
    assert found.nats == pytest.approx(nats, rel=1e-5)
    assert found.per_word == pytest.approx(math.exp(nats / 7), rel=1e-4)


def test_evaluate_tells_it_and_what_the_folder_asks_of_the_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = stranger(tmp_path / "model", "bart")
    said = json.loads((folder / "generation_config.json").read_text()) | {"repetition_penalty": 1.5}
    (folder / "generation_config.json").write_text(json.dumps(said))
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS))
    found = judge_answers(str(folder), str(tmp_path / "pairs.tsv"), device="cpu", beams=1, most=4)
    wanted = surprise_of(open_answering(str(folder), "cpu"), *zip(*PAIRS, strict=True))
    assert found["perplexity"] == wanted.figures()
    assert "asks for repetition_penalty = 1.5" in capsys.readouterr().err


def test_answers_that_do_not_fit_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = open_answering(str(stranger(tmp_path / "model", "bart")), "cpu")
    long = "ba " * 40
    one = surprise_of(parts, ["ba", "be"], ["da", long])
    assert one == surprise_of(parts, ["ba"], ["da"])
    assert "1 of 2 answers do not fit into the model's 32 tokens and are left out" in capsys.readouterr().err
    assert surprise_of(parts, ["ba"], [long]) is None, "what was answered is scored all the same"
