"""docs/python.md: its blocks run from top to bottom; README's open the same run, here and in transformers."""

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.kill_resume import make_text

ROOT = Path(__file__).parent.parent


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def labelled(file: Path, text: Path, rows: int) -> None:
    """Sentences of a text; the label says whether the first letter is in the first half of the alphabet."""
    lines = [line for line in text.read_text(encoding="utf-8").splitlines() if line][-rows:]
    with file.open("w", encoding="utf-8", newline="") as out:
        csv.writer(out).writerows(
            [["text", "label"], *([line, "early" if line[0].lower() < "m" else "late"] for line in lines)]
        )


@pytest.mark.slow
def test_the_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    text = make_text(Path("corpus.txt"), 60)
    labelled(Path("tickets.csv"), text, 60)
    labelled(Path("later.csv"), text, 40)
    here: dict[str, Any] = {}
    for number, block in enumerate(blocks(ROOT / "docs" / "python.md")):
        exec(compile(block, f"docs/python.md, block {number + 1}", "exec"), here)
    assert here["vectors"].shape == (2, 128)
    assert len(here["encoding"].offsets) == len(here["states"])
    assert len(here["gaps"][0].tokens) == 3
    assert {"label", "probability", "probabilities"} <= set(here["reply"])
    assert "accuracy" in here["found"]["scores"]
    assert {"difference", "low", "high", "p"} <= set(here["found"]["versus"])
    said = capsys.readouterr().out
    assert "mine bert done 20" in said
    assert "runs/mien" in said

    (first, second) = blocks(ROOT / "README.md")
    exec(compile(first, "README.md, block 1", "exec"), here)
    exec(compile(second, "README.md, block 2", "exec"), here)
    assert np.allclose(
        here["model"].get_input_embeddings().weight[0].detach(),
        here["encoder"].get_input_embeddings().weight[0].detach(),
    )
