"""From a stage of short rows to one of long rows: learned places that were never met, and losses that mean something else."""

from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.kill_resume import make_text, weights

import sesame
from sesame.checkpoint.loading import load_parts
from sesame.nn.embeddings import lengthened
from sesame.pretraining import training
from sesame.pretraining.telling import burden
from sesame.pretraining.wishes import Wishes, chosen_recipe
from sesame.train.guard import WINDOW, Guard
from sesame.train.precision import choose_machine
from sesame.train.state import State
from tests.crashes import crash_while_saving

pytestmark = pytest.mark.usefixtures("one_thread_for_all")

SETTINGS = (
    "backbone.width=16", "backbone.heads=2", "backbone.depth=1", "backbone.max_length=80", "tokenizer.size=300",
    "stages.short.batch=4", "stages.short.length=16", "stages.short.share=0.5",
    "stages.long.batch=2", "stages.long.length=40", "stages.long.share=0.5",
)  # fmt: skip


def run(folder: Path, name: str, **more: Any) -> Path:
    text = folder / "text.txt"
    if not text.exists():
        make_text(text, 40)
    sesame.pretrain("bert", text, folder / name, steps=8, size="tiny", settings=SETTINGS, **more)
    return folder / name


def places(model: Any) -> torch.Tensor:
    found: torch.Tensor = model.embeddings.positions.weight.detach().clone()
    return found


@pytest.mark.parametrize(("seen", "rows"), [(4, 12), (4, 11), (5, 5), (3, 2)])
def test_places_beyond_are_copies(seen: int, rows: int) -> None:
    table = torch.randn(rows, 8)
    for place, row in enumerate(lengthened(table, seen)):
        assert torch.equal(row, table[place % seen])


def test_a_longer_stage_begins_with_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []
    fit = training.fit

    def watch(model: Any, *rest: Any, **more: Any) -> Any:
        begun.append(places(model.backbone))
        return fit(model, *rest, **more)

    monkeypatch.setattr(training, "fit", watch)
    model = load_parts(run(tmp_path, "run") / "final").backbone
    first, second = begun
    assert not torch.equal(first[16:32], first[:16])  # noise at first
    assert torch.equal(second[16:32], second[:16])
    assert not torch.equal(second[:16], first[:16])  # of places that have learned
    found = places(model)
    assert not torch.equal(found[16:32], found[:16])  # learned on their own
    assert torch.equal(found[40:80], found[:40])  # nobody came so far


def test_a_model_from_elsewhere_keeps_its_places(tmp_path: Path) -> None:
    first = run(tmp_path, "first") / "final"
    short = (*SETTINGS[5:8], "stages.long.share=0")
    sesame.pretrain("adapt", tmp_path / "text.txt", tmp_path / "second", start=first, steps=2, settings=short)
    before, after = (places(load_parts(folder).backbone) for folder in (first, tmp_path / "second" / "final"))
    assert not torch.allclose(after[:16], before[:16], rtol=1e-3)
    assert torch.allclose(after[16:], before[16:], rtol=1e-3)  # but for the decay of all weights


def test_a_crash_in_the_second_stage_copies_nothing_twice(tmp_path: Path) -> None:
    whole = run(tmp_path, "whole", save_steps=3)
    with crash_while_saving(after=2):  # steps 3 and 6 are saved, the second within the long stage
        run(tmp_path, "crashed", save_steps=2)
    assert weights(run(tmp_path, "crashed", save_steps=2)) == weights(whole)


def test_the_first_losses_of_a_stage_are_no_accidents() -> None:
    state = State(history=[1.0] * WINDOW)
    assert "jumped" in str(Guard(state.history).trouble(5.0, 1.0))
    state.begin(1)
    guard = Guard(state.history)
    assert [guard.trouble(loss, 1.0) for loss in (5.0, 4.5, 5.5)] == [None] * 3
    assert (state.stage, state.stage_step, state.history) == (1, 0, [5.0, 4.5, 5.5])


@pytest.mark.parametrize(
    ("recipe", "settings", "budget", "said"),
    [
        ("roberta", [], None, "a step of stage main reads 4,194,304 tokens, as published"),
        ("roberta", ["stages.main.batch=16"], None, ""),
        ("roberta", [], 60.0, ""),
        ("transformer", ["stages.main.tokens=200000"], None, "such as --set stages.main.tokens=2048"),
    ],
)
def test_published_batches_on_a_cpu_are_told(recipe: str, settings: list[str], budget: float | None, said: str) -> None:
    machine = choose_machine("cpu", "fp32")
    wishes = Wishes(recipe, [], Path("run"), size="tiny", budget=budget, settings=settings)
    found = burden(chosen_recipe(wishes, machine), wishes, machine)
    assert (said in found) if said else not found
