"""Every panel with its example, wide and at phone width, light and dark: nothing is cut off, axe-core is content."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.page.conftest import PHONE, WIDE

pytestmark = pytest.mark.slow  # a browser

PANELS = (
    "fill", "classify", "tag", "qa", "choice", "pairs", "neighbours", "translate", "generate", "tokens", "layers",
    "attention", "head",
)  # fmt: skip


def answered(page: Any, panel: str) -> None:
    page.locator(f"#tab-{panel}").click()
    place = page.locator(f"#panel-{panel}")
    place.get_by_role("button", name="Example", exact=True).click()
    place.locator(".output:not([aria-busy=true]) > *").first.wait_for()


@pytest.mark.parametrize(("size", "name"), [(WIDE, "wide"), (PHONE, "phone")])
def test_nothing_is_wider_than_the_window(
    visit: Callable[..., Any], keep: Callable[..., None], size: tuple[int, int], name: str
) -> None:
    page = visit(size=size)
    for panel in PANELS:
        answered(page, panel)
        page.mouse.move(0, 0)
        keep(page, f"{panel}-{name}")
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0], panel
        tab = page.locator(f"#tab-{panel}").bounding_box()
        assert 0 <= tab["x"] <= size[0] - tab["width"], panel  # the chosen tab is in sight


def test_dark_is_dark_and_canvases_follow(visit: Callable[..., Any], keep: Callable[..., None]) -> None:
    page = visit()
    answered(page, "attention")
    corner = "Array.from(document.querySelector('.thumb canvas').getContext('2d').getImageData(17, 0, 1, 1).data).slice(0, 3)"
    assert min(page.evaluate(corner)) > 200
    page.emulate_media(color_scheme="dark")
    page.evaluate(
        "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )  # it is told by then
    assert max(page.evaluate(corner)) < 80
    for panel in PANELS:
        answered(page, panel)
        keep(page, f"{panel}-dark")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(visit: Callable[..., Any], scheme: str) -> None:
    path = Path(os.environ.get("SESAME_AXE", "axe.min.js"))
    if not path.is_file():
        pytest.skip("no axe-core: npm pack axe-core, unpack it and set SESAME_AXE to the path of its axe.min.js")
    page = visit(color_scheme=scheme)
    page.evaluate(path.read_text(encoding="utf-8"))
    for panel in PANELS:
        answered(page, panel)
        found = page.evaluate("axe.run(document)")
        assert len(found["passes"]) > 10
        bad = [
            (rule["id"], node["html"][:150], node["failureSummary"])
            for rule in found["violations"]
            if rule["impact"] in ("serious", "critical")
            for node in rule["nodes"]
        ]
        assert bad == [], f"{panel}: {bad}"
