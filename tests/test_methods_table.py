"""The comparison of all recipes: what is done is not done again, other settings are refused, the table ranks."""

import argparse
import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest

from sesame.recipe import recipe_names, resolve

ROOT = Path(__file__).parent.parent


@pytest.fixture
def methods(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("methods")


def given(out: Path, only: str = "", budget: float = 90.0) -> argparse.Namespace:
    return argparse.Namespace(out=out, only=only, size="mini", budget=budget, seeds=2, rows=100, vocab=16_000, seed=0)


def keep(methods: ModuleType, out: Path, name: str, score: float) -> None:
    figures = {"recipe": name, "parameters": 4_000_000, "steps": 10, "tokens": 1_000_000, "mfu": 0.5}
    scores = {task: [score, score + 0.02] for task in methods.TASKS}
    found = {**methods.asked(given(out)), **figures, "held_out": {"mlm": 3.0}, "scores": scores, "machine": "CPU"}
    (out / f"{name}.json").write_text(json.dumps(found))


def test_every_recipe_takes_part(methods: ModuleType, tmp_path: Path) -> None:
    found = methods.names(given(tmp_path))
    assert set(found) == {*recipe_names(), "scratch"} - {"adapt", "ernie-dialogue"}
    for name in found:
        resolve("bert" if name == "scratch" else name, size="mini", budget=True, device="cuda")
    assert methods.names(given(tmp_path, "bert,scratch")) == ["bert", "scratch"]
    with pytest.raises(SystemExit, match="no such recipe"):
        methods.names(given(tmp_path, "bart-of-mine"))


def test_a_result_is_kept_and_bound_to_its_settings(
    methods: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(methods, tmp_path, "bert", 0.5)
    monkeypatch.setattr(methods, "start", None)  # whoever starts a process fails
    methods.one_recipe("bert", given(tmp_path))
    with pytest.raises(SystemExit, match="was made with"):
        methods.one_recipe("bert", given(tmp_path, budget=5.0))


def test_the_table_ranks_and_is_put_between_its_marks(methods: ModuleType, tmp_path: Path) -> None:
    keep(methods, tmp_path, "bert", 0.5)
    keep(methods, tmp_path, "sesame", 0.6)
    text = methods.table(tmp_path)
    assert text.index("| sesame |") < text.index("| bert |")
    assert "61.00 ± 1.41" in text
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- methods -->\nold\n<!-- /methods -->\nafter\n")
    methods.report.put("methods", text, page)
    assert page.read_text() == f"before\n<!-- methods -->\n{text}\n<!-- /methods -->\nafter\n"


def test_the_page_has_its_marks(methods: ModuleType) -> None:
    text = methods.PAGE.read_text(encoding="utf-8")
    assert all(text.count(f"<!-- {end}{name} -->") == 1 for name in ("recipes", "methods") for end in ("", "/"))
