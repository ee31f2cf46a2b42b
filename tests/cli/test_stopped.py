"""What Ctrl-C says outside of the training: that the same command goes on is true of runs only."""

import os
import signal
from pathlib import Path

import pytest

from sesame.checkpoint.run import Run
from sesame.cli import _leave


def test_only_a_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    with Run.claim(tmp_path / "run", {"run": {"seed": 0}}):
        _leave(signal.SIGTERM, None)
    assert capsys.readouterr().err == "sesame: stopped by SIGTERM; run the same command again to go on\n"
    _leave(signal.SIGINT, None)  # as in `embed`, `predict` or --dry-run
    assert capsys.readouterr().err == "sesame: stopped by SIGINT\n"
    assert left == [128 + signal.SIGTERM, 128 + signal.SIGINT]
