"""Runs under a folder: what `Run` writes is what is read; half lines, locks and parts."""

import fcntl
import json
import os
import time
from pathlib import Path

import pytest

from sesame.checkpoint.run import Run
from sesame.config import dump_toml
from sesame.errors import SesameError
from sesame.runs import BARS, find_runs, read_run, sparkline

RECIPE = {
    "name": "electra", "steps": 40, "backbone": {"depth": 2, "width": 128}, "objectives": {"mlm": {"weight": 1.0}},
    "run": {"seed": 0},
}  # fmt: skip
TRANSFER = {"transfer": {"name": "frozen"}, "run": {"model": "runs/mine/final", "task": "tag"}}


def finished(folder: Path) -> None:
    (folder / "final").mkdir(parents=True)
    (folder / "final" / "config.json").write_text("{}")


def log(folder: Path, *lines: dict[str, object]) -> None:
    with (folder / "metrics.jsonl").open("a") as handle:
        handle.writelines(json.dumps(line) + "\n" for line in lines)


def test_a_run_from_its_beginning_to_its_end(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "one"
    with Run.claim(folder, RECIPE) as run:
        (begun,) = find_runs(tmp_path / "runs")
        assert (begun.state, begun.step, begun.loss, begun.last()) == ("running", 0, (), {})
        run.log({"step": 10, "seconds": 1.5, "tokens": 1000, "loss": 4.0, "mlm": 4.0})
        run.log({"step": 10, "seconds": 1.5, "held_out": {"mlm": 3.5, "mlm_accuracy": 0.1}})
        run.log({"step": 20, "seconds": 3.0, "tokens": 2000, "loss": 3.0, "mlm": 3.0, "rate": 1e-4})
        (now,) = find_runs(tmp_path / "runs")
        assert (now.name, now.recipe, now.size, now.state) == ("one", "electra", "2 × 128", "running")
        assert (now.step, now.steps, now.tokens, now.seconds) == (20, 40, 2000, 3.0)
        assert now.loss == ((10, 4.0), (20, 3.0))
        assert now.held_out == {"mlm": ((10, 3.5),)}
        assert now.last() == {"mlm": 3.5}
        assert now.rate == ((20, 1e-4),)
        assert now.clock == ((10, 1000, 1.5), (20, 2000, 3.0))
    assert read_run(folder).state == "interrupted"
    finished(folder)
    assert read_run(folder).state == "done"
    assert json.loads(json.dumps(now.to_json()))["held_out"] == {"mlm": [[10, 3.5]]}


def test_looking_does_not_stop_a_run_from_going_on(tmp_path: Path) -> None:
    with Run.claim(tmp_path / "one", RECIPE):
        assert read_run(tmp_path / "one").state == "running"
    for _ in range(3):
        assert read_run(tmp_path / "one").state == "interrupted"
        with Run.claim(tmp_path / "one", RECIPE):
            pass
    files = {file.name for file in (tmp_path / "one").iterdir()}
    assert files == {".lock", "recipe.toml"}, "looking leaves nothing behind"


def test_a_look_at_the_wrong_moment_does_not_refuse_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one").mkdir()
    with (tmp_path / "one" / ".lock").open("w") as looker:
        fcntl.flock(looker, fcntl.LOCK_SH)
        monkeypatch.setattr("sesame.checkpoint.run.time.sleep", lambda _: fcntl.flock(looker, fcntl.LOCK_UN))
        with Run.claim(tmp_path / "one", RECIPE):
            assert read_run(tmp_path / "one").state == "running"
        fcntl.flock(looker, fcntl.LOCK_SH)
        monkeypatch.setattr("sesame.checkpoint.run.time.sleep", lambda _: None)
        with pytest.raises(SesameError, match="another process"), Run.claim(tmp_path / "one", RECIPE):
            pass


def test_half_lines_wait_and_broken_ones_are_counted(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(dump_toml(RECIPE))
    log(tmp_path, {"step": 10, "loss": 2.0}, {"step": 20, "loss": float("nan")})
    with (tmp_path / "metrics.jsonl").open("a") as handle:
        handle.write('{"step": 30, "lo')
    found = read_run(tmp_path)
    assert (found.step, found.loss, found.broken) == (20, ((10, 2.0),), 0)
    (tmp_path / "metrics.jsonl").write_bytes(
        b'{"step": 1, "loss": 5}\n\xff\xfe\n[1]\n{"step": "x"}\n{"step": 2, "loss": 4}\n'
    )
    found = read_run(tmp_path)
    assert (found.step, found.loss, found.broken) == (2, ((1, 5.0), (2, 4.0)), 3)
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 1, "loss": 1' + b"0" * 400 + b"}\n" + b"[" * 100_000 + b"\n")
    assert (read_run(tmp_path).loss, read_run(tmp_path).broken) == ((), 1), "numbers and depths beyond all measure"
    (tmp_path / "metrics.jsonl").write_bytes(b"[1]\n" * 3)
    (tmp_path / "recipe.toml").write_text("= no toml")
    assert (read_run(tmp_path).recipe, read_run(tmp_path).broken) == ("?", 4)


def test_parts_belong_to_their_run(tmp_path: Path) -> None:
    whole = tmp_path / "taught"
    for number, seed in enumerate(("seed-0", "seed-1")):
        (whole / seed).mkdir(parents=True)
        (whole / seed / "recipe.toml").write_text(dump_toml(TRANSFER))
        log(whole / seed, {"step": 5, "loss": 1.0 + number}, {"step": 5, "valid": 0.5 + number / 10})
        os.utime(whole / seed / "metrics.jsonl", (time.time() - 100 + 10 * number,) * 2)
    (whole / "recipe.toml").write_text(dump_toml(TRANSFER))
    finished(whole)
    finished(whole / "seed-0")
    (found,) = find_runs(tmp_path)
    assert (found.name, found.recipe, found.size, found.state) == ("taught", "frozen", "from mine", "done")
    assert found.loss == ((5, 2.0),), "the newest part's"
    assert found.last() == {"valid": 0.6}
    assert sorted(run.name for run in find_runs(tmp_path, parts=True)) == ["taught", "taught/seed-0", "taught/seed-1"]
    assert read_run(whole / "seed-1").state == "interrupted"


def test_the_steps_of_a_part_stand_beside_those_planned_for_it(tmp_path: Path) -> None:
    """A fine-tuning to answers keeps the recipe's usual number; its seeds know how many they were given."""
    whole, seed = tmp_path / "taught", tmp_path / "taught" / "seed-0"
    seed.mkdir(parents=True)
    (whole / "recipe.toml").write_text(dump_toml(RECIPE | {"steps": 3000}))
    assert read_run(whole).steps == 3000
    (seed / "recipe.toml").write_text(dump_toml(RECIPE | {"steps": 12}))
    log(seed, {"step": 12, "loss": 1.0})
    assert (read_run(whole).step, read_run(whole).steps) == (12, 12)


def test_a_seed_that_was_trained_again_shows_its_last_try(tmp_path: Path) -> None:
    """The first try collapsed and counts for nothing: results.json has the score of the last one."""
    tries = [tmp_path / "taught" / "seed-0" / part for part in ("", "again-1", "again-2")]
    for number, folder in enumerate(tries):
        folder.mkdir(parents=True)
        (folder / "recipe.toml").write_text(dump_toml(TRANSFER))
        log(folder, {"step": 5, "loss": 1.0 + number}, {"step": 5, "valid": 0.5 + number / 10})
        os.utime(folder / "metrics.jsonl", (time.time() - 100 + 10 * number,) * 2)
    (tmp_path / "taught" / "recipe.toml").write_text(dump_toml(TRANSFER))
    (found,) = find_runs(tmp_path)
    assert found.last() == {"valid": 0.7}
    assert found.loss == ((5, 3.0),)
    assert found.age < 90


def test_the_newest_stands_first_and_ages_count_from_the_last_sign(tmp_path: Path) -> None:
    for name, ago in (("old", 5000), ("new", 50), ("middle", 500)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "recipe.toml").write_text(dump_toml(RECIPE))
        os.utime(tmp_path / name / "recipe.toml", (time.time() - 9000,) * 2)
        log(tmp_path / name, {"step": 1, "loss": 1.0})
        os.utime(tmp_path / name / "metrics.jsonl", (time.time() - ago,) * 2)
    found = find_runs(tmp_path)
    assert [run.name for run in found] == ["new", "middle", "old"]
    assert found[2].age == pytest.approx(5000, abs=100)


def test_folders_without_runs(tmp_path: Path) -> None:
    assert find_runs(tmp_path) == []
    with pytest.raises(SesameError, match="no such folder"):
        find_runs(tmp_path / "none")


def test_sparklines() -> None:
    assert sparkline([]) == ""
    assert sparkline([3.0]) == BARS[0]
    assert sparkline([1.0, 1.0, 1.0]) == BARS[0] * 3
    assert sparkline(list(range(8))) == BARS
    assert sparkline([7.0, float("nan"), 0.0]) == "█▁"
    falling = sparkline([100.0 - number for number in range(1000)], 10)
    assert (len(falling), falling[0], falling[-1]) == (10, "█", "▁")
    assert list(falling) == sorted(falling, reverse=True)
