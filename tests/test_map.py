"""Each room knows only the rooms before it."""

import ast
import re
from pathlib import Path

import pytest

import sesame

ROOT = Path(sesame.__file__).parent
ROOMS = [
    "text",
    "data",
    "nn",
    "backbones",
    "generate",
    "objectives",
    "doctor",
    "tasks",
    "train",
    "checkpoint",
    "evaluate",
    "pretraining",
    "finetuning",
    "explain",
    "serve",
]
GROUND = {"errors", "files", "progress", "chance", "config", "runs", "__init__"}


def imported(file: Path) -> set[str]:
    """The rooms of ours that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("sesame.") and name.count(".") >= 1}
    return found - {"__version__"}


@pytest.mark.parametrize("room", [room for room in ROOMS if (ROOT / room).is_dir()])
def test_rooms_look_back_only(room: str) -> None:
    allowed = GROUND | set(ROOMS[: ROOMS.index(room) + 1])
    allowed |= {"recipe"} if ROOMS.index(room) >= ROOMS.index("pretraining") else set()
    allowed |= {"loaded", "opening"} if room == "serve" else set()  # it opens models as a program would
    for file in sorted((ROOT / room).rglob("*.py")):
        assert imported(file) <= allowed, f"{file.relative_to(ROOT)} imports {sorted(imported(file) - allowed)}"


def test_every_file_is_on_the_map() -> None:
    """docs/map.md names what is in a room; families, engines and commands have pages of their own."""
    page = (ROOT.parent.parent / "docs" / "map.md").read_text(encoding="utf-8")
    for room in ROOMS:
        (row,) = (line for line in page.splitlines() if line.startswith(f"| `{room}/` |"))
        named = {*re.findall(r"`(\w+)`", row), "__init__"}
        files = {file.stem for file in (ROOT / room).rglob("*.py") if file.parent.name not in ("hf", "onnx")}
        assert files <= named, f"{room}: docs/map.md lacks {sorted(files - named)}"


def test_the_ground_knows_no_room() -> None:
    for name in GROUND - {"__init__"}:
        assert imported(ROOT / f"{name}.py") <= GROUND


def test_text_and_data_do_not_need_torch_to_build_a_store() -> None:
    """Worker processes import these; they must start fast."""
    data = ("encode", "workers", "sentences", "corpus_files", "readers")
    for name in ("text/tokenizer.py", *(f"data/{name}.py" for name in data)):
        assert "import torch" not in (ROOT / name).read_text(encoding="utf-8")
