"""A server under load: a full queue, clients that leave, answers that are late, and its end."""

import asyncio
import io
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from sesame.serve.answers import COMPUTE
from sesame.serve.app import make_app
from sesame.serve.limits import Limits
from sesame.serve.models import Served
from tests.cli.calling import Cli
from tests.serve.models import reader
from tests.serve.process import Process


class Slow:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.free, self.seen = threading.Event(), list[str]()

    def __call__(self, loaded: Any, inputs: Sequence[str]) -> list[str]:
        self.seen += inputs
        assert self.free.wait(20)
        return [text.upper() for text in inputs]


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    found = Slow()
    monkeypatch.setitem(COMPUTE, "tokenize", found)
    yield found
    found.free.set()


def until(check: Any) -> None:
    end = time.monotonic() + 20
    while not check():
        assert time.monotonic() < end
        time.sleep(0.005)


def ask(client: TestClient, text: str) -> httpx.Response:
    return client.post("/v1/tokenize", json={"text": text, "model": "reader"})


def test_a_full_queue_sheds_and_recovers(served: dict[str, Served], slow: Slow) -> None:
    app = make_app(served, Limits(queue=2, deadline=0.0))
    with TestClient(app) as client, ThreadPoolExecutor(4) as pool:
        taken: list[Future[httpx.Response]] = [pool.submit(ask, client, "first")]
        until(lambda: slow.seen == ["first"])
        for count, text in enumerate(("second", "third"), 1):
            taken.append(pool.submit(ask, client, text))
            until(lambda count=count: len(app.state.room.batchers["reader"].waiting) == count)
        away = ask(client, "fourth")
        assert away.status_code == 429
        assert int(away.headers["retry-after"]) >= 1
        assert "full" in away.json()["error"]
        slow.free.set()
        assert [future.result().json()["answers"] for future in taken] == [["FIRST"], ["SECOND"], ["THIRD"]]
        assert ask(client, "fourth").json()["answers"] == ["FOURTH"]
        assert 'status="429"} 1' in client.get("/metrics").text
    assert not app.state.room.batchers["reader"].waiting
    assert "fourth" in slow.seen


def test_an_answer_that_is_late(served: dict[str, Served], slow: Slow) -> None:
    with TestClient(make_app(served, Limits(timeout=0.2, deadline=0.0))) as client:
        with ThreadPoolExecutor(2) as pool:
            replies = list(pool.map(lambda text: ask(client, text), ("one", "two")))
        assert [reply.status_code for reply in replies] == [504, 504]
        slow.free.set()
        assert ask(client, "three").status_code == 200
    assert slow.seen in (["one", "three"], ["two", "three"], ["one", "two", "three"], ["two", "one", "three"])


def test_a_client_that_leaves(served: dict[str, Served], slow: Slow) -> None:
    """Its request is forgotten before its turn; nobody else notices."""
    app = make_app(served, Limits(deadline=0.0))
    batcher = app.state.room.batchers["reader"]
    scope = {
        "type": "http", "method": "POST", "path": "/v1/tokenize", "raw_path": b"/v1/tokenize", "query_string": b"",
        "headers": [(b"content-type", b"application/json")], "http_version": "1.1", "scheme": "http",
        "client": ("test", 1), "server": ("test", 80), "root_path": "", "asgi": {"version": "3.0"},
    }  # fmt: skip

    async def call(text: str, left: asyncio.Event) -> list[Any]:
        body = json.dumps({"text": text, "model": "reader"}).encode()
        messages, sent = [{"type": "http.request", "body": body, "more_body": False}], []

        async def receive() -> Any:
            if messages:
                return messages.pop()
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await app(dict(scope), receive, send)
        return sent

    async def story() -> tuple[list[Any], list[Any]]:
        stays, leaves = asyncio.Event(), asyncio.Event()
        first = asyncio.create_task(call("stays", stays))
        while slow.seen != ["stays"]:
            await asyncio.sleep(0.005)
        second = asyncio.create_task(call("leaves", leaves))
        while not batcher.waiting:
            await asyncio.sleep(0.005)
        leaves.set()
        gone = await second
        slow.free.set()
        return await first, gone

    answered, gone = asyncio.run(story())
    app.state.room.stop()
    assert answered[0]["status"] == 200
    assert gone[0]["status"] == 499
    assert slow.seen == ["stays"]
    assert 'sesame_skipped_total{model="reader"} 1' in app.state.figures.text()


def test_while_it_stops(served: dict[str, Served]) -> None:
    app = make_app(served)
    with TestClient(app) as client:
        app.state.standing.stopping = True
        reply = client.get("/healthz")
        assert (reply.status_code, reply.json()) == (503, {"status": "stopping"})
        assert reply.headers["connection"] == "close"
        assert ask(client, "a").status_code == 503


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    with Process(reader(tmp_path / "toy", ("mood",)), "--deadline", 200, "--timeout", 60) as found:
        yield found


def test_the_end_under_load(process: Process) -> None:
    """Requests that wait when SIGTERM comes are answered; later ones are told; the process ends with 0."""
    assert process.address.startswith("http://127.0.0.1:")
    outcomes: list[list[object]] = [[] for _ in range(12)]
    begun = threading.Semaphore(0)

    def load(number: int) -> None:
        client = httpx.Client(base_url=process.address, timeout=30, verify=False)
        while not outcomes[number] or outcomes[number][-1] == 200:
            begun.release()
            try:
                reply = client.post("/v1/classify", json={"text": f"w{number} alpha"})
            except httpx.ConnectError:
                outcomes[number].append("not taken")
            except httpx.HTTPError as error:
                outcomes[number].append(repr(error))
            else:
                outcomes[number].append(reply.status_code)
        client.close()

    threads = [threading.Thread(target=load, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for _ in range(30):  # every client has been answered, and waits again
        assert begun.acquire(timeout=30)
    code = process.end()
    for thread in threads:
        thread.join(30)
    assert code == 0
    assert all(set(found[:-1]) == {200} and found[-1] in (503, "not taken") for found in outcomes), outcomes


def test_commands_that_cannot_serve(tmp_path: Path, cli: Cli) -> None:
    folder = reader(tmp_path / "toy", ("mood",))
    cli("serve", tmp_path / "none").refused("no such folder")
    (tmp_path / "empty").mkdir()
    cli("serve", tmp_path / "empty").refused("config.json: no such file", "give the folder of a model")
    cli("serve").refused("nothing to serve", "name a model folder", "--runs DIR")
    cli("serve", "--runs", tmp_path / "none").refused("--runs", "no such folder", "name the one that holds your runs")
    cli("serve", folder, folder).refused("two models are called 'toy'")
    cli("serve", folder, "--api-key", " ").refused("--api-key")
    handler = logging.StreamHandler(io.StringIO())
    handler.close = lambda: handler.stream.close()  # type: ignore[method-assign]  # as TensorBoard's does
    cli("serve", folder, "--host", "256.0.0.1").refused("256.0.0.1:8000")
    assert not handler.stream.closed, "the server closed what others log to"


def test_help_does_not_load_the_server() -> None:
    code = """
import sys
sys.argv = ["sesame", "--help"]
from sesame.cli import main
try:
    main()
except SystemExit:
    pass
assert not {"fastapi", "torch", "uvicorn", "pydantic"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
