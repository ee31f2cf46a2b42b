"""The server through ONNX Runtime and in fewer bits: what `sesame.load` gives, and what an exported graph can do."""

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import sesame
from sesame.data.examples import Example
from sesame.errors import SesameError
from sesame.explain.near_words import near_words, occurrence
from sesame.loaded import Loaded
from sesame.serve.app import make_app
from sesame.serve.models import open_models
from tests.cli.calling import Cli
from tests.serve.models import reader

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")
TEXTS = ["w1 w2 alpha", "gamma w4 w5 w6", "w9"]


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_onnx_answers_are_the_librarys(tmp_path: Path, precision: str) -> None:
    folder = reader(tmp_path / "toy", ("mood",))
    served = open_models([str(folder)], engine="onnx", precision=precision, accept=True)
    library = sesame.load(folder, engine="onnx", precision=precision, accept=True)
    assert served["toy"].loaded.onnx
    assert served["toy"].loaded.precision == precision
    with TestClient(make_app(served)) as client:
        moods = client.post("/v1/classify", json={"texts": TEXTS}).json()["answers"]
        vectors = client.post("/v1/embed", json={"texts": TEXTS}).json()["answers"]
        gaps = client.post("/v1/fill", json={"text": "w1 [MASK] w2", "top": 3}).json()["answers"][0]["gaps"]
        maps = [client.post("/v1/attention", json={"text": "w1 w2"}).content for _ in range(2)]
        word = {"text": "w1 w2", "word": "w2", "texts": [*TEXTS, "w2 w1"], "layer": 1, "top": 3}
        near = client.post("/v1/neighbours", json=word).json()["answers"][0]["neighbours"]
        rows = {"texts": [f"w{n % 9} w{n % 4}" for n in range(12)], "labels": ["a", "b"] * 6}
        known = client.post("/v1/layers", json=rows).json()["answers"][0]
    assert [mood["scores"] for mood in moods] == [reply["probabilities"] for reply in library.predict(TEXTS)]
    assert [each["vector"] for each in vectors] == library.embed(TEXTS).tolist()
    plain = sesame.load(folder).fill("w1 [MASK] w2", 3)[0][0]
    assert [each["token"] for each in gaps[0]] == list(plain.tokens)
    assert [each["score"] for each in gaps[0]] == pytest.approx(list(plain.probabilities), rel=0.02)
    assert maps[0] == maps[1], "dropout is on"
    parts = sesame.load(folder).parts  # ONNX Runtime gives one layer: what looks inside computes in torch
    assert parts.tokenizer is not None
    wanted = near_words(parts.backbone, parts.tokenizer, occurrence("w1 w2", "w2"), [*TEXTS, "w2 w1"], "1", 3)
    assert [(one["line"], one["word"]) for one in near] == [(one.line, one.occurrence.word) for one in wanted]
    assert [one["score"] for one in near] == pytest.approx([one.cosine for one in wanted], abs=1e-5)
    assert [row["layer"] for row in known["layers"]] == ["embeddings", "1", "2", "mix"]


def test_an_exported_graph_does_one_thing(tmp_path: Path, cli: Cli) -> None:
    folder, out = reader(tmp_path / "toy", ("mood",)), tmp_path / "graph"
    cli("convert", folder, "--to", "onnx", "--task", "mood", "--out", out).fine()
    served = open_models([str(out)], engine="onnx")
    assert served["graph"].can == ("classify", "tokenize")
    with TestClient(make_app(served)) as client:
        (answer,) = client.post("/v1/classify", json={"text": TEXTS[0]}).json()["answers"]
        assert client.post("/v1/embed", json={"text": "w1"}).status_code == 422
    assert answer["scores"] == sesame.load(out, engine="onnx").predict(TEXTS[0])[0]["probabilities"]


def test_an_exported_choice(tmp_path: Path, cli: Cli) -> None:
    folder, out = reader(tmp_path / "toy", ("pick",)), tmp_path / "graph"
    cli("convert", folder, "--to", "onnx", "--task", "pick", "--out", out).fine()
    served = open_models([str(out)], engine="onnx")
    assert served["graph"].can == ("choice", "tokenize")
    with TestClient(make_app(served)) as client:
        (answer,) = client.post("/v1/choice", json={"text": "w1", "choices": ["w2", "w3 w4"]}).json()["answers"]
    (reply,) = sesame.load(folder).predict([Example("", "w1", options=("w2", "w3 w4"))])
    assert answer["scores"] == pytest.approx(reply["probabilities"], abs=1e-4)


def test_what_fails_at_the_start_is_left_out_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise SesameError("the graph does not open")

    folder = reader(tmp_path / "toy", ("mood",))
    monkeypatch.setattr(Loaded, "fill", broken)
    served = open_models([str(folder)])["toy"]
    assert "fill" not in served.can
    assert {"classify", "embed"} <= set(served.can)
    assert "toy: fill is left out: the graph does not open" in capsys.readouterr().err
    monkeypatch.setattr(Loaded, "predict", broken)
    with pytest.raises(SesameError, match="does not open"):
        open_models([str(folder)])
