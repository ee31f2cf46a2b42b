"""Vectors and labels by the encoder of an encoder-decoder."""

import json
from pathlib import Path

import pytest

from tests.checkpoint.test_seq2seq_parity import made
from tests.cli.calling import Cli
from tests.languages import word_tokenizer


@pytest.mark.parametrize(
    "family", ["t5", pytest.param("bart", marks=pytest.mark.slow), pytest.param("marian", marks=pytest.mark.slow)]
)
def test_an_encoder_decoder_gives_vectors_and_learns_labels(family: str, cli: Cli, tmp_path: Path) -> None:
    model, words = tmp_path / "model", ["good", "fine", "bad", "poor", "day", "road", "tree"]
    theirs = made(family, "plain").float()
    theirs.save_pretrained(model)
    word_tokenizer(words).save(model)
    vector = json.loads(cli("embed", model, "a good day").fine().out.splitlines()[0])["vector"]
    assert len(vector) == 24
    (tmp_path / "long.txt").write_text("good day " * 5_000 + "\n")
    told = cli("embed", model, "--file", tmp_path / "long.txt").fine()  # in windows: all at once would take gigabytes
    assert len(json.loads(told.out.splitlines()[0])["vector"]) == 24
    rows = [f"{day} {word},{word in words[:2]}" for word in words[:4] for day in words[4:]] * 4
    (tmp_path / "rows.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    how = ["--seeds", 1, "--no-baselines", "--rate", 0.003, "--epochs", 100]
    out = tmp_path / "run"
    cli("finetune", model, "--task", "classify", "--train", tmp_path / "rows.csv", *how, "--out", out).fine()
    task = json.loads((out / "final/config.json").read_text())["sesame"]["tasks"]["classify"]
    assert (task["pooling"], task["transform"]) == ("mean", False)
    said = cli("predict", out, "tree fine", "road poor", "--json").fine().out.splitlines()
    assert [json.loads(line)["label"] for line in said] == ["True", "False"]
