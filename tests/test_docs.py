"""The pages for people: links lead somewhere, each page is in the index, and messages are those that the program says."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md")), ROOT / "benchmarks" / "README.md"]


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """What the headings of a page are called in links."""
    bare = re.sub(r"^```.*?^```$", "", text(page), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.*)$", bare, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", text(page)):
        if target.startswith("http"):
            continue
        file, _, anchor = target.partition("#")
        found = (page.parent / file).resolve() if file else page
        assert found.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(found), f"{page.name}: {target}"


def test_the_index_has_every_page() -> None:
    linked = set(re.findall(r"\]\((\w[\w-]*\.md)\)", text(DOCS / "README.md")))
    assert linked == {page.name for page in DOCS.glob("*.md")} - {"README.md"}


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_a_page_begins_with_what_it_is_for(page: Path) -> None:
    title, empty, first = text(page).splitlines()[:3]
    assert title.startswith("# ")
    assert not empty
    assert re.match(r"[A-Z]", first), "a sentence, before tables and code"


def test_messages_are_those_of_the_program() -> None:
    """The pieces of strings that stand end to end in the source are one sentence."""
    code = "".join(text(file) for file in sorted((ROOT / "src" / "sesame").rglob("*.py")))
    joined = re.sub(r'"\s*\n\s*f?"', "", code)
    quoted = re.findall(r'\*\*"([^"]+)"', text(DOCS / "faq.md"))
    assert len(quoted) > 15
    for sentence in quoted:
        for part in sentence.split("..."):
            assert part.strip() in joined, sentence
