"""The comparison of all recipes: what is done is not done again, other settings are refused, the table ranks."""

import argparse
import gzip
import importlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

from sesame.pretraining import timing
from sesame.pretraining.run import Wishes, chosen_recipe, pretrain
from sesame.pretraining.wishes import identity_of
from sesame.recipe import recipe_names, resolve
from sesame.train.precision import choose_machine
from tests.test_pipeline import overlaps, times

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
    outside = {"adapt", "ernie-dialogue", "xlm", "xlm-e", "gpt", "gpt2"}
    encoders = {
        name for name in recipe_names() if resolve(name).backbone.get("kind", "encoder") in ("encoder", "xlnet")
    }
    assert set(found) == {*encoders, "scratch"} - outside
    for name in found:
        resolve("bert" if name == "scratch" else name, size="mini", budget=True, device="cuda")
    assert methods.names(given(tmp_path, "bert,scratch")) == ["bert", "scratch"]
    with pytest.raises(SystemExit, match="no such recipe"):
        methods.names(given(tmp_path, "bart-of-mine"))
    with pytest.raises(SystemExit, match="--only gpt2: is a decoder"):
        methods.names(given(tmp_path, "gpt2"))
    with pytest.raises(SystemExit, match="--only xlm: needs translations"):
        methods.names(given(tmp_path, "bert,xlm"))


def test_a_result_is_kept_and_bound_to_its_settings(methods: ModuleType, tmp_path: Path) -> None:
    keep(methods, tmp_path, "bert", 0.5)
    assert methods.done("bert", given(tmp_path))
    assert not methods.done("albert", given(tmp_path))
    with pytest.raises(SystemExit, match="was made with"):
        methods.done("bert", given(tmp_path, budget=5.0))


def test_only_missing_jobs_are_done_the_long_ones_first(methods: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    methods.job_file(tmp_path, "bert", "SST-2", 0).write_text("0.5")
    found = [job.what for job in methods.jobs("bert", given(tmp_path))]
    assert found[:2] == [("bert", "SST-2", 1), ("bert", "CoLA", 0)]
    assert len(found) == len(set(found)) == 2 * len(methods.TASKS) - 1
    assert len(methods.jobs("bert-ltr", given(tmp_path))) == 2 * len(methods.TASKS)


def test_the_table_ranks_and_is_put_between_its_marks(methods: ModuleType, tmp_path: Path) -> None:
    keep(methods, tmp_path, "bert", 0.5)
    keep(methods, tmp_path, "sesame", 0.6)
    text = methods.table(tmp_path)
    assert text.index("| sesame |") < text.index("| bert |")
    assert "61.00 ± 1.41" in text
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- methods -->\nold\n<!-- /methods -->\nafter\n")
    importlib.import_module("report").put("methods", text, page)
    assert page.read_text() == f"before\n<!-- methods -->\n{text}\n<!-- /methods -->\nafter\n"


def test_the_page_has_its_marks(methods: ModuleType) -> None:
    text = methods.PAGE.read_text(encoding="utf-8")
    assert all(text.count(f"<!-- {end}{name} -->") == 1 for name in ("recipes", "methods") for end in ("", "/"))
    assert methods.all_recipes() in text, "run python benchmarks/methods.py --recipes"


# ---- from the text to the table -----------------------------------------------------------------------------------------


WORDS = ["ka", "lo", "mi", "nu", "pe", "ri", "so", "tu"]
SMALL = {"budget": 4, "size": "tiny", "seeds": 1, "rows": 32, "vocab": 100, "parallel": 2, "ahead": 2, "device": "cpu"}


def sentence(luck: Random) -> str:
    return " ".join(luck.choice(WORDS) * luck.randint(1, 2) for _ in range(8)) + "."


@pytest.fixture
def text(tmp_path: Path) -> Path:
    luck = Random(0)
    file = tmp_path / "text.txt"
    file.write_text("\n\n".join("\n".join(sentence(luck) for _ in range(6)) for _ in range(80)))
    return file


class Enough(Exception):
    pass


@pytest.mark.slow
def test_the_budget_counts_from_the_gate(tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long one waits there; and whoever waits is the same run as one who does not."""
    late, budgets = [0.0], []

    class Time:
        @staticmethod
        def monotonic() -> float:
            return importlib.import_module("time").monotonic() + late[0]

    def ready() -> None:
        late[0] += 1000.0

    def clock(steps: int, budget: float, *more: Any) -> None:
        budgets.append(budget)
        raise Enough

    wishes = Wishes("bert", [str(text)], tmp_path / "run", size="tiny", budget=100.0, rehearse=True, device="cpu")
    waits = replace(wishes, ready=ready)
    recipe = chosen_recipe(wishes, choose_machine("cpu"))
    assert identity_of(recipe, wishes, [text]) == identity_of(recipe, waits, [text])
    monkeypatch.setattr(timing, "time", Time)
    monkeypatch.setattr(timing, "Clock", clock)
    with pytest.raises(Enough):
        pretrain(waits)
    assert late == [1000.0]
    assert budgets[0] > 50


def labelled(file: Path, pair: bool, number: bool, luck: Random) -> None:
    rows = []
    for _ in range(32):
        row: dict[str, Any] = {"text_a": sentence(luck), "text_b": sentence(luck)} if pair else {"text": sentence(luck)}
        rows.append(row | {"label": luck.random() if number else luck.choice("ab")})
    file.parent.mkdir(exist_ok=True)
    whole = "\n".join(map(json.dumps, rows)).encode()
    file.write_bytes(gzip.compress(whole) if file.suffix == ".gz" else whole)


@pytest.mark.slow
def test_from_text_to_table(methods: ModuleType, tmp_path: Path, text: Path) -> None:
    """A recipe that fails is said, the others go on, and the second call does only what is missing."""
    data, out, luck = tmp_path / "data", tmp_path / "out", Random(1)
    data.mkdir()
    for task in methods.TASKS:
        spec = importlib.import_module("finetune").TASKS[task]
        for name in (spec.train, spec.test):
            file = data / name if "." in name else data / f"{name}.jsonl"
            labelled(file, task in ("MRPC", "RTE", "STS-B"), task == "STS-B", luck)
    (out / "runs").mkdir(parents=True)
    (out / "runs" / "electra").write_text("a file stands here")

    def call(only: str = "electra,bert,scratch", ends: int = 0, **more: float) -> str:
        settings = {"only": only, "text": text, "data": data, **SMALL, **more}
        given = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
        command = [sys.executable, str(ROOT / "benchmarks" / "methods.py"), str(out), *given]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
        assert done.returncode == ends, done.stdout
        return done.stdout

    said = call(ends=1)
    assert "electra: the training failed" in said
    assert sorted(file.stem for file in out.glob("*.json")) == ["bert", "scratch"]
    assert "| bert |" in methods.table(out)
    found = times(out / "logs")
    assert sum(what == "job" for what, *_ in found) == 2 * len(methods.TASKS)
    assert [name for what, name, *_ in found if what == "clock"] == ["bert"]
    assert overlaps(found) == []
    (out / "runs" / "electra").unlink()
    (out / "scratch.json").unlink()
    methods.job_file(out, "scratch", "CoLA", 0).unlink()
    said = call()
    assert "bert: done already" in said
    again = times(out / "logs")[len(found) :]
    assert [name for what, name, *_ in again if what == "clock"] == ["electra"]
    assert [name for what, name, *_ in again if what == "job"].count("scratch") == 1  # its model is still there
    assert overlaps(again) == []
    assert "no time was left for bert-ltr" in call("bert-ltr", until=5)
