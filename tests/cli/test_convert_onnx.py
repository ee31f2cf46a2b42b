"""`sesame convert --to onnx`."""

from pathlib import Path

import pytest

from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.onnx.check import ask, random_batch
from sesame.checkpoint.onnx.engine import OnnxEngine
from sesame.checkpoint.saving import save_parts
from tests.checkpoint.test_onnx import CONFIGS, taught, untaught
from tests.cli.calling import Cli


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for name, parts in {
        "one": taught({"topic": CONFIGS["classify"]}, width=64, heads=4),
        "two": taught({"topic": CONFIGS["classify"], "names": CONFIGS["tag"]}),
        "none": untaught(),
    }.items():
        (folder / name).mkdir()
        save_parts(folder / name, parts)
    return folder


@pytest.mark.parametrize(
    ("name", "words", "kind"),
    [
        ("one", [], "classify"),
        ("one", ["--precision", "int8"], "classify"),
        ("two", ["--task", "names"], "tag"),
        ("none", [], "fill"),
        ("none", ["--task", "embed", "--pooling", "cls", "--layers", "first"], "embed"),
    ],
)
def test_export(cli: Cli, model: Path, tmp_path: Path, name: str, words: list[str], kind: str) -> None:
    out = tmp_path / "out"
    said = cli("convert", model / name, "--to", "onnx", "--out", out, *words).fine()
    assert f"({kind})" in said.err
    assert "largest difference to PyTorch" in said.err
    assert ("share of equal labels" in said.err) == ("int8" in words)
    assert said.out == ""
    engine, parts = OnnxEngine(out), load_parts(model / name)
    assert engine.head.kind == kind
    assert ask(parts, engine, [random_batch(parts)]).difference() < (2 if "int8" in words else 1e-4)


def test_own_texts(cli: Cli, model: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("w1 w2 alpha\n\nbeta w3\n")
    words = ["convert", model / "one", "--to", "onnx", "--out", tmp_path / "out", "--check"]
    cli(*words, tmp_path / "lines.txt").fine()
    cli(*words[:-2], tmp_path / "new", "--check", tmp_path / "none.txt").refused("none.txt")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("one", ["--to", "onx"], ["--to", "'onx'", "did you mean 'onnx'"]),
        ("one", ["--task", "topic"], ["--task belongs to an export; add --to onnx"]),
        ("one", ["--precision", "int8"], ["--precision belongs to an export"]),
        ("one", ["--to", "onnx", "--precision", "fp16"], ["--precision fp16", "fp32 and int8"]),
        ("one", ["--to", "onnx", "--task", "topik"], ["unknown task 'topik'", "did you mean 'topic'"]),
        ("one", ["--to", "onnx", "--pooling", "cls"], ["--layers and --pooling are for vectors", "--task embed"]),
        ("one", ["--to", "onnx", "--task", "fill"], ["no trained masked-language head"]),
        ("two", ["--to", "onnx"], ["several tasks (topic, names)", "--task"]),
        ("none", ["--to", "onnx", "--task", "embed", "--pooling", "mena"], ["did you mean 'mean'"]),
        ("none", ["--to", "onnx", "--task", "embed", "--layers", "7"], ["layer 7", "the model has layers 0"]),
    ],
)
def test_complaints(cli: Cli, model: Path, tmp_path: Path, name: str, words: list[str], said: list[str]) -> None:
    cli("convert", model / name, "--out", tmp_path / "out", *words).refused(*said)
    assert list(tmp_path.iterdir()) == []
