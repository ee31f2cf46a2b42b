"""A dry run: what it measures is real, what it predicts follows from it, and it leaves nothing behind."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from benchmarks.kill_resume import SETTINGS, make_text

from sesame.cli import main, plan_table
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.pretraining import dry_run, probe
from sesame.pretraining.dry_run import Plan, StagePlan, warnings
from sesame.pretraining.probe import Probe, even, largest
from sesame.pretraining.run import Wishes, pretrain

STAGE = StagePlan("short", 32, 8, 8, 100, 1e6, 1e3, 0.5, 0.0, 10**9, 0.1, steps=500, tokens=2e7, passes=2.0, seconds=60)
PLAN = Plan(
    "bert", "cpu", "fp32", 1e12, "measured", 10**6, 10**7, 10**7, [STAGE], 500, 2e7, 2.0, 60.0, 2e13, [], []
)  # fmt: skip


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_text(tmp_path_factory.mktemp("text") / "text.txt", 60)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "LEAST", 0.0)


def wishes(text: Path, **more: Any) -> Wishes:
    given: dict[str, Any] = {"settings": SETTINGS, "device": "cpu", "precision": "fp32"} | more
    return Wishes("bert", [str(text)], Path("nowhere"), **given)


# ---- the whole ------------------------------------------------------------------------------------------------------


def test_a_plan_follows_from_what_was_measured(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = dry_run.dry_run(wishes(text, steps=200))
    (stage,) = plan.stages
    assert list(tmp_path.iterdir()) == []
    assert (plan.device, plan.precision, plan.peak_source) == ("cpu", "fp32", "measured")
    assert plan.steps == stage.steps == 200
    assert stage.length == 32
    assert 1 <= stage.micro <= stage.batch == 8
    assert stage.most > stage.batch
    assert stage.tokens == pytest.approx(plan.tokens)
    assert 200 * 8 * 32 * 0.5 < plan.tokens <= 200 * 8 * 32
    assert plan.flops == pytest.approx(plan.tokens * stage.flops_per_token)
    assert stage.seconds == pytest.approx(stage.tokens / stage.tokens_per_second)
    assert plan.seconds >= stage.seconds
    assert plan.peak_flops is not None
    assert stage.mfu == pytest.approx(stage.tokens_per_second * stage.flops_per_token / plan.peak_flops)


def test_its_tokens_and_passes_are_those_of_the_run(text: Path, tmp_path: Path) -> None:
    """The run itself counts the tokens of its steps; it also finds the tokenizer and the store that the dry run made."""
    plan = dry_run.dry_run(wishes(text, steps=20))
    pretrain(replace(wishes(text, steps=20), out=tmp_path / "run"))
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    tokens = max(line.get("tokens", 0) for line in lines)
    assert plan.tokens == pytest.approx(tokens, rel=0.1)
    assert plan.passes == pytest.approx(tokens / plan.text_tokens, rel=0.3)  # a row holds specials, too, and is cut


def test_tokens_where_a_step_has_rows_of_one_length(tmp_path: Path) -> None:
    """Pairs come in batches of similar length: no single step says how long they are."""
    words = [f"w{chr(97 + number)}" for number in range(20)]
    lengths = [1 + 39 * number // 399 for number in range(400)]
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join("\t".join([" ".join((words * 2)[:length])] * 2) + "\n" for length in lengths))
    shape = ("backbone.width=8", "backbone.heads=2", "backbone.depth=1", "tokenizer.size=300")
    settings = (*shape, "stages.main.tokens=64", "stages.main.length=64")
    for seed in range(3):
        given = Wishes(
            "transformer", [], tmp_path / f"run {seed}", pairs=[f"en-xx={pairs}"], size="tiny", steps=120, seed=seed,
            settings=settings, device="cpu", precision="fp32",
        )  # fmt: skip
        plan = dry_run.dry_run(given)
        pretrain(given)
        lines = [json.loads(line) for line in (given.out / "metrics.jsonl").read_text().splitlines()]
        assert plan.tokens == pytest.approx(max(line.get("tokens", 0) for line in lines), rel=0.2)


def test_a_budget_is_spread_over_the_stages(text: Path) -> None:
    settings = [
        *SETTINGS,
        "stages.long.share=1",
        "stages.short.share=3",
        "stages.long.length=64",
        "stages.long.batch=4",
    ]
    plan = dry_run.dry_run(wishes(text, budget=600.0, settings=settings))
    short, long = plan.stages
    assert short.seconds / long.seconds == pytest.approx(3, rel=0.1)
    assert 500 < plan.seconds <= 600
    assert short.steps == pytest.approx(
        short.tokens_per_second * short.seconds / (short.tokens / short.steps), rel=0.01
    )


def test_a_batch_that_grows_is_reckoned_with(text: Path) -> None:
    """Eight stairs of 10 steps with 1, 2 ... 8 rows, then 20 steps of 8."""
    settings = [*SETTINGS, "stages.short.ramp=80"]
    plan = dry_run.dry_run(wishes(text, steps=100, settings=settings))
    assert plan.stages[0].batch == 8
    same = dry_run.dry_run(wishes(text, steps=100))
    assert plan.tokens / same.tokens == pytest.approx((10 * 36 + 20 * 8) / 800, rel=0.05)
    long = dry_run.dry_run(wishes(text, budget=100.0, settings=settings)).stages[0]
    assert long.seconds == pytest.approx(long.tokens / long.tokens_per_second)
    assert long.seconds <= 97
    assert long.seconds > 80


def test_the_tokenizer_is_trained_once(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = [*SETTINGS, "tokenizer.size=301"]
    dry_run.dry_run(wishes(text, steps=1, settings=settings))
    monkeypatch.setattr("sesame.pretraining.tokenizer_cache.tokenizer_from", lambda *_: pytest.fail("trained again"))
    dry_run.dry_run(wishes(text, steps=2, settings=settings))


def test_a_model_to_go_on_from(text: Path, tmp_path: Path) -> None:
    final = pretrain(replace(wishes(text, steps=2), out=tmp_path / "run"))
    before = sorted((file, file.stat().st_mtime_ns) for file in tmp_path.rglob("*"))
    plan = dry_run.dry_run(wishes(text, steps=5, start=str(final)))
    assert plan.steps == 5
    assert sorted((file, file.stat().st_mtime_ns) for file in tmp_path.rglob("*")) == before


def test_a_micro_batch_of_the_users_own_is_kept(text: Path) -> None:
    plan = dry_run.dry_run(wishes(text, steps=5, settings=[*SETTINGS, "stages.short.micro=3"]))
    assert plan.stages[0].micro == 3
    assert plan.settings == []


def test_another_size_is_said_as_a_setting(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Probe, "fastest", lambda *_: 2)
    plan = dry_run.dry_run(wishes(text, steps=5))
    assert plan.stages[0].micro == 2
    assert plan.settings == ["stages.short.micro=2"]


def test_too_little_memory_is_said(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_run, "free_memory", lambda: 1000)
    with pytest.raises(SesameError, match="are free; take a smaller --size"):
        dry_run.dry_run(wishes(text, steps=5))


def test_a_micro_batch_that_does_not_fit_is_said(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("played")

    monkeypatch.setattr(Probe, "speed", full)
    with pytest.raises(SesameError, match=r"stages.short.micro=3: so many rows of 32 tokens do not fit"):
        dry_run.dry_run(wishes(text, steps=5, settings=[*SETTINGS, "stages.short.micro=3"]))


# ---- what is odd ----------------------------------------------------------------------------------------------------


def test_a_good_plan_has_no_warnings() -> None:
    assert warnings(PLAN) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"passes": 57.0}, "read 57 times"),
        ({"passes": 0.12}, "only 12 % of the text"),
        ({"tokens": 1e6}, "1 tokens for each parameter"),
        ({"tokens": 1e9}, "a larger --size or a shorter run"),
        ({"steps": 7}, "only 7 steps"),
        ({"stages": [replace(STAGE, padding=0.3)]}, "30 % of the places are padding"),
        ({"stages": [replace(STAGE, loading=1.5)]}, "the device will wait"),
    ],
)
def test_each_oddity_is_one_sentence(changes: dict[str, Any], said: str) -> None:
    (found,) = warnings(replace(PLAN, **changes))
    assert said in found
    assert "\n" not in found


# ---- trying ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100, 1000, 5000])
@pytest.mark.parametrize("first", [1, 16, 10_000])
def test_the_largest_that_fits(limit: int, first: int) -> None:
    asked = []

    def fits(count: int) -> bool:
        asked.append(count)
        return count <= limit

    found = largest(fits, first, 4000)
    assert min(limit, 4000) * 16 / 17 - 1 <= found <= min(limit, 4000)
    assert len(asked) == len(set(asked)) < 30


def test_micro_batches_are_even() -> None:
    assert even(1024, 1000) == 512
    assert even(1024, 5000) == 1024
    assert even(10, 4) == 4  # 4, 4, 2: three parts in any case
    assert even(7, 1) == 1


class Small:
    """A GPU that holds up to `limit` rows, played on a CPU."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
        self.limit, self.shares, self.freed = limit, [], 0  # type: ignore[var-annotated]
        monkeypatch.setattr(
            torch.cuda, "set_per_process_memory_fraction", lambda share, device: self.shares.append(share)
        )
        monkeypatch.setattr(torch.cuda, "empty_cache", self.free)
        monkeypatch.setattr(Probe, "step", self.step)

    def step(self, batches: list[Batch], call: object = None) -> float:
        if batches[0].size > self.limit:
            raise torch.OutOfMemoryError("played")
        return 0.1

    def free(self) -> None:
        self.freed += 1


def played(monkeypatch: pytest.MonkeyPatch, limit: int) -> tuple[Small, Probe]:
    from sesame.train.optim import OptimConfig, build_optimizer
    from sesame.train.precision import Machine

    small = Small(monkeypatch, limit)
    model = torch.nn.Linear(2, 2)
    optimizer = build_optimizer(model, OptimConfig())
    return small, Probe(model, model, optimizer, Machine(torch.device("cpu"), "fp32"), 1.0)


def batch(rows: int) -> list[Batch]:
    return [Batch(torch.zeros(rows, 8, dtype=torch.long), torch.full((rows,), 8))]


@pytest.mark.slow
def test_memory_that_runs_out_is_caught_and_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    small, prober = played(monkeypatch, 100)
    assert 94 <= prober.largest(batch, 8, 16) <= 100
    assert small.shares == [probe.HEADROOM, 1.0]
    assert small.freed > 5


def test_a_row_that_does_not_fit_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    small, prober = played(monkeypatch, 0)
    with pytest.raises(SesameError, match="one row of 8 tokens does not fit"):
        prober.largest(batch, 8, 16)
    assert small.shares[-1] == 1.0


def test_the_usual_size_stays_unless_another_is_clearly_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    _, prober = played(monkeypatch, 10**9)
    seconds = {4: 1.0, 8: 1.97, 16: 3.9}  # a little faster with every doubling
    monkeypatch.setattr(Probe, "step", lambda self, batches: seconds[batches[0].size])
    assert prober.fastest(batch, [4, 8, 16], 8) == 8
    seconds[16] = 2.0
    assert prober.fastest(batch, [4, 8, 16], 8) == 16


def test_a_gpu_is_not_made_to_wait_between_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    _, prober = played(monkeypatch, 10**9)
    prober.machine = SimpleNamespace(device=SimpleNamespace(type="cuda"))  # type: ignore[assignment]
    groups: list[int] = []

    def run(self: Probe, steps: list[list[Batch]], call: object = None) -> float:
        groups.append(len(steps))
        return 0.5 * len(steps)

    monkeypatch.setattr(Probe, "run", run)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: None)
    monkeypatch.setattr(probe, "peak_memory", lambda device: 7)
    monkeypatch.setattr(probe, "LEAST", 9.0)
    found = prober.speed(lambda step: batch(16), 10)
    assert groups == [10, 10]  # 5 seconds each
    assert found.tokens_per_second == 16 * 8 / 0.5
    assert (found.tokens_per_row, found.padding, found.memory) == (8, 0, 7)


# ---- the door -------------------------------------------------------------------------------------------------------


def test_a_table_and_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    two = replace(PLAN, stages=[STAGE, replace(STAGE, name="long", mfu=None)], settings=["stages.short.micro=2"])
    plan_table.show(replace(two, warnings=["something is odd"]), as_json=False)
    shown = capsys.readouterr().out
    for part in ("whole run", "unknown", "50 %", "20.00 M", "something is odd", "--set stages.short.micro=2"):
        assert part in shown
    plan_table.show(PLAN, as_json=True)
    assert json.loads(capsys.readouterr().out) == PLAN.to_json()


def test_the_command_needs_no_out(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    words = [
        "pretrain",
        "bert",
        "--text",
        str(text),
        "--device",
        "cpu",
        "--steps",
        "5",
        "--dry-run",
        "--json",
        *settings,
    ]
    monkeypatch.setattr("sys.argv", ["sesame", *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    assert json.loads(capsys.readouterr().out)["steps"] == 5
    assert list(tmp_path.iterdir()) == []


def test_json_goes_with_a_dry_run_only(
    text: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["sesame", "pretrain", "bert", "--text", str(text), "--json"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert "--json prints the plan of --dry-run" in capsys.readouterr().err
