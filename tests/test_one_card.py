"""The sitting on one card, as far as a machine without one can see."""

import argparse
import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("one_card")


def test_what_is_not_there_is_said_before_anything_begins(
    card: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tagger waits for ELMo's minutes; that its vectors are not there must not be found out behind them."""
    data, corpora, out = tmp_path / "data", tmp_path / "corpora", tmp_path / "out"
    for folder in (data / "conll2003", corpora):
        folder.mkdir(parents=True)
    words = [str(out), "--data", str(data), "--corpora", str(corpora), "--vectors", str(tmp_path / "none.txt")]
    monkeypatch.setattr(sys, "argv", ["one_card.py", *words, "--only", "elmo,tagger,parsing"])
    with pytest.raises(SystemExit):
        card.main()
    said = capsys.readouterr().err
    for absent in ("none.txt", "ptb_sample/trees.jsonl.gz", "en.1.txt.xz"):
        assert absent in said
    assert "conll2003" not in said
    assert not out.exists()


def test_folders_with_spaces_stay_one_word(card: ModuleType, tmp_path: Path) -> None:
    """And every script is there."""
    place = tmp_path / "a b"
    place.mkdir()
    (place / "en.1.txt.xz").touch()
    given = argparse.Namespace(out=place, data=place, corpora=place, vectors=place, tokenizer=place)
    for job in card.JOBS:
        words = card.command(f"{job.words} {job.miniature}", given)
        assert words[1] == "-m" or Path(words[1]).exists()
        assert str(place / "en.1.txt.xz") in words or "{english}" not in job.words
        assert not any("{" in word for word in words)
