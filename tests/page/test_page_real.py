"""The page in front of a real server: what a person asks is answered by a model, in every panel.

By default toy models with noise for weights, whose answers are compared with the library's. With SESAME_SHOW="NAME=FOLDER ...
--runs DIR" it is these models that answer, for pictures: SESAME_SCREENSHOTS=DIR keeps one of every panel.
"""

import os
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sesame.api import load
from sesame.checkpoint.run import Run
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
