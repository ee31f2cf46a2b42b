"""`--engine onnx`: the same answers through ONNX Runtime, from a model folder and from an exported one."""

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sesame
from sesame.checkpoint.saving import save_parts
from tests.checkpoint.test_onnx import CONFIGS, taught, untaught
from tests.cli.calling import Cli

TEXTS = ["w1 w2 alpha beta", "w3", "beta w5 w6 w7 w8 alpha w2", " ".join(f"w{n % 20}" for n in range(60))]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    tasks = {"topic": CONFIGS["classify"], "names": CONFIGS["tag"]}
    for name, parts in {"taught": taught(tasks), "plain": untaught()}.items():
        (folder / name).mkdir()
        save_parts(folder / name, parts)
    return folder


def near(ours: Any, theirs: Any) -> bool:
    """Equal, numbers but for rounding."""
    if isinstance(ours, float):
        return abs(ours - theirs) < 1e-4
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(near(value, theirs[key]) for key, value in ours.items())
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(near, ours, theirs))
    return bool(ours == theirs)


@pytest.mark.parametrize("task", ["topic", "names"])
@pytest.mark.parametrize("exported", [False, True])
def test_answers_are_those_of_torch(cli: Cli, models: Path, tmp_path: Path, task: str, exported: bool) -> None:
    folder = models / "taught"
    if exported:
        cli("convert", folder, "--to", "onnx", "--task", task, "--out", tmp_path / "out").fine()
        folder = tmp_path / "out"
    words = ["--task", task, "--json", "--device", "cpu"]
    rows = [
        [json.loads(line) for line in cli("predict", *given, *TEXTS, *words).fine().out.splitlines()]
        for given in ([models / "taught"], [folder, "--engine", "onnx"])
    ]
    assert len(rows[0]) == len(TEXTS)
    assert near(rows[0], rows[1])


def test_vectors_and_masks_too(models: Path) -> None:
    ours, theirs = (sesame.load(models / "plain", "cpu", engine) for engine in ("onnx", "torch"))
    for layers, pooling in (("last", "mean"), ("second-to-last", "cls")):
        assert np.abs(ours.embed(TEXTS, layers, pooling) - theirs.embed(TEXTS, layers, pooling)).max() < 1e-4
    assert np.abs(ours.embed_tokens(TEXTS[0])[1] - theirs.embed_tokens(TEXTS[0])[1]).max() < 1e-4
    found = [[mask.tokens for mask in row] for row in ours.fill(["w1 [MASK] w3", "[MASK] beta"])]
    assert found == [[mask.tokens for mask in row] for row in theirs.fill(["w1 [MASK] w3", "[MASK] beta"])]


def test_eight_bits_are_compared_first(cli: Cli, models: Path) -> None:
    words = ["predict", models / "taught", *TEXTS, "--task", "topic", "--engine", "onnx", "--precision", "int8"]
    assert "int8 against fp32" in cli(*words, "--accept").fine().err


def test_bad_wishes(cli: Cli, models: Path, tmp_path: Path) -> None:
    cli("embed", models / "plain", "w1", "--engine", "onnx", "--precision", "bf16").refused("bf16", "int8")
    cli("embed", models / "plain", "w1", "--engine", "onnx", "--device", "cuda").refused("CPU")
    cli("convert", models / "taught", "--to", "onnx", "--task", "topic", "--out", tmp_path / "out").fine()
    cli("predict", tmp_path / "out", "w1").refused("--engine onnx")
    cli("embed", tmp_path / "out", "w1", "--engine", "onnx").refused("topic", "export")


@pytest.mark.parametrize("engine", ["torch", "onnx"])
def test_a_model_that_has_answered_still_goes_to_another_process(models: Path, engine: str) -> None:
    """Packed weights and sessions cannot be pickled: a fresh model travelled, a used one was a NotImplementedError."""
    model = sesame.load(models / "taught", "cpu", engine)
    answers = model.predict(TEXTS, "topic")
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert other.predict(TEXTS, "topic") == answers
    assert model.predict(TEXTS, "topic") == answers
