"""The server through ONNX Runtime and in fewer bits: what `sesame.load` gives, and what an exported graph can do."""

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import sesame
from sesame.api import Loaded
from sesame.errors import SesameError
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
    assert [mood["scores"] for mood in moods] == [reply["probabilities"] for reply in library.predict(TEXTS)]
    assert [each["vector"] for each in vectors] == library.embed(TEXTS).tolist()
    plain = sesame.load(folder).fill("w1 [MASK] w2", 3)[0][0]
    assert [each["token"] for each in gaps[0]] == list(plain.tokens)
    assert [each["score"] for each in gaps[0]] == pytest.approx(list(plain.probabilities), rel=0.02)
    assert maps[0] == maps[1], "dropout is on"


def test_an_exported_graph_does_one_thing(tmp_path: Path, cli: Cli) -> None:
    folder, out = reader(tmp_path / "toy", ("mood",)), tmp_path / "graph"
    cli("convert", folder, "--to", "onnx", "--task", "mood", "--out", out).fine()
    served = open_models([str(out)], engine="onnx")
    assert served["graph"].can == ("classify", "tokenize")
    with TestClient(make_app(served)) as client:
        (answer,) = client.post("/v1/classify", json={"text": TEXTS[0]}).json()["answers"]
        assert client.post("/v1/embed", json={"text": "w1"}).status_code == 422
    assert answer["scores"] == sesame.load(out, engine="onnx").predict(TEXTS[0])[0]["probabilities"]


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
