"""`sesame vectors`: from a text to a file that `sesame neighbours` reads."""

import sys
from pathlib import Path

import pytest

from sesame.data.vector_files import read_vectors
from tests.cli.calling import Cli


def test_glove_from_text_to_neighbours(cli: Cli, tmp_path: Path) -> None:
    text, out = tmp_path / "t.txt", tmp_path / "v.txt"
    text.write_text("A cat sat on a mat .\nA dog sat on a rug .\n" * 30 + "rare\n")
    asked = ("vectors", text, "--kind", "glove", "--width", 4, "--epochs", 5, "--out", out)
    told = cli(*asked).fine().err
    assert "8 words get a vector; 1 rarer ones do not" in told
    assert set(read_vectors(out).words) == {"a", "cat", "sat", "on", "mat", ".", "dog", "rug"}
    cli(*asked).refused("exists already")
    assert "dog" in cli("neighbours", out, "cat").fine().out


def test_what_is_missing_is_told(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.txt").write_text("a cat sat\n" * 9)
    monkeypatch.setitem(sys.modules, "gensim.models", None)
    cli("vectors", tmp_path / "t.txt", "--out", tmp_path / "v.txt").refused("pip install", "vectors")
    cli("vectors", tmp_path / "t.txt", "--out", tmp_path / "v.bin").refused("only fastText")
    cli("vectors", tmp_path / "t.txt", "--kind", "bert", "--out", tmp_path / "v.txt").refused("--kind")
    cli("vectors", tmp_path / "t.txt", "--kind", "glove", "--out", tmp_path / "v.vec.gz").refused("pack the file")
    (tmp_path / "folder").mkdir()
    told = cli("vectors", tmp_path / "t.txt", "--kind", "glove", "--out", tmp_path / "folder")
    told.refused("is a folder")
    assert "get a vector" not in told.err
    assert not (tmp_path / "v.txt").exists()
