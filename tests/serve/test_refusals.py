"""What a server refuses: bad bodies, too much, strangers; always one sentence, never a 5xx."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sesame.serve import static
from sesame.serve.app import make_app
from sesame.serve.bodies import BODIES
from sesame.serve.limits import Limits
from sesame.serve.models import Served

SMALL = Limits(body=50_000, characters=2000, texts=12, tokens=400, work=800_000, new=20, deadline=0.0)
WORD: dict[str, Any] = {"text": "w1 w2", "word": "w1", "texts": ["w1", "w2"], "model": "reader"}
ROWS: dict[str, Any] = {"texts": ["w1", "w2"] * 5, "labels": ["a", "b"] * 5, "model": "reader"}
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def client(served: dict[str, Served]) -> Iterator[TestClient]:
    with TestClient(make_app(served, SMALL), raise_server_exceptions=False) as found:
        yield found


def refused(reply: httpx.Response, status: int, *parts: str) -> None:
    assert reply.status_code == status, reply.text
    assert list(reply.json()) == ["error"]
    said = reply.json()["error"]
    assert said, "no sentence"
    assert "\n" not in said
    assert "Traceback" not in said
    for part in parts:
        assert part in said


@pytest.mark.parametrize(
    ("what", "body", "status", "part"),
    [
        ("classify", {}, 422, "text"),
        ("classify", {"text": "a", "texts": ["a"]}, 422, "either"),
        ("classify", {"text": 5}, 422, "text"),
        ("classify", {"text": None}, 422, "either"),
        ("classify", {"text": "a", "model": "reader"}, 422, "several tasks"),
        ("classify", {"text": "a", "model": "reader", "task": "names"}, 422, "no classify task"),
        ("classify", {"text": "a", "model": "reader", "task": "follows"}, 422, "pairs"),
        ("classify", {"texts": ["a", "b"], "pairs": ["c"], "model": "reader"}, 422, "as many"),
        ("classify", {"text": "a"}, 422, "several models"),
        ("classify", {"text": "a", "model": "../../etc"}, 404, "no such model"),
        ("classify", {"text": "a", "model": "speaks"}, 422, "cannot do classify"),
        ("classify", {"text": "a", "odd": 1}, 422, "odd"),
        ("tag", {"texts": [], "model": "reader"}, 422, "texts"),
        ("tag", {"texts": ["a"] * 13, "model": "reader"}, 413, "13 texts"),
        ("tag", {"text": "w1 " * 1000, "model": "reader"}, 413, "characters"),
        ("tag", {"texts": ["w1 " * 200] * 3, "model": "reader"}, 413, "tokens"),
        ("qa", {"question": "a", "model": "reader"}, 422, "context"),
        ("qa", {"question": "a", "context": "b", "best": 21, "model": "reader"}, 422, "best"),
        ("fill", {"text": "no gap", "model": "reader"}, 422, "[MASK]"),
        ("fill", {"text": "[MASK]" + " w1" * 40, "model": "reader"}, 422, "takes 32"),
        ("fill", {"text": "[MASK]", "top": True, "model": "reader"}, 422, "top"),
        ("attention", {"text": "a", "model": "answers"}, 422, "cannot do attention"),
        ("similarity", {"a": [], "b": "x", "model": "reader"}, 422, "a"),
        ("nsp", {"text": "w1", "model": "reader"}, 422, "pair"),
        ("generate", {"text": "wa", "max_tokens": 21, "model": "speaks"}, 413, "max_tokens"),
        ("generate", {"text": "wa " * 30, "model": "speaks"}, 422, "prompt"),
        ("generate", {"text": "wa", "beams": 2, "seed": 1, "model": "speaks"}, 422, "beams"),
        ("generate", {"text": "wa", "best": 3, "model": "speaks"}, 422, "beams"),
        ("translate", {"text": "wa", "temperature": 0, "model": "answers"}, 422, "temperature"),
        ("attention", {"text": "w1", "layer": 1, "model": "reader"}, 422, "together"),
        ("attention", {"text": "w1", "layer": 2, "head": 0, "model": "reader"}, 422, "layers 0 to 1"),
        ("attention", {"text": "w1 " * 50, "model": "reader"}, 422, "takes 32"),
        ("choice", {"text": "a", "choices": ["b"], "model": "reader"}, 422, "choices"),
        ("choice", {"text": "a", "choices": ["b"] * 21, "model": "reader"}, 422, "choices"),
        ("choice", {"text": "a", "choices": ["b", "c"], "model": "speaks"}, 422, "cannot do choice"),
        ("choice", {"text": "a", "choices": ["b", "c"], "task": "mood", "model": "reader"}, 422, "no choice task"),
        ("choice", {"text": "w1 " * 50, "choices": ["b"] * 9, "model": "reader"}, 413, "tokens"),
        ("neighbours", {**WORD, "word": "w3"}, 422, "does not stand in the text"),
        ("neighbours", {**WORD, "word": "*"}, 422, "no letter"),
        ("neighbours", {**WORD, "at": 2}, 422, "stands 1 times"),
        ("neighbours", {**WORD, "at": 0}, 422, "at"),
        ("neighbours", {**WORD, "layer": 3}, 422, "0 (the embeddings) to 2"),
        ("neighbours", {**WORD, "top": 51}, 422, "top"),
        ("neighbours", {**WORD, "texts": ["w1"]}, 422, "texts"),
        ("neighbours", {**WORD, "texts": ["w1"] * 13}, 413, "13 texts"),
        ("neighbours", {**WORD, "texts": ["w1", "w1 " * 40]}, 422, "line 2 has 42 tokens, the model takes 32"),
        ("neighbours", {**WORD, "texts": ["!", "?"]}, 422, "no other word"),
        ("layers", {**ROWS, "texts": ["w1"] * 9}, 422, "texts"),
        ("layers", {**ROWS, "labels": ["a", "b"] * 4}, 422, "10 texts have 8 labels"),
        ("layers", {**ROWS, "labels": ["a"] * 10}, 422, "the same"),
        ("layers", {**ROWS, "labels": ["a"] * 9 + ["b"]}, 422, "once only"),
        ("layers", {**ROWS, "texts": ["w1 " * 28] * 10}, 413, "10 rows of up to 30 tokens are 300 places"),
        ("tokenize", {"text": "half \ud800 pair", "model": "reader"}, 422, "surrogate"),
        ("tokenize", {"te\ud800xt": "a", "model": "reader"}, 422, "valid string"),
    ],
)
def test_bodies_that_cannot_be_answered(
    client: TestClient, what: str, body: dict[str, Any], status: int, part: str
) -> None:
    refused(client.post(f"/v1/{what}", content=json.dumps(body), headers=JSON), status, part)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", 422),
        (b"{", 400),
        (b"[]", 422),
        (b"null", 422),
        (b'"text"', 422),
        (b"\xff\xfe", 400),
        (b"[" * 20_000, 400),
        (b'{"text": ' * 2000 + b"1" + b"}" * 2000, 400),
        (b'{"text": NaN}', 422),
        (b'{"model": "reader", "text": "[MASK]", "top": 1e400}', 422),
        (b'{"model": "reader", "text": "[MASK]", "top": ' + b"9" * 5000 + b"}", 400),
        (b'{"model": "speaks", "text": "wa", "temperature": NaN}', 422),
        (b'{"model": "reader", "text": "' + b"x" * 60_000 + b'"}', 413),
        (b'{"model": "reader", "text": "' + b"x" * 40_000 + b'"}', 413),
    ],
)
def test_bytes_that_are_no_body(client: TestClient, sent: bytes, status: int) -> None:
    what = "generate" if b"speaks" in sent else "fill"
    refused(client.post(f"/v1/{what}", content=sent, headers=JSON), status)


def test_odd_texts_are_answered(client: TestClient) -> None:
    for text in (
        "",
        " ",
        "\0",
        "a\0b",
        "\u202eabc",
        "👩‍🚀" * 9,
        "x" * 2000,
        "\ufdd0[SEP]",
        "[CLS] [SEP] [PAD]",
        "\r\n",
    ):
        for what, more in (
            ("classify", {"task": "mood"}),
            ("tag", {}),
            ("embed", {}),
            ("tokenize", {}),
            ("attention", {}),
        ):
            reply = client.post(f"/v1/{what}", json={"text": text, "model": "reader", **more})
            assert reply.status_code == 200, (what, text, reply.text)


def test_paths_and_methods(client: TestClient) -> None:
    refused(client.get("/v1/nothing"), 404)
    refused(client.get("/v1/fill"), 405)
    refused(client.post("/v1/fill", content=b"{}"), 415, "application/json")
    refused(client.post("/v1/fill", content=b"{}", headers={"Content-Type": "text/plain"}), 415)


def test_a_body_is_measured_while_it_is_read(served: dict[str, Served]) -> None:
    """Without a length, and without an end: the server stops reading soon behind its limit."""
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(10_000):
            sent += 1000
            yield b"x" * 1000

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(make_app(served, SMALL))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.post("/v1/fill", content=endless(), headers=JSON)

    refused(asyncio.run(ask()), 413)
    assert sent <= SMALL.body + 5000


def test_a_key(served: dict[str, Served]) -> None:
    with TestClient(make_app(served, SMALL, key="open")) as client:
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": "Basic open"},
            {"Authorization": b"Bearer \xff"},
        ):
            refused(client.get("/v1/models", headers=headers), 401)
            refused(client.get("/metrics", headers=headers), 401)
        right = {"Authorization": "Bearer open"}
        assert client.get("/v1/models", headers=right).status_code == 200
        assert client.get("/healthz").status_code == client.get("/").status_code == 200


def test_other_sites_only_if_asked(served: dict[str, Served]) -> None:
    ask = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
    with TestClient(make_app(served, SMALL)) as client:
        assert "access-control-allow-origin" not in client.get("/healthz", headers=ask).headers
        assert client.options("/v1/fill", headers=ask).status_code == 405
    with TestClient(make_app(served, SMALL, cors=["https://a.example"])) as client:
        assert client.options("/v1/fill", headers=ask).headers["access-control-allow-origin"] == "https://a.example"
        other = client.get("/healthz", headers={"Origin": "https://b.example"})
        assert "access-control-allow-origin" not in other.headers


def test_the_page_and_nothing_beside_it(
    served: dict[str, Served], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page"
    (page / "panels").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("secret")
    with TestClient(make_app(served, SMALL)) as client:
        assert client.get("/").status_code == 200
    monkeypatch.setattr(static.add_page, "__defaults__", (page,))
    with TestClient(make_app(served, SMALL)) as client:
        assert "no page" in client.get("/").text
    (page / "index.html").write_text("<!doctype html>here")
    (page / "panels" / "fill.js").write_text("export {}")
    os.symlink(tmp_path / "secret.txt", page / "link.txt")
    with TestClient(make_app(served, SMALL)) as client:
        assert "here" in client.get("/").text
        assert client.get("/page/").headers["content-type"].startswith("text/html")
        found = client.get("/page/panels/fill.js")
        assert found.headers["content-type"].startswith("text/javascript")
        assert "default-src 'self'" in found.headers["content-security-policy"]
        for path in ("../secret.txt", "%2e%2e/secret.txt", "..%2fsecret.txt", "link.txt", "/etc/passwd", "panels"):
            refused(client.get(f"/page/{path}"), 404)


def test_the_state(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"status": "ready", "models": ["reader", "speaks", "answers"]}
    models = {model["name"]: model for model in client.get("/v1/models").json()["models"]}
    assert models["reader"]["heads"] == models["reader"]["layers"] == 2
    assert {"name": "stars", "kind": "regress", "labels": None, "pair": False} in models["reader"]["tasks"]
    assert "translate" in models["answers"]["can"]
    client.post("/v1/tokenize", json={"text": "a", "model": "reader"})
    text = client.get("/metrics").text
    assert 'sesame_requests_total{path="/v1/tokenize",status="200"}' in text
    assert 'sesame_queue_requests{model="reader"} 0' in text
    assert 'sesame_request_seconds_bucket{path="/v1/tokenize",le="+Inf"}' in text
    client.get("/v1/" + "x" * 50)
    assert "xxxx" not in client.get("/metrics").text
    paths = client.get("/openapi.json").json()["paths"]
    assert {f"/v1/{what}" for what in BODIES} <= set(paths)
    assert set(paths["/v1/fill"]["post"]["responses"]) >= {"200", "413", "422", "429", "503", "504"}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
TEXT = st.text(st.characters(), max_size=40) | st.sampled_from(
    ["[MASK] w1", "wa wb", "\0", "\ud83d", "\u202e", "x" * 3000]
)
KEYS = sorted({name for body in BODIES.values() for name in body.model_fields})
FUZZ = st.fixed_dictionaries(
    {"model": st.sampled_from(["reader", "speaks", "answers"]) | VALUES},
    optional={
        key: (
            TEXT | VALUES
            if key not in ("texts", "pairs", "a", "b", "questions", "contexts", "choices", "labels")
            else st.lists(TEXT) | VALUES
        )
        | st.integers(0, 9)
        for key in KEYS
        if key != "model"
    },
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(what=st.sampled_from(sorted(BODIES)), body=FUZZ | VALUES)
def test_fuzzed_bodies(client: TestClient, what: str, body: Any) -> None:
    reply = client.post(f"/v1/{what}", content=json.dumps(body), headers=JSON)
    if reply.status_code != 200:
        assert 400 <= reply.status_code < 500, (body, reply.text)
        refused(reply, reply.status_code)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), what=st.sampled_from(sorted(BODIES)))
def test_bodies_of_the_right_shape(client: TestClient, data: Any, what: str) -> None:
    """Most of these reach the model."""
    model = {"generate": "speaks", "translate": "answers"}.get(what, "reader")
    tasks = {"classify": ["mood", "topics", "follows"], "regress": ["stars"], "tag": ["names"], "qa": ["asked"]}
    tasks["choice"] = ["pick"]
    text = data.draw(TEXT)
    body: dict[str, Any] = {"model": model, "text": text}
    if what == "qa":
        body = {"model": model, "question": text, "context": data.draw(TEXT), "best": 3}
    elif what == "similarity":
        body = {"model": model, "a": text, "b": data.draw(TEXT)}
    elif what in ("nsp", "classify", "attention"):
        body["pair"] = data.draw(TEXT)
    elif what == "fill":
        body["text"] += "[MASK]"
    elif what == "choice":
        body["choices"] = data.draw(st.lists(TEXT, min_size=2, max_size=4))
    elif what == "neighbours":
        body |= {"text": f"{text} w1", "word": "w1", "texts": data.draw(st.lists(TEXT, min_size=2, max_size=4))}
    elif what == "layers":
        labels = data.draw(st.lists(st.sampled_from("abc"), min_size=10, max_size=12))
        body = {"model": model, "texts": [f"{text}{n}"[:6] for n in range(len(labels))], "labels": labels}
    if what in tasks:
        body["task"] = data.draw(st.sampled_from(tasks[what]))
    reply = client.post(f"/v1/{what}", content=json.dumps(body), headers=JSON)
    assert reply.status_code in (200, 413, 422), (body, reply.text)
