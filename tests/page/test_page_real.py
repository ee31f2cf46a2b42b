"""The page in front of a real server: what a person asks is answered by a model, in every panel.

By default toy models with noise for weights, whose answers are compared with the library's. With SESAME_SHOW="NAME=FOLDER ...
--runs DIR" it is these models that answer, for pictures: SESAME_SCREENSHOTS=DIR keeps one of every panel.
"""

import json
import os
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sesame.checkpoint.run import Run
from sesame.opening import load
from sesame.serve.bodies import BODIES
from tests.page.conftest import PHONE, WIDE
from tests.page.test_page_panels import panel, send
from tests.serve.models import decoder, reader, translator
from tests.serve.process import Process
from tests.serve.test_served_runs import RECIPE, line

pytestmark = pytest.mark.slow  # a browser, a server

SHOW = os.environ.get("SESAME_SHOW", "")
Visit = Callable[..., Any]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("real")
    runs = folder / "runs"
    runs.mkdir()
    found = {
        "reader": reader(folder / "reader", max_length=128), "speaks": decoder(folder / "speaks"),
        "answers": translator(folder / "answers"), "runs": runs,
    }  # fmt: skip
    with Run.claim(runs / "first", RECIPE) as run:
        for step in range(1, 30):
            run.log(line(step, 5 / step))
    return found


@pytest.fixture(scope="module")
def server(folders: dict[str, Path]) -> Iterator[Process]:
    toys = [folders["reader"], folders["speaks"], folders["answers"], "--runs", folders["runs"]]
    with Process(*(shlex.split(SHOW) or toys)) as found:
        yield found


def can(server: Process) -> set[str]:
    served = httpx.get(f"{server.address}/v1/models", verify=False).json()
    names = {"similarity": "pairs", "tokenize": "tokens", "regress": "classify"}
    found = {names.get(one, one) for model in served["models"] for one in model["can"]}
    found |= {"head"} if "attention" in found else set()
    return (found | ({"runs"} if served.get("runs") else set())) - {"embed", "nsp"}


@pytest.mark.parametrize(("size", "name"), [(WIDE, "wide"), (PHONE, "phone")])
def test_every_panel_is_answered(
    visit: Visit, keep: Callable[..., None], server: Process, size: tuple[int, int], name: str
) -> None:
    page = visit(size=size, address=server.address)
    shown = {tab.get_attribute("id").removeprefix("tab-") for tab in page.locator("[role=tab]").all()}
    assert shown == can(server)
    for each in sorted(shown):
        place = panel(page, each)
        if each == "runs":
            place.locator("figure path.smooth").first.wait_for(state="attached")
        else:
            place.get_by_role("button", name="Example", exact=True).click()
            place.locator(".output:not([aria-busy=true]) > :visible, .status.error").first.wait_for(timeout=30_000)
            assert place.locator(".status.error").all_inner_texts() == [], each
        page.mouse.move(0, 0)
        keep(page, f"real-{each}-{name}")
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0], each


@pytest.mark.parametrize("size", [WIDE, PHONE])
def test_every_call_of_the_api_page_is_answered(
    visit: Visit, keep: Callable[..., None], server: Process, size: tuple[int, int]
) -> None:
    page = visit(size=size, address=f"{server.address}/docs")
    page.locator("section.path").first.wait_for()
    keep(page, f"real-api-{size[0]}")
    calls = [shlex.split(text) for text in page.locator("section.path pre").all_inner_texts()]
    models = httpx.get(f"{server.address}/v1/models", verify=False).json()["models"]
    asked = set()
    for call in calls:
        what = call[1].rpartition("/")[2]
        if "-d" not in call:
            assert httpx.get(call[1], verify=False).status_code == 200
            continue
        model = next(model for model in models if what in model["can"])
        tasks = [task["name"] for task in model["tasks"] if task["kind"] == what and not task["pair"]]
        body = json.loads(call[call.index("-d") + 1]) | {"model": model["name"]} | ({"task": tasks[0]} if tasks else {})
        reply = httpx.post(call[1], json=body, verify=False, timeout=60)
        assert reply.status_code == 200, (what, reply.text)
        asked.add(what)
    assert asked == set(BODIES)
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    if (axe := Path(os.environ.get("SESAME_AXE", "axe.min.js"))).is_file():
        page.evaluate(axe.read_text(encoding="utf-8"))
        found = page.evaluate("axe.run(document)")["violations"]
        assert [rule["id"] for rule in found if rule["impact"] in ("serious", "critical")] == []


@pytest.mark.skipif(bool(SHOW), reason="asks the toy models")
def test_bars_and_marks_are_the_models_own(visit: Visit, server: Process, folders: dict[str, Path]) -> None:
    page, library = visit(address=server.address), load(folders["reader"])
    place = panel(page, "fill")
    place.get_by_label("Text").fill("alpha [MASK] w1")
    place.get_by_label("Candidates").fill("4")
    send(place)
    ((gap,),) = library.fill(["alpha [MASK] w1"], 4)
    assert [name.strip() for name in place.locator(".bar .name").all_inner_texts()] == [t.strip() for t in gap.tokens]
    assert place.locator(".bar .value").all_inner_texts() == [f"{100 * p:.1f} %" for p in gap.probabilities]
    place = panel(page, "tag")
    place.get_by_label("Text").fill("alpha w1 beta w2 gamma")
    send(place)
    (reply,) = library.predict(["alpha w1 beta w2 gamma"], "names")
    assert reply["entities"]
    assert place.locator("td.text").all_inner_texts() == [entity["text"] for entity in reply["entities"]]
