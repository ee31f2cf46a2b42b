"""`/v1/runs`: run folders as the library writes them, one that grows, half lines, strangers; thin curves that keep spikes."""

import json
import os
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from sesame.checkpoint.run import Run
from sesame.errors import SesameError
from sesame.serve import runs as watching
from sesame.serve.app import make_app
from sesame.serve.curves import POINTS, short, smoothed, thinned
from sesame.serve.models import Served
from sesame.serve.runs import Watch
from tests.page.fake_runs import FakeRuns

RECIPE = {"name": "bert", "steps": 100, "backbone": {"depth": 2, "width": 64}, "objectives": {"mlm": {}, "nsp": {}}}
TRANSFER = {"transfer": {"name": "full"}, "run": {"model": "/home/me/runs/mine/final", "task": "tag"}}


def line(step: int, loss: float) -> dict[str, Any]:
    return {"step": step, "seconds": step / 4, "tokens": step * 50, "loss": loss, "mlm": loss, "rate": step * 1e-5}


def look(step: int, mlm: float) -> dict[str, Any]:
    return {"step": step, "seconds": step / 4, "held_out": {"mlm": mlm, "nsp": 0.5, "mlm_accuracy": 0.1}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "tries"
    found.mkdir()
    return found


@pytest.fixture
def client(folder: Path) -> Iterator[TestClient]:
    with TestClient(make_app({}, runs=Watch(folder, rest=0.0, share=0.0)), raise_server_exceptions=False) as found:
        yield found


def asked(client: TestClient, since: int = 0) -> dict[str, Any]:
    reply = client.get("/v1/runs", params={"since": since})
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == "application/json"
    found = reply.json()
    assert found["found"] == len(found["runs"])
    return {run["name"]: run for run in found["runs"]} | {"": found}


def test_a_run_that_grows(folder: Path, client: TestClient) -> None:
    with Run.claim(folder / "old", RECIPE) as run:
        run.log(line(10, 5.0))
    with Run.claim(folder / "deep" / "new", RECIPE) as run:
        for told in (line(10, 4.0), look(10, 3.5), line(20, 3.0)):
            run.log(told)
        first = asked(client)
        new = first["deep/new"]
        assert 0 <= new.pop("age") < 600
        assert new == {
            "name": "deep/new", "recipe": "bert", "size": "2 × 64", "state": "running", "step": 20, "steps": 100,
            "tokens": 1000, "seconds": 5.0, "last": {"mlm": 3.5, "nsp": 0.5}, "kept": None, "broken": 0,
            "train": {"step": [10, 20], "tokens": [500, 1000], "seconds": [2.5, 5.0], "loss": [4.0, 3.0],
                      "smooth": [4.0, short(smoothed([4.0, 3.0])[1])], "rate": [1e-4, 2e-4]},
            "held_out": {"mlm": {"step": [10], "tokens": [500], "seconds": [2.5], "value": [3.5]},
                         "nsp": {"step": [10], "tokens": [500], "seconds": [2.5], "value": [0.5]}},
        }  # fmt: skip
        assert first["old"]["state"] == "interrupted"
        run.log(line(30, 2.0))
        second = asked(client, first[""]["stamp"])
        assert second["deep/new"]["train"]["loss"] == [4.0, 3.0, 2.0]
        assert set(second["old"]) == {"name", "age"}, "what has not changed is not told again"
        assert set(asked(client, second[""]["stamp"])["deep/new"]) == {"name", "age"}
    third = asked(client, second[""]["stamp"])
    assert third["deep/new"]["state"] == "interrupted", "a lock that was let go is a change too"
    (folder / "deep" / "new" / "final").mkdir()
    (folder / "deep" / "new" / "final" / "config.json").write_text("{}")
    assert asked(client, third[""]["stamp"])["deep/new"]["state"] == "done"
    assert asked(client, 0)["old"]["train"]["loss"] == [5.0], "an older stamp, as after a restart, gets everything"


def test_a_fine_tuning_tells_its_newest_part_and_no_path(folder: Path, client: TestClient) -> None:
    with Run.claim(folder / "taught", TRANSFER), Run.claim(folder / "taught" / "seed-0", TRANSFER) as part:
        part.log({"step": 5, "seconds": 0.5, "loss": 1.0, "rate": 1e-3})
        part.log({"step": 5, "valid": 0.75})
    found = asked(client)
    taught = found["taught"]
    assert (taught["recipe"], taught["size"], taught["last"]) == ("full", "from mine", {"valid": 0.75})
    assert taught["train"]["tokens"] is None
    assert taught["held_out"] == {"valid": {"step": [5], "tokens": None, "seconds": [0.5], "value": [0.75]}}
    assert "/home" not in json.dumps(found[""])
    assert str(folder.parent) not in json.dumps(found[""])


def test_half_a_line_waits_and_broken_logs_are_told(folder: Path, client: TestClient) -> None:
    with Run.claim(folder / "one", RECIPE) as run:
        run.log(line(10, 4.0))
        whole = json.dumps(line(20, 3.0)) + "\n"
        with run.metrics.open("a") as handle:
            handle.write(whole[:17])
        assert asked(client)["one"]["train"]["loss"] == [4.0]
        with run.metrics.open("a") as handle:
            handle.write(whole[17:])
        assert asked(client)["one"]["train"]["loss"] == [4.0, 3.0]
    run.metrics.write_bytes(b'\xff\xfe\n[1]\n{"step": 3, "loss": NaN}\n{"step": 4, "held_out": {"\\ud800": 1.0}}\n')
    (folder / "one" / "recipe.toml").write_bytes(b"= \xff")
    found = asked(client)["one"]
    assert (found["recipe"], found["step"], found["broken"], found["train"]["loss"]) == ("?", 4, 3, [])


def test_runs_written_and_withdrawn_while_somebody_looks(folder: Path, client: TestClient) -> None:
    def write() -> None:
        for number in range(30):
            with Run.claim(folder / f"run-{number % 3}", RECIPE) as run:
                run.log(line(10 + number, 1.0))
                if number % 2:
                    run._withdraw()

    writer = threading.Thread(target=write)
    writer.start()
    looks = 0
    while writer.is_alive() or not looks:
        asked(client)
        looks += 1
    writer.join()
    assert "run-2" in asked(client) or "run-1" in asked(client)


def test_what_has_not_changed_is_not_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        with Run.claim(folder / name, RECIPE) as run:
            run.log(line(10, 4.0))
    read: list[str] = []
    real = watching.read_run
    monkeypatch.setattr(watching, "read_run", lambda place, root: (read.append(place.name), real(place, root))[1])
    watch = Watch(folder, rest=0.0, share=0.0)
    for _ in range(3):
        watch.tell()
    assert sorted(read) == ["a", "b"]
    run.log(line(20, 3.0))
    watch.tell()
    assert sorted(read) == ["a", "b", "b"]
    resting = Watch(folder, rest=1000.0)
    resting.tell()
    run.log(line(30, 2.0))
    assert json.loads(resting.tell())["runs"][0]["step"] == 20, "many clients make no more looks than one"
    resting.next = 0.0
    assert json.loads(resting.tell())["runs"][0]["step"] == 30


def test_only_the_newest_runs_are_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "MOST", 2)
    for number, name in enumerate(("old", "newer", "newest")):
        with Run.claim(folder / name, RECIPE):
            os.utime(folder / name / "recipe.toml", (1e9 + number,) * 2)
    found = json.loads(Watch(folder).tell())
    assert (found["found"], [run["name"] for run in found["runs"]]) == (3, ["newest", "newer"])


def test_looking_writes_nothing(folder: Path, client: TestClient) -> None:
    with Run.claim(folder / "one", RECIPE) as run:
        run.log(line(10, 4.0))

    def all_files() -> dict[str, tuple[int, int]]:
        return {str(each): (each.stat().st_mtime_ns, each.stat().st_size) for each in folder.rglob("*")}

    before = all_files()
    asked(client)
    asked(client, 7)
    assert all_files() == before


def test_empty_missing_and_odd_folders(folder: Path, client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(client)[""] | {"stamp": 0} == {"folder": "tries", "stamp": 0, "found": 0, "runs": []}
    with pytest.raises(SesameError, match="no such folder; name the one that holds your runs"):
        Watch(folder / "none")
    monkeypatch.chdir(folder)
    assert json.loads(Watch(Path()).tell())["folder"] == "tries"
    odd = os.fsdecode(b"caf\xe9")
    with Run.claim(folder / odd, RECIPE):
        assert list(asked(client)) == ["caf?", ""], "a name that is no text"
    (folder / odd / "recipe.toml").unlink()
    monkeypatch.chdir("/")
    for each in folder.rglob("*"):
        each.unlink() if each.is_file() else None
    (folder / odd).rmdir()
    folder.rmdir()
    assert asked(client)[""]["runs"] == [], "gone while it is watched"


def test_no_request_names_a_file_and_bad_stamps_are_told(folder: Path, client: TestClient) -> None:
    for bad in ("x", "", "1.5", "9" * 5000, "../../etc"):
        reply = client.get("/v1/runs", params={"since": bad})
        assert (reply.status_code, list(reply.json())) == (422, ["error"]), reply.text
        assert reply.json()["error"].startswith("since: ")
    assert asked(client, -5)[""]["runs"] == []
    assert client.get("/v1/runs", params={"folder": "/etc"}).json()["folder"] == "tries"
    assert client.get("/v1/runs/../../etc/passwd").status_code == 404
    assert client.post("/v1/runs", json={}).status_code == 405


def test_a_server_without_models(folder: Path, client: TestClient) -> None:
    assert client.get("/v1/models").json() == {"models": [], "runs": True}
    assert client.get("/healthz").json() == {"status": "ready", "models": []}
    for body in ({"text": "a"}, {"text": "a", "model": "b"}):
        reply = client.post("/v1/tokenize", json=body)
        assert (reply.status_code, reply.json()) == (404, {"error": "there is no such model; only runs are shown here"})
    client.get("/v1/runs")
    assert 'sesame_requests_total{path="/v1/runs",status="200"} 1' in client.get("/metrics").text
    assert "/v1/runs" in client.get("/openapi.json").json()["paths"]


def test_a_server_without_runs_and_one_with_a_key(served: dict[str, Served], folder: Path) -> None:
    with TestClient(make_app(served)) as client:
        assert client.get("/v1/models").json()["runs"] is False
        reply = client.get("/v1/runs")
        assert (reply.status_code, "--runs DIR" in reply.json()["error"]) == (404, True)
    with TestClient(make_app({}, key="open", runs=Watch(folder))) as client:
        assert client.get("/v1/runs").status_code == 401
        assert client.get("/v1/runs", headers={"Authorization": "Bearer open"}).status_code == 200


def test_the_fake_of_the_page_tells_the_same(folder: Path, client: TestClient) -> None:
    fake = FakeRuns()
    fake.add("one", 5)
    with Run.claim(folder / "one", RECIPE) as run:
        run.log(line(10, 4.0))
        run.log(look(10, 3.0))
    ours, theirs = asked(client), fake.tell(0)
    assert set(ours[""]) == set(theirs)
    (other,) = theirs["runs"]
    assert set(ours["one"]) == set(other)
    assert set(ours["one"]["train"]) == set(other["train"])
    assert set(ours["one"]["held_out"]["mlm"]) == set(other["held_out"]["mlm"])


def test_thin_curves_keep_ends_and_spikes() -> None:
    values = [100.0 - number / 50 for number in range(5000)]
    values[1234], values[3210] = 999.0, -999.0
    kept = thinned(values)
    assert len(kept) <= POINTS
    assert kept == sorted(set(kept))
    assert {0, 1234, 3210, 4999} <= set(kept)
    gaps = [after - before for before, after in pairwise(kept)]
    assert max(gaps) < 2.5 * 5000 / (POINTS / 2), "no stretch is left out"
    for count in (0, 1, POINTS - 1, POINTS):
        assert thinned(values[:count]) == list(range(count))
    for count in (POINTS + 1, POINTS + 2, 2 * POINTS - 1):
        assert len(thinned(values[:count])) <= POINTS


def test_the_smooth_line_is_the_mean_that_forgets() -> None:
    values = [3.0, 1.0, 4.0, 1.0, 5.0]
    for end, found in enumerate(smoothed(values), 1):
        weights = [0.75 ** (end - 1 - place) for place in range(end)]
        told = sum(w * value for w, value in zip(weights, values, strict=False)) / sum(weights)
        assert found == pytest.approx(told)
    assert smoothed([2.0] * 1000) == pytest.approx([2.0] * 1000)
    falling = smoothed([1000.0 - number for number in range(1000)])
    assert falling[-1] == pytest.approx(1 + 19, abs=0.1), "a line is followed at a distance of n / 50 - 1"
