"""Folders that are written beside their place: what killed processes left of one goes when it is written again."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from sesame.errors import SesameError
from sesame.files import sweep, whole_folder, write_whole


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_what_a_killed_process_left_goes_with_the_next_try(tmp_path: Path) -> None:
    """`sesame convert --out DIR`, killed: a hidden copy of the model stayed beside DIR for good."""
    dead = dead_process()
    left = tmp_path / f".model[1].{dead}.part"
    left.mkdir()
    (left / "model.safetensors").write_bytes(b"half")
    others = [
        tmp_path / f".model[1].{os.getppid()}.part",
        tmp_path / f".other.{dead}.part",
        tmp_path / ".model[1].part",
    ]
    for other in others:
        other.mkdir()
    with whole_folder(tmp_path / "model[1]") as folder:
        (folder / "config.json").write_text("{}")
    assert not left.exists()
    assert all(other.exists() for other in others), "of a living process, of another folder, of somebody else"
    assert [file.name for file in (tmp_path / "model[1]").iterdir()] == ["config.json"]


def test_files_are_swept_too(tmp_path: Path) -> None:
    left = tmp_path / f".vectors.txt.{dead_process()}.part"
    left.write_text("half")
    (tmp_path / ".vectors.txt.99999999999999999999999.part").write_text("no number of a process")
    sweep(tmp_path / "vectors.txt")
    assert not left.exists()
    assert len(list(tmp_path.iterdir())) == 1
    sweep(tmp_path / "nowhere" / "vectors.txt")


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file may grow beyond 1,000 bytes, as on a disk whose format ends at 4 GB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("small_files")
def test_a_file_that_may_not_grow_so_large_is_told(tmp_path: Path) -> None:
    with pytest.raises(SesameError, match="text: a file grows larger than this disk or this shell allows"):
        write_whole(tmp_path / "text", "x" * 2000)
    with pytest.raises(SesameError, match="model: a file grows larger"), whole_folder(tmp_path / "model") as folder:
        save_file({"x": torch.zeros(1000)}, folder / "x.safetensors")
    assert not list(tmp_path.iterdir())
