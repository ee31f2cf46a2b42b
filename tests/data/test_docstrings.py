"""Docstrings: found without parsing, cleaned to prose, in a fixed order."""

import ast
import sysconfig
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sesame.data import docstrings
from sesame.data.docstrings import documents, harvest, prose

SOURCE = '''# a comment
"""The module explains what all of its parts are for, at some length."""
import os

TEMPLATE = """
not a docstring, but a string of enough words to pass for one, if it could
"""


class Thing(object):  # a remark
    r"""A thing that knows \\d about everything, and tells it to others.

    >>> Thing().tell()
    'all'

    It never forgets what it was told by anybody, not even years later.
    """

    def tell(self, loud: bool = True,
             twice: bool = False) -> str:
        """Tell everything to everybody who happens to be listening.\\n

        :param loud: whether the whole house should be able to hear it
        :type loud: bool
        """
        x = """this one is only assigned and so does not count at all here"""
        return x

    async def wait(self):
        'Wait until everybody has gone home and the lights are off.'
'''


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small standard library and two packages instead of the real ones."""
    files = {
        "lib/zebra.py": SOURCE,
        "lib/abacus.py": '"""An abacus counts with beads that slide along thin wires."""\n',
        "lib/test/test_abacus.py": '"""Tests are left out of the harvest because they say little."""\n',
        "lib/pydoc_data/topics.py": "topics = {'if': 'The if statement is used for conditional execution of code.'}",
        "site/pack/__init__.py": '"""An abacus counts with beads that slide along thin wires."""\n',
        "site/pack/inner.py": '"""Packages hold modules, and modules hold functions and classes."""\n',
        "site/pack/_vendor/other.py": '"""Somebody else wrote this text, and it is here a second time."""\n',
        "site/broken.py": "def broken(:\n    '''A source that does not parse still has a readable docstring.'''\n\x00",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "site" / "latin.py").write_bytes(
        '"""Caf\xe9 is a word that this source has in another encoding."""\n'.encode("latin-1")
    )
    paths = {"stdlib": str(tmp_path / "lib"), "purelib": str(tmp_path / "site"), "platlib": str(tmp_path / "site")}
    monkeypatch.setattr(sysconfig, "get_paths", lambda: paths)
    return tmp_path


def test_finds_docstrings_of_modules_classes_and_functions(machine: Path) -> None:
    found = {entry.name: entry.text for entry in harvest() if entry.module == "zebra"}
    assert set(found) == {"", "Thing", "tell", "wait"}
    assert found["Thing"].startswith(r"A thing that knows \d about")
    assert found["Thing"].split("\n")[1] == "It never forgets what it was told by anybody, not even years later."
    assert found["tell"].split("\n") == [
        "Tell everything to everybody who happens to be listening.",
        "whether the whole house should be able to hear it",
    ]


def test_order_is_fixed_and_copies_are_dropped(machine: Path) -> None:
    found = [(entry.library, entry.module) for entry in harvest()]
    assert list(dict.fromkeys(found)) == [
        ("python", "abacus"),
        ("python", "zebra"),
        ("python", "pydoc_data.topics.if"),
        ("broken", "broken"),
        ("latin", "latin"),
        ("pack", "pack.inner"),  # the text of pack itself is that of abacus
    ]
    assert list(harvest()) == list(harvest())


def test_limit_ends_the_harvest(machine: Path) -> None:
    assert [entry.module for entry in harvest(10)] == ["abacus"]
    assert sum(len(entry.text) for entry in harvest(120)) < 120 + 200


def test_a_module_is_one_document(machine: Path) -> None:
    found = dict(documents())
    assert found["zebra"].split("\n")[-1] == "Wait until everybody has gone home and the lights are off."
    assert len(list(documents())) == 6


def test_agrees_with_the_parser_on_real_sources() -> None:
    root = Path(sysconfig.get_paths()["stdlib"])
    wanted, got = set(), set()
    for name in (
        "argparse.py",
        "collections/__init__.py",
        "heapq.py",
        "typing.py",
        "asyncio/base_events.py",
        "turtle.py",
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse((root / name).read_bytes())
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        nodes = [node for node in ast.walk(tree) if isinstance(node, kinds)]
        wanted |= {text for node in nodes if (text := ast.get_docstring(node, clean=False)) and len(text) >= 40}
        got |= {text for _, text in docstrings._docstrings(root / name) if len(text) >= 40}
    assert len(wanted) > 300
    assert len(wanted & got) >= 0.99 * len(wanted)
    assert len(got - wanted) <= 0.01 * len(wanted)


def test_the_machine_has_enough_text() -> None:
    found = list(harvest(300_000))
    assert sum(len(entry.text.encode()) for entry in found) > 250_000
    assert not any(">>>" in entry.text for entry in found)


PROSE = {
    "Gives the first of all the items, see :func:`~os.path.first` and ``x``.": (
        "Gives the first of all the items, see os.path.first and x."
    ),
    "Like this::\n\n    x = first(of, all)\n    y = x and more of all\n\nIt gives the first one of all.": (
        "It gives the first one of all."
    ),
    "Parameters\n----------\nx : array_like, optional\n    Points at which the curve is wanted here.\n": (
        "Points at which the curve is wanted here."
    ),
    "Args:\n    path (str, optional): Where the file that is wanted stands.\n    n: how many there are\n": (
        "Where the file that is wanted stands. n: how many there are"
    ),
    ".. versionadded:: 3.5\n\n.. note:: The order is the one of the list.\n\n.. math:: x of y is z of\n": (
        "The order is the one of the list."
    ),
    "```python\nall the words in here are code to us\n```\nBut these words are prose again.": (
        "But these words are prose again."
    ),
    "- the first of the points\n- the second of the points\n": ("the first of the points\nthe second of the points"),
    "x + y == z and [a, b] != {c: d}": "",
}


@pytest.mark.parametrize(("raw", "clean"), PROSE.items())
def test_prose(raw: str, clean: str) -> None:
    assert prose(raw) == clean


@given(st.text(st.sampled_from(" \n\t.:`*>-=ax\\\"'é中#("), max_size=200))
def test_prose_takes_anything(raw: str) -> None:
    for line in prose(raw).split("\n"):
        assert line == line.strip()
        assert not line.startswith(">>>")


@given(st.text(st.sampled_from(" \n\"'\\rdef:#a("), max_size=150))
def test_finder_takes_anything(tmp_path_factory: pytest.TempPathFactory, source: str) -> None:
    path = tmp_path_factory.getbasetemp() / "odd.py"
    path.write_text(source, encoding="utf-8", newline="")
    for _, text in docstrings._docstrings(path):
        assert isinstance(text, str)


def test_control_characters_are_left_out() -> None:
    assert prose("The words before the \0 sign and \x1b the words behind it.") == (
        "The words before the sign and the words behind it."
    )
