"""The command line as a fixture."""

import sys
from io import BytesIO, TextIOWrapper

import pytest

from sesame.cli import main
from tests.cli.calling import Cli, Result


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """The command line, in this process; `given` is its standard input."""

    def call(*words: object, given: bytes = b"") -> Result:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["sesame", *map(str, words)])
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(given)))
        with pytest.raises(SystemExit) as end:
            main()
        return Result(int(end.value.code or 0), *capsys.readouterr())

    return call
