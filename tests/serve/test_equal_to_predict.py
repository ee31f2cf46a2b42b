"""A thousand texts of every task: a server under load says one by one what `sesame predict` wrote, digit by digit."""

import json
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.calling import Cli
from tests.serve.models import TASKS, reader
from tests.serve.process import Process
from tests.tasks.toys import PLAIN

pytestmark = pytest.mark.slow

COUNT = 1000
Row = dict[str, Any]


def sentence(luck: random.Random) -> str:
    strange = ["é", "👩‍🚀", "zzz", "\u202eabc", "x,y", '"q"', "l'été", "東京"]
    return " ".join(luck.choices(PLAIN + strange, k=luck.randint(1, 45)))  # some longer than the model reads at once


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reader(tmp_path_factory.mktemp("equal") / "toy")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Process]:
    with Process(folder) as found:
        yield found


def rows_of(kind: str, pair: bool, luck: random.Random) -> list[Row]:
    if kind == "qa":
        return [{"question": sentence(luck), "context": sentence(luck)} for _ in range(COUNT)]
    if kind == "choice":
        return [{"text": sentence(luck), "choices": [sentence(luck) for _ in range(3)]} for _ in range(COUNT)]
    return [{"text": sentence(luck)} | ({"pair": sentence(luck)} if pair else {}) for _ in range(COUNT)]


def predicted(kind: str, row: Row) -> Row:
    """A row as `sesame predict --file` reads it."""
    return {"text": row["text"], "options": row["choices"]} if kind == "choice" else row


SAYS: dict[str, Callable[[Row, Row], tuple[Any, Any]]] = {  # what HTTP said beside what was predicted
    "classify": lambda http, row: (
        (http["scores"], http.get("labels", http["label"])),
        (row["probabilities"], row.get("labels", row.get("label"))),
    ),
    "regress": lambda http, row: (http["score"], row["value"]),
    "tag": lambda http, row: (
        [(e["label"], e["start"], e["end"], e["text"], e["score"]) for e in http["entities"]],
        [(e["label"], e["start"], e["end"], e["text"], e["probability"]) for e in row["entities"]],
    ),
    "qa": lambda http, row: (
        (http["answer"], http["none"], [(a["text"], a["start"], a["score"]) for a in http["answers"]]),
        (row["answer"], row["no_answer"], [(a["answer"], a["start"], a["probability"]) for a in row["best"]]),
    ),
    "choice": lambda http, row: ((http["choice"], http["scores"]), (row["choice"], row["probabilities"])),
}


@pytest.mark.parametrize("task", TASKS)
def test_a_thousand_texts(task: str, folder: Path, server: Process, tmp_path: Path, cli: Cli) -> None:
    kind = str(TASKS[task]["kind"])
    rows = rows_of(kind, bool(TASKS[task].get("pair")), random.Random(task))
    file, out = tmp_path / "rows.jsonl", tmp_path / "answers.jsonl"
    file.write_text("".join(json.dumps(predicted(kind, row)) + "\n" for row in rows))
    cli("predict", folder, "--file", file, "--task", task, "--out", out).fine()
    expected = [json.loads(line) for line in out.read_text().splitlines()]
    more = {"best": 5} if kind == "qa" else {}

    with httpx.Client(base_url=server.address, timeout=60, verify=False) as client, ThreadPoolExecutor(16) as pool:

        def ask(row: Row) -> Row:
            reply = client.post(f"/v1/{kind}", json=row | more | {"task": task})
            assert reply.status_code == 200, reply.text
            return reply.json()["answers"][0]  # type: ignore[no-any-return]

        answers = list(pool.map(ask, rows))
    assert len(answers) == len(expected) == COUNT
    for answer, row in zip(answers, expected, strict=True):
        said, wanted = SAYS[kind](answer, row)
        assert said == wanted


def test_the_log_did_not_grow_with_the_requests(server: Process) -> None:
    long = "alpha " * 200
    assert httpx.post(f"{server.address}/v1/tag", json={"text": long, "task": "names"}, verify=False).status_code == 200
    assert server.end() == 0
    assert server.process.stderr is not None
    assert server.process.stderr.read() == ""
