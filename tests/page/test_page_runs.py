"""The panel of runs: curves that lie where the numbers say, a table that lives on while runs grow, axes, cursor, looks."""

import math
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.page.conftest import PHONE, WIDE
from tests.page.fake import Fake
from tests.page.fake_runs import FakeRuns

pytestmark = pytest.mark.slow  # a browser

Visit = Callable[..., Any]
SMOOTH = "figure:has-text('Training loss') path.smooth[data-run='{}']"


@pytest.fixture
def runs() -> FakeRuns:
    found = FakeRuns()
    found.add("taught", 12, task=True)
    found.add("old/base", 80, "interrupted")
    found.add("mine", 40, "running", age=3.0)
    return found


@pytest.fixture
def address(runs: FakeRuns) -> Iterator[str]:
    with Fake([], runs=runs) as fake:
        yield fake.address


def opened(visit: Visit, address: str, fragment: str = "runs", **settings: Any) -> Any:
    page = visit(fragment, address=address, **settings)
    page.locator("#panel-runs tbody tr").first.wait_for()
    return page


def points(page: Any, selector: str) -> list[tuple[float, float]]:
    path = page.locator(selector).get_attribute("d")
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", path)]


def shares(values: list[float]) -> list[float]:
    """Where each lies between the first and the last."""
    return [(value - values[0]) / (values[-1] - values[0]) for value in values]


def test_a_server_of_runs_alone(visit: Visit, runs: FakeRuns, address: str) -> None:
    page = opened(visit, address, "")
    assert page.get_by_role("tab").all_inner_texts() == ["Runs"]
    assert page.get_by_text("No model is served here, only runs are shown.").count() == 1
    assert page.get_by_text("3 runs under “runs”.").count() == 1
    rows = page.locator("#panel-runs tbody tr")
    last = round(runs.runs[0][1]["last"]["mlm"], 3)
    assert rows.nth(0).locator("th, td").all_inner_texts() == [
        "mine", "electra", "running", "400 / 1,000", "1.64 M", f"mlm {last}", "3 s ago", "4 × 256",
    ]  # fmt: skip
    assert rows.nth(2).locator("th, td").all_inner_texts()[4:6] == ["", "score 0.6667"]
    assert page.locator("figcaption").all_inner_texts() == [
        "Training loss", "Held-out loss: mlm", "Score on validation rows", "Learning rate",
    ]  # fmt: skip


def test_runs_stand_beside_models_only_if_the_server_has_them(visit: Visit, runs: FakeRuns, fake: Fake) -> None:
    assert "Runs" not in visit().get_by_role("tab").all_inner_texts()
    with Fake(runs=runs) as both:
        page = visit(address=both.address)
        assert page.get_by_role("tab").all_inner_texts()[-1] == "Runs"
        assert runs.asked == []  # nobody looks
        page.get_by_role("tab", name="Runs").click()
        page.locator("#panel-runs tbody tr").first.wait_for()


def test_curves_lie_where_the_numbers_say(visit: Visit, runs: FakeRuns, address: str) -> None:
    page = opened(visit, address)
    train = runs.runs[0][1]["train"]
    found = points(page, SMOOTH.format("mine"))
    assert len(found) == 40
    assert shares([x for x, _ in found]) == pytest.approx(shares(train["step"]), abs=1e-3)
    assert shares([y for _, y in found]) == pytest.approx(shares(train["smooth"]), abs=1e-3)
    raw = points(page, SMOOTH.format("mine").replace("smooth", "raw"))
    scale = (train["smooth"][-1] - train["smooth"][0]) / (found[-1][1] - found[0][1])  # of a pixel
    for (_, y), value in zip(raw, train["loss"], strict=True):
        assert train["smooth"][0] + (y - found[0][1]) * scale == pytest.approx(value, abs=0.02)
    dashes = page.locator("figure:has-text('Training loss') path.smooth").evaluate_all(
        "(all) => all.map((one) => [getComputedStyle(one).stroke, one.getAttribute('stroke-dasharray')])"
    )
    assert len({color for color, _ in dashes}) == len({dash for _, dash in dashes}) == 3


def test_a_running_run_grows_and_what_was_chosen_stays(visit: Visit, runs: FakeRuns, address: str) -> None:
    page = opened(visit, address)
    page.get_by_role("checkbox", name="old/base").uncheck()
    assert page.locator(SMOOTH.format("old/base")).count() == 0
    page.get_by_role("checkbox", name="taught").focus()
    color = page.locator(SMOOTH.format("taught")).get_attribute("class")
    runs.grow("mine", 5)
    runs.add("newest", 3, "running")
    page.locator("#panel-runs tbody tr", has_text="450 / 1,000").wait_for()
    assert len(points(page, SMOOTH.format("mine"))) == 45
    assert runs.asked[-1] > 0  # only what changed was asked for
    assert page.locator("#panel-runs tbody th").all_inner_texts() == ["newest", "mine", "old/base", "taught"]
    assert page.locator("#panel-runs tbody input:checked").count() == 2, "somebody has chosen: nothing is added"
    assert page.locator(SMOOTH.format("taught")).get_attribute("class") == color
    assert page.evaluate("document.activeElement.closest('tr').textContent").startswith("taught")
    runs.runs = [each for each in runs.runs if each[1]["name"] != "mine"]
    page.locator("#panel-runs tbody tr", has_text="450 / 1,000").wait_for(state="detached")
    assert page.locator(SMOOTH.format("mine")).count() == 0


def test_of_many_runs_the_newest_are_chosen_at_first(visit: Visit) -> None:
    runs = FakeRuns()
    for number in range(9):
        runs.add(f"run-{number}", 3)
    with Fake([], runs=runs) as fake:
        page = opened(visit, fake.address)
        assert page.locator(".legend li").all_inner_texts() == [f"run-{number}" for number in range(8, 2, -1)]
        page.get_by_role("checkbox", name="run-7").uncheck()
        page.get_by_role("checkbox", name="run-0").check()
        chosen = ["run-8", "run-0", "run-6", "run-5", "run-4", "run-3"]
        assert page.locator(".legend li").all_inner_texts() == chosen, "its color is free again"
        again = opened(visit, fake.address, page.url.split("#")[1])
        assert sorted(again.locator(".legend li").all_inner_texts()) == sorted(chosen)


def test_axes_and_what_a_log_does_not_tell(visit: Visit, runs: FakeRuns, address: str) -> None:
    page = opened(visit, address)
    linear = points(page, SMOOTH.format("mine"))
    page.get_by_label("Logarithmic losses").check()
    curved = points(page, SMOOTH.format("mine"))
    logs = [math.log(value) for value in runs.runs[0][1]["train"]["smooth"]]
    assert shares([y for _, y in curved]) == pytest.approx(shares(logs), abs=2e-3)
    assert curved != linear
    page.get_by_label("Over tokens").check()
    assert page.get_by_text("Not drawn, for their logs do not tell it: taught.").count() == 1
    assert page.locator("[data-run=taught]").count() == 0
    assert page.locator("figure").first.locator("text").last.text_content() == "tokens"
    page.get_by_label("Over time").check()
    assert page.locator("[data-run=taught]").count() > 0
    assert page.locator("figure").first.locator("text").all_text_contents()[-6:] == [
        "0 s",
        "10 s",
        "20 s",
        "30 s",
        "40 s",
        "time",
    ]
    again = opened(visit, address, page.url.split("#")[1])
    assert again.get_by_label("Logarithmic losses").is_checked()
    assert again.get_by_label("Over time").is_checked()


def test_a_cursor_reads_values(visit: Visit, runs: FakeRuns, address: str) -> None:
    page = opened(visit, address, "runs&runs=mine")
    chart = page.locator("figure").first
    chart.locator(".curves").focus()
    train = runs.runs[0][1]["train"]
    for key, place in (
        ("ArrowRight", 0),
        ("ArrowRight", 1),
        ("PageDown", 11),
        ("ArrowLeft", 10),
        ("End", 39),
        ("Home", 0),
    ):
        page.keyboard.press(key)
        said = chart.locator(".readout").inner_text().replace("\n", " ")
        numbers = [float(number) for number in re.findall(r"[\d.]+", said)]
        assert numbers[0] == train["step"][place]
        assert numbers[1:] == pytest.approx([train["smooth"][place], train["loss"][place]], rel=1e-3)
    page.locator("h2").click()
    box = chart.locator("svg").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 15, box["y"] + 50)
    assert "step 400" in chart.locator(".readout").inner_text()
    assert chart.locator(".cursor-line circle").count() == 1
    page.mouse.move(0, 0)
    assert "Point at the curves" in chart.locator(".readout").inner_text()


def test_no_runs_and_a_server_that_goes_away(visit: Visit) -> None:
    with Fake([], runs=FakeRuns("tries")) as fake:
        page = visit("runs", address=fake.address)
        page.get_by_text("No runs yet under “tries”; sesame pretrain and sesame finetune make them.").wait_for()
        assert page.locator("#panel-runs table").is_hidden()
        page.route("**/v1/runs*", lambda route: route.fulfill(status=502, body="bad gateway"))
        page.get_by_text("The server answered 502 without saying why.").wait_for()
        page.unroute_all()
        assert fake.runs is not None
        fake.runs.add("first", 3, "running")
        page.locator("#panel-runs tbody tr").first.wait_for()
        assert page.locator("#panel-runs .status.error").count() == 0
        assert page.get_by_text("One run under “tries”.").count() == 1


def test_nobody_is_asked_while_another_tab_is_shown(visit: Visit, runs: FakeRuns) -> None:
    with Fake(runs=runs) as fake:
        page = opened(visit, fake.address)
        page.get_by_role("tab", name="Tokens").click()
        page.evaluate("new Promise((done) => setTimeout(done, 100))")  # what was under way is answered
        asked = len(runs.asked)
        page.evaluate("new Promise((done) => setTimeout(done, 2500))")
        assert len(runs.asked) == asked


def test_names_never_become_markup_and_odd_numbers_are_drawn(visit: Visit) -> None:
    runs = FakeRuns()
    runs.add("<img src=x onerror=window.hit=1>", 1)
    runs.add("flat", 4)["train"].update(loss=[0.0] * 4, smooth=[0.0] * 4, rate=[None] * 4)
    runs.add("nothing", 0, "running")
    with Fake([], runs=runs) as fake:
        page = opened(visit, fake.address, "runs&log=1")
        assert page.locator("main img").count() == 0
        assert page.evaluate("window.hit") is None
        page.get_by_label("Logarithmic losses").uncheck()
        assert len(points(page, SMOOTH.format("flat"))) == 4
        assert page.locator("figure").last.locator("path.smooth[data-run=flat]").count() == 0
        shapes = page.locator("figure svg *").evaluate_all("(all) => all.map((one) => one.outerHTML).join(' ')")
        assert "NaN" not in shapes
        assert "Infinity" not in shapes


@pytest.mark.parametrize(
    ("size", "scheme", "name"), [(WIDE, "light", "wide"), (WIDE, "dark", "dark"), (PHONE, "light", "phone")]
)
def test_the_panel_looks_well(
    visit: Visit, keep: Callable[..., None], address: str, runs: FakeRuns, size: tuple[int, int], scheme: str, name: str
) -> None:
    runs.add("a-run-with-a-rather-long-name/and-a-seed", 60, "running", age=0.4)
    page = opened(visit, address, size=size, color_scheme=scheme)
    page.locator(".curves").first.focus()
    page.keyboard.press("End")
    keep(page, f"runs-{name}")
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    letters = page.locator("figure text").first.evaluate("(one) => one.getBoundingClientRect().height")
    assert letters > 11, "letters are not scaled down with the drawing"
    path = Path(os.environ.get("SESAME_AXE", "axe.min.js"))
    if not path.is_file():
        pytest.skip("no axe-core: npm pack axe-core, unpack it and set SESAME_AXE to the path of its axe.min.js")
    page.evaluate(path.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document)")
    assert len(found["passes"]) > 10
    bad = [(rule["id"], node["html"][:150]) for rule in found["violations"] if rule["impact"] in ("serious", "critical")
           for node in rule["nodes"]]  # fmt: skip
    assert bad == []
