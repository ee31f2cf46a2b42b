"""Real Chromium, driven by Playwright, in front of a fake server. Without them these tests skip and say so.

Chromium: the path in SESAME_CHROMIUM, or `chromium` on the PATH (Debian: apt-get install chromium). Playwright: pip install
playwright; its own browsers are not needed. axe-core (npm pack axe-core): the path of axe.min.js in SESAME_AXE.
Screenshots are kept where SESAME_SCREENSHOTS says.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.page.fake import Fake

WIDE, PHONE = (1200, 900), (360, 740)


@pytest.fixture(scope="module")  # while a browser is open its event loop runs, and other tests want one of their own
def browser() -> Iterator[Any]:
    path = os.environ.get("SESAME_CHROMIUM") or shutil.which("chromium")
    if not path or not Path(path).exists():
        pytest.skip("no Chromium: install Debian's package `chromium` or set SESAME_CHROMIUM to its path")
    playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install playwright")
    with playwright.sync_playwright() as driver:
        sandbox = [] if os.geteuid() else ["--no-sandbox"]  # Chromium refuses its sandbox to root
        chromium = driver.chromium.launch(executable_path=path, args=[*sandbox, "--disable-gpu"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def fake() -> Iterator[Fake]:
    with Fake() as server:
        yield server


@pytest.fixture(scope="module")
def windows(browser: Any) -> Iterator[Callable[..., Any]]:
    """One window for each kind that is asked for: opening one takes longer than most tests."""
    found: dict[str, Any] = {}

    def window(size: tuple[int, int], **settings: Any) -> Any:
        kind = f"{size} {settings}"
        if kind not in found:
            view = {"width": size[0], "height": size[1]}
            found[kind] = browser.new_context(viewport=view, reduced_motion="reduce", **settings).new_page()
            found[kind].set_default_timeout(8000)
        return found[kind]

    yield window
    for page in found.values():
        page.context.close()


@pytest.fixture
def visit(windows: Callable[..., Any], fake: Fake) -> Iterator[Callable[..., Any]]:
    """Opens the page afresh at a fragment; at the end no visited page may have written an error to the console."""
    complaints: list[str] = []
    used: list[Any] = []

    def on_console(message: Any) -> None:
        if message.type == "error":
            complaints.append(message.text)

    def on_error(error: Any) -> None:
        complaints.append(str(error))

    def open_page(fragment: str = "", size: tuple[int, int] = WIDE, address: str = "", **settings: Any) -> Any:
        page = windows(size, **settings)
        if page not in used:
            used.append(page)
            page.on("console", on_console)
            page.on("pageerror", on_error)
        page.unroute_all()
        page.emulate_media(color_scheme=settings.get("color_scheme", "light"))
        page.goto("about:blank")  # else another fragment would only move within the same page
        page.goto((address or fake.address) + (f"#{fragment}" if fragment else ""))
        page.wait_for_selector("main > :not([hidden])")
        return page

    yield open_page
    for page in used:
        page.remove_listener("console", on_console)
        page.remove_listener("pageerror", on_error)
    refused = "Failed to load resource: the server responded with a status of "  # what a refused request always writes
    assert [words for words in complaints if not words.startswith(refused)] == []


@pytest.fixture(scope="session")
def keep() -> Callable[[Any, str], None]:
    """Keeps a screenshot of the whole page if somebody wants them."""
    folder = os.environ.get("SESAME_SCREENSHOTS")

    def shoot(page: Any, name: str) -> None:
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)

    return shoot
