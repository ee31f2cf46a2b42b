"""`sesame explain` and `sesame runs` as a user calls them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from sesame.checkpoint.saving import save_parts
from sesame.cli.explanations import _head_table
from tests.cli.calling import Cli
from tests.explain.explain_toys import TEXT, WORDS, toy

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    save_parts(folder, toy("post", 0, ("classify", "tag"), double=False))
    return folder


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    luck = np.random.default_rng(0)
    file = tmp_path_factory.mktemp("rows") / "rows.tsv"
    texts = [" ".join(luck.choice(WORDS, size=4)) for _ in range(30)]
    file.write_text("label\ttext\n" + "".join(f"{luck.choice(['good', 'bad'])}\t{text}\n" for text in texts))
    return file


def test_attention(cli: Cli, model: Path, tmp_path: Path) -> None:
    cli("explain", model, TEXT, "--what", "attention", "--out", tmp_path / "a.html").fine()
    assert "Attention is not explanation" in (tmp_path / "a.html").read_text()
    cli("explain", model, TEXT, "--what", "attention", "--layer", 1, "--head", 2, "--out", tmp_path / "a.png").fine()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    cli("explain", model, TEXT, "--what", "attention").refused("--out FILE.html")
    cli("explain", model, TEXT, "--what", "attention", "--out", tmp_path / "a.html").refused("exists already")
    cli("explain", model, TEXT, "--what", "attention", "--out", tmp_path / "a.pdf").refused(".html, .png or .svg")
    cli("explain", model, "--what", "attention", "--out", tmp_path / "b.html").refused("is about a text")


def test_attribution(cli: Cli, model: Path, tmp_path: Path) -> None:
    words = ("explain", model, TEXT, "--what", "attribution")
    cli(*words).refused("several tasks (classify, tag)", "--task")
    asked = (*words, "--task", "classify", "--label", "bad")
    found = json.loads(cli(*asked, "--json").fine().out)
    assert found["name"] == "the logit of the label “bad”"
    assert sum(value for _, value in found["tokens"]) == pytest.approx(found["score"] - found["base"], rel=0.01)
    told = cli(*asked, "--out", tmp_path / "a.html", "--baseline", "pad").fine()
    assert "with [PAD] everywhere" in told.out
    assert "[PAD]" in (tmp_path / "a.html").read_text()
    cli(*words, "--task", "tag", "--at", "fi", "--out", tmp_path / "a.svg").fine()
    cli(*words, "--task", "mask").refused("no mask in")
    cli("explain", model, "ba [MASK]", "--what", "attribution", "--task", "mask", "--label", "de").fine()
    cli(*words, "--task", "ner").refused("it was taught: classify, tag")
    cli(*words, "--task", "tag", "--baseline", "zero").refused("mask or pad")


@pytest.mark.slow
@pytest.mark.parametrize(("columns", "cells"), [("80", 3), ("160", 13)])
def test_heads_are_never_cut(
    columns: str, cells: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table of twelve heads in 80 columns had "+0…" in each cell."""
    monkeypatch.setenv("COLUMNS", columns)
    change = [[(layer - head) / 100 for head in range(12)] for layer in range(6)]
    _head_table([f"decoder {n} to the source" for n in range(6)], [*change[:5], [float("nan"), *change[5][1:]]])
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert shown.splitlines()[1].count("┃") - 1 == cells
    assert "decoder 0 to the source │   12 │ -0.110" in shown or cells > 3
    assert ("10 heads of 71" in shown) == (cells == 3)


def test_heads_and_layers(cli: Cli, model: Path, rows: Path, tmp_path: Path) -> None:
    begin = ("explain", model, "--task", "classify", "--data", rows)
    found = json.loads(cli(*begin, "--what", "heads", "--json").fine().out)
    assert (found["name"], found["rows"], found["layers"]) == ("accuracy", 30, ["1", "2"])
    assert np.array(found["change"]).shape == (2, 2)
    for ending in (".html", ".png"):
        cli(*begin, "--what", "heads", "--out", tmp_path / f"heads{ending}").fine()
        cli(*begin, "--what", "layers", "--out", tmp_path / f"layers{ending}").fine()
    cli("explain", model, TEXT, "--task", "tag", "--what", "heads").fine()
    probed = json.loads(
        cli("explain", model, "--what", "layers", "--kind", "classify", "--data", rows, "--json").fine().out
    )
    assert (len(probed["means"]), len(probed["mix"]), probed["rows"]) == (3, 2, 30)
    assert probed["mixes"] == {}
    shown = cli("explain", model, "--what", "layers", "--kind", "classify", "--data", rows).fine().out
    assert [line.split()[1] for line in shown.splitlines() if "±" in line] == ["embeddings", "1", "2", "mix"]
    cli("explain", model, "--what", "layers", "--kind", "classify").refused("--data FILE")
    cli("explain", model, "--what", "heads", "--task", "classify").refused("is about a text")
    cli("explain", model, TEXT, "--what", "soul").refused("attention, attribution, heads, layers, neighbours")


@pytest.mark.slow
def test_layers_of_a_task_that_mixes_them(cli: Cli, rows: Path, tmp_path: Path) -> None:
    parts = toy("post", 0, ("classify",), double=False, layers="mix")
    mix = parts.tasks["classify"].choice.mix
    assert mix is not None
    mix.scores.data = torch.tensor([1.0, 2.0, 5.0]).log()
    (tmp_path / "mixed").mkdir()
    save_parts(tmp_path / "mixed", parts)
    begin = ("explain", tmp_path / "mixed", "--what", "layers", "--data", rows)
    found = json.loads(cli(*begin, "--json").fine().out)
    assert found["mixes"]["classify"] == pytest.approx([0.125, 0.25, 0.625])
    shown = [line for line in cli(*begin, "--out", tmp_path / "l.html").fine().out.splitlines() if "±" in line]
    assert ["12.5%" in shown[0], "25.0%" in shown[1], "62.5%" in shown[2], "%" in shown[3]] == [True, True, True, False]
    assert "62.5%" in (tmp_path / "l.html").read_text()
    cli(*begin, "--out", tmp_path / "l.png").fine()


def test_neighbours(cli: Cli, model: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("ba de fi.\n\nku ba go.\n\nba be bo.\n")
    begin = ("explain", model, "ba", "--what", "neighbours")
    cli(*begin, "--data", tmp_path / "text.txt", "--out", tmp_path / "n.html").fine()
    assert "Neighbours of “ba”" in (tmp_path / "n.html").read_text()
    cli(*begin).refused("--data FILE")


def test_runs(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    for name in ("one", "two[b]"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "recipe.toml").write_text('name = "bert"\nsteps = 9\n[backbone]\ndepth = 2\nwidth = 64\n')
        lines = [{"step": step, "loss": 9.0 - step, "tokens": 1000 * step} for step in range(1, 8)]
        (tmp_path / name / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    shown = cli("runs", tmp_path).fine().out
    for part in ("two[b]", "bert", "2 × 64", "7 / 9", "7.0 k", "█", "2.00", "interrupted"):
        assert part in shown
    found = [json.loads(line) for line in cli("runs", tmp_path, "--json").fine().out.splitlines()]
    assert {run["name"] for run in found} == {"one", "two[b]"}
    assert found[0]["loss"][-1] == [7, 2.0]
    cli("runs", tmp_path / "none").refused("no such folder")
    (tmp_path / "empty").mkdir()
    assert "holds no run yet" in cli("runs", tmp_path / "empty").fine().err


def test_encoder_decoders_are_explained_too(cli: Cli, tmp_path: Path) -> None:
    save_parts(tmp_path, toy("transformer", 0, double=False))
    begin = ("explain", tmp_path, "ba de go", "--label", "fa fe")
    cli(*begin, "--what", "attention", "--out", tmp_path / "a.html").fine()
    assert "self-attention of the encoder" in (tmp_path / "a.html").read_text()
    found = json.loads(cli(*begin, "--what", "attribution", "--json").fine().out)
    assert found["name"].startswith("log p(")
    assert [token for token, _ in found["tokens"]] == ["[CLS]", "ba", "de", "go", "[SEP]"]
    assert found["gap"] <= 0.01
    heads = json.loads(cli(*begin, "--what", "heads", "--json").fine().out)
    assert heads["layers"][-1] == "decoder 2 to the source"
