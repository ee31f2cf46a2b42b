"""What holds for the whole page: which panels are shown, keys, addresses, errors, a busy server, hostile texts."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.page.fake import MODELS, Fake

pytestmark = pytest.mark.slow  # a browser

Visit = Callable[..., Any]


def test_only_what_some_model_can_is_shown(visit: Visit) -> None:
    with Fake([{**MODELS[1], "can": ["generate", "tokenize"]}]) as fake:
        page = visit(address=fake.address)
        assert page.get_by_role("tab").all_inner_texts() == ["Generate", "Tokens"]
        assert page.get_by_label("Model").count() == 0  # there is nothing to choose


def test_the_chosen_model_is_asked(visit: Visit, fake: Fake) -> None:
    page = visit("tokens")
    page.get_by_label("Model").select_option("writer")
    page.locator("#panel-tokens textarea").fill("two words")
    page.locator("#panel-tokens textarea").press("Enter")
    page.locator("#panel-tokens td").first.wait_for()
    assert fake.asked[-1] == ("tokenize", {"text": "two words", "model": "writer"})


def test_tabs_are_walked_with_arrows(visit: Visit) -> None:
    page = visit()
    page.get_by_role("tab", name="Fill").focus()
    for key, name in (
        ("ArrowRight", "Classify"),
        ("ArrowLeft", "Fill"),
        ("ArrowLeft", "One head"),
        ("Home", "Fill"),
        ("End", "One head"),
    ):
        page.keyboard.press(key)
        assert page.locator("[role=tab][aria-selected=true]").inner_text() == name
        assert page.evaluate("document.activeElement.textContent") == name
        assert page.locator("[role=tabpanel]:visible").count() == 1
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "TEXTAREA"  # one stop for all tabs
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_control_enter_sends_and_enter_alone_makes_a_line_where_lines_matter(visit: Visit, fake: Fake) -> None:
    page = visit("classify")
    field = page.locator("#panel-classify textarea")
    field.type("one")
    field.press("Enter")
    field.type("two")
    before = len(fake.asked)
    field.press("Control+Enter")
    page.locator("#panel-classify summary").nth(1).wait_for()
    assert fake.asked[before:] == [("classify", {"texts": ["one", "two"], "model": "minilm", "task": "mood"})]


def test_the_address_remembers_panel_and_text(visit: Visit) -> None:
    page = visit("tag")
    page.locator("#panel-tag textarea").fill("Ada & “Bob” #1 = 100 %\nin Oslo")
    page.locator("#panel-tag").get_by_role("button", name="Ask", exact=True).click()
    page.locator("#panel-tag mark").first.wait_for()
    again = visit(page.url.split("#")[1])
    assert again.locator("[role=tab][aria-selected=true]").inner_text() == "Tag"
    assert again.locator("#panel-tag textarea").input_value() == "Ada & “Bob” #1 = 100 %\nin Oslo"
    assert again.locator("#panel-tag mark").count() == 0  # an address alone asks nothing
    assert visit("nonsense&text=%zz").locator("[role=tab][aria-selected=true]").inner_text() == "Fill"


def test_the_servers_sentence_is_shown_and_goes_away(visit: Visit) -> None:
    page = visit("fill")
    place = page.locator("#panel-fill")
    for text, sentence in (
        ("no gap", "text: has no gap; put [MASK] where a word is missing"),
        ("a teapot [MASK]", "The queue is full; try again in 1 second."),
        ("  ", "Write something first, or take the example."),
    ):
        place.locator("textarea").fill(text)
        place.get_by_role("button", name="Ask", exact=True).click()
        place.locator(".status.error", has_text=sentence).wait_for()
        assert place.locator(".output > *").count() == 0
    place.get_by_role("button", name="Example").click()
    place.locator(".bar").first.wait_for()
    assert place.locator(".status").inner_text() == ""
    assert place.locator(".status.error").count() == 0


def test_a_server_that_went_away_is_named(visit: Visit) -> None:
    page = visit("fill")
    page.route("**/v1/fill", lambda route: route.fulfill(status=502, body="<html>bad gateway</html>"))
    page.get_by_role("button", name="Example").first.click()
    page.get_by_text("The server answered 502 without saying why.").wait_for()


def test_busy_is_shown_and_can_be_stopped(visit: Visit, fake: Fake) -> None:
    page = visit("tag")
    place = page.locator("#panel-tag")
    place.locator("textarea").fill("slowly, Ada")
    place.get_by_role("button", name="Ask", exact=True).click()
    place.get_by_text("Working …").wait_for()
    assert place.locator(".output").get_attribute("aria-busy") == "true"
    place.get_by_role("button", name="Stop").click()
    place.get_by_text("Stopped.").wait_for()
    assert place.get_by_role("button", name="Ask", exact=True).count() == 1
    fake.hold.set()
    place.get_by_role("button", name="Ask", exact=True).click()
    place.locator("mark").wait_for()
    fake.hold.clear()


def test_texts_never_become_markup(visit: Visit) -> None:
    evil = '<img src=x onerror="window.hit=1"><script>window.hit=1</script>[MASK] Ada in Oslo'
    page = visit()
    more = {
        "choice": (evil, f"{evil}\nother"),
        "neighbours": (evil, f"{evil}\nother"),
        "layers": (f"a | {evil}\nb | c",),
    }
    for panel in ("fill", "tag", "classify", "tokens", "attention", "head", "generate", "translate", *more):
        page.locator(f"#tab-{panel}").click()
        place = page.locator(f"#panel-{panel}")
        for field, text in zip(place.locator("textarea").all(), more.get(panel, (evil,)), strict=False):
            field.fill(text)
        if panel == "neighbours":
            place.get_by_label("Word in it").fill("<script>")
        place.get_by_role("button", name="Ask", exact=True).click()
        place.locator(".output:not([aria-busy=true]) > *").first.wait_for()
        assert page.locator("main img, main script").count() == 0
    assert page.evaluate("window.hit") is None


def test_a_key_is_asked_for_and_sent(visit: Visit) -> None:
    with Fake(key="open") as fake:
        page = visit(address=fake.address)
        page.get_by_text("This server wants an API key.").wait_for()
        page.get_by_label("API key").fill("open")
        page.get_by_label("API key").press("Enter")
        page.get_by_role("tab", name="Fill").wait_for()


def test_a_server_without_a_panel_says_so(visit: Visit) -> None:
    with Fake([{**MODELS[1], "can": ["embed"]}]) as fake:
        visit(address=fake.address).get_by_text("No model is served that this page has a panel for.").wait_for()


def test_no_markup_from_strings_and_nothing_from_elsewhere() -> None:
    from tests.page.fake import PAGE

    for file in PAGE.rglob("*.*"):
        words = file.read_text(encoding="utf-8")
        body = "\n".join(line for line in words.splitlines() if not line.strip().startswith("//"))
        for bad in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "style=", "https://"):
            assert bad not in body, f"{file.name}: {bad}"
        assert "http://" not in body.replace("http://www.w3.org/2000/svg", ""), file.name
        assert len(words.splitlines()) < 300
