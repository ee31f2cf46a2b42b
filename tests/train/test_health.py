"""The watch over replaced-token detection: its figures, its alarm, and runs that go on where they stopped."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.kill_resume import make_text
from safetensors.torch import load_file
from sklearn.metrics import average_precision_score  # type: ignore[import-untyped]

from sesame.checkpoint.loading import load_parts
from sesame.data.batch import IGNORE, Batch, Targets
from sesame.errors import SesameError
from sesame.objectives.base import Term
from sesame.objectives.rtd import ReplacedConfig
from sesame.pretraining.run import Wishes, pretrain
from sesame.train.health import Frequencies, Health, Look, average_precision, note
from sesame.train.optim import OptimConfig
from sesame.train.schedule import Schedule
from tests.crashes import crash_while_saving
from tests.languages import Chain
from tests.replaced_runs import learn

HEALTHY = {"mlm": 2.0, "rtd": 0.2, "rtd_recall": 0.4, "replaced": 0.1, "rtd_precision": 0.7, "mlm_accuracy": 0.5}


BLIND = {"rtd_recall": 0.0, "rtd": 0.326}  # a tenth is replaced: the entropy of that is 0.325


def asked(labels: list[int]) -> Batch:
    """A batch whose generator is asked for these tokens."""
    rows = torch.tensor([[*labels, IGNORE]])
    return Batch(rows, torch.tensor([len(labels)])).with_targets(mlm=Targets(rows, rows))


def watch(config: ReplacedConfig | None = None, rate: float = 1e-3) -> Health:
    """Tokens are drawn evenly from 1,000: one who knows frequencies has a loss of 0.85 * log 1000 = 5.87."""
    health = Health(config or ReplacedConfig(patience=100), OptimConfig(rate=rate), Schedule(warmup=0.1), 1000)
    health.frequencies.see([asked(list(range(1000)))] * 200)
    return health


def first_alarm(health: Health, figures: Callable[[int], dict[str, float]], steps: int = 1000) -> tuple[int, str]:
    """The step at which it stops and what it says; (0, "") if it never does."""
    for step in range(10, steps + 1, 10):
        try:
            health.check(step, step / steps, HEALTHY | figures(step))
        except SesameError as error:
            return step, str(error)
    return 0, ""


# ---- figures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("levels", [3, 50, 10**6])
def test_average_precision_is_that_of_scikit_learn(levels: int) -> None:
    rng = np.random.default_rng(levels)
    scores = rng.integers(0, levels, 700) / levels  # few levels: many ties
    truths = rng.random(700) < 0.1 + 0.3 * scores
    found = average_precision(torch.from_numpy(scores), torch.from_numpy(truths))
    assert found == pytest.approx(average_precision_score(truths, scores), abs=1e-12)


def test_average_precision_of_nothing_true() -> None:
    assert average_precision(torch.rand(5), torch.zeros(5, dtype=torch.bool)) == 0.0
    assert average_precision(torch.zeros(0), torch.zeros(0, dtype=torch.bool)) == 0.0


def test_entropy_of_the_tokens_asked_for() -> None:
    frequencies = Frequencies(10)
    assert frequencies.entropy() == 0.0
    batches = [asked([1, 1, 1, 2]), asked([1, 1, 1, 2])]
    assert frequencies.see(batches) is batches
    plain = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert frequencies.entropy() == pytest.approx(plain + 1 / 16)  # two kinds, eight tokens
    rng = np.random.default_rng(0)
    few = Frequencies(1000)
    few.see([asked(rng.integers(0, 1000, 5000).tolist())])
    assert few.entropy() == pytest.approx(math.log(1000), abs=0.02)  # without the correction 0.1 too small


def test_a_look_at_held_out_text_sums_before_it_divides() -> None:
    """Two batches of different size: recall over both, ranking over both."""

    def call(batch: Batch) -> list[Term]:
        many = batch.size
        scores, truths = torch.arange(many).float() - 1, torch.arange(many) % 2 == 0
        figures = {"rtd_recall": torch.tensor([1, many])}
        return [Term("rtd", torch.zeros(()), torch.tensor(many), figures=figures, ranking=(scores, truths))]

    look = Look(call)
    for size in (3, 5):
        look(Batch(torch.zeros(size, 2), torch.full((size,), 2)))
    figures = look.figures()
    assert figures["rtd_recall"] == pytest.approx(2 / 8)
    scores = np.concatenate([np.arange(3), np.arange(5)])
    assert figures["rtd_average_precision"] == pytest.approx(average_precision_score(scores % 2 == 0, scores))


def test_the_bar_shows_them_where_there_are_any() -> None:
    assert note({"loss": 1.0}) == ""
    assert note(HEALTHY) == "generator right 50 % · replaced 10 % · recall 40 % · precision 70 %"


# ---- the alarm ------------------------------------------------------------------------------------------------------


def test_a_generator_that_stays_at_frequencies_stops_the_run() -> None:
    step, said = first_alarm(watch(), lambda step: {"mlm": 5.9, "rtd_recall": 0.0})
    assert step == 200  # the warm-up is the first 100 steps; then patience
    assert "5.90 is not clearly below the 5.87" in said
    assert "optimizer.rate=0.0005" in said
    assert "schedule.warmup=0.2" in said
    assert "\n" not in said


def test_the_likely_cause_is_named() -> None:
    together = watch(ReplacedConfig(patience=100, clip_apart=False))
    assert "clip_apart=true" in first_alarm(together, lambda step: {"mlm": 6.5})[1]
    rare = first_alarm(watch(), lambda step: BLIND | {"replaced": 0.01})[1]
    assert "generator_width=0.125" in rare
    light = watch(ReplacedConfig(patience=100, weight=1.0))
    assert "rtd.weight=50" in first_alarm(light, lambda step: BLIND)[1]
    assert "optimizer.rate=0.0005" in first_alarm(watch(), lambda step: BLIND)[1]


def test_a_healthy_run_goes_on() -> None:
    assert first_alarm(watch(), lambda step: {}) == (0, "")
    assert first_alarm(watch(), lambda step: BLIND | {"rtd": 0.29}) == (0, "")  # ranks well, and is never sure

    def late(step: int) -> dict[str, float]:
        """On the plateau until shortly before patience ends."""
        return BLIND | {"mlm": 5.9} if step < 180 else {"mlm": 4.0, "rtd_recall": 0.2}

    assert first_alarm(watch(), late) == (0, "")
    assert first_alarm(watch(ReplacedConfig(patience=0)), lambda step: {"mlm": 9.0, "rtd_recall": 0.0}) == (0, "")
    assert first_alarm(watch(), lambda step: {"mlm": 9.0}, steps=110) == (0, "")  # too short to be judged


def test_a_lucky_window_does_not_calm_it() -> None:
    """Small batches are noisy: one of ten windows dips below the border."""
    step, _ = first_alarm(watch(), lambda step: {"mlm": 5.6 if step % 100 == 50 else 6.0})
    assert step == 200


@pytest.mark.slow
def test_the_settings_that_failed_trip_it_and_the_recipes_do_not(tmp_path: Path) -> None:
    """In miniature: weight 50, one clip over both networks, a rate far too high; then what the recipe does."""
    chain = Chain(20, seed=3)
    text = chain.text(600, 20, 11, seed=4)
    broken = ReplacedConfig(generator_width=0.5, patience=100, clip_apart=False)
    with pytest.raises(SesameError, match=r"generator's loss .* frequent .*clip_apart=true.*rate=0\.015"):
        learn(text, chain.words, tmp_path / "broken", broken, 300, 3e-2, "post")
    sound = ReplacedConfig(generator_width=0.5, patience=150)
    found = learn(text, chain.words, tmp_path / "sound", sound, 400, 3e-3, "post").figures
    assert found["mlm"] < 1.4  # log 20 = 3.0 at the start; three seeds came to 1.11 to 1.21
    assert found["rtd_average_precision"] > 2 * found["replaced"]


# ---- whole runs -----------------------------------------------------------------------------------------------------

TINY = (
    "backbone.width=32",
    "backbone.depth=2",
    "backbone.heads=2",
    "backbone.embedding_width=24",
    "backbone.inner=64",
    "stages.main.length=32",
    "stages.main.batch=8",
    "tokenizer.size=300",
)


def wishes(text: Path, out: Path, *settings: str, steps: int = 24) -> Wishes:
    given = {"text": [str(text)], "out": out, "steps": steps, "save_steps": 5, "device": "cpu", "precision": "fp32"}
    return Wishes("electra", settings=(*TINY, *settings), **given)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_text(tmp_path_factory.mktemp("text") / "text.txt", 60)


@pytest.mark.slow
def test_a_run_that_crashed_goes_on_to_the_same_weights(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm = pretrain(wishes(text, tmp_path / "calm"))
    with crash_while_saving(after=2):
        pretrain(wishes(text, tmp_path / "run"))
    again = pretrain(wishes(text, tmp_path / "run"))
    for name in ("model.safetensors", "generator/model.safetensors"):
        assert (again / name).read_bytes() == (calm / name).read_bytes()
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    seen = {key for line in lines for key in line}
    assert {"mlm", "rtd", "mlm_accuracy", "replaced", "rtd_recall", "rtd_precision"} <= seen
    held = next(line["held_out"] for line in reversed(lines) if "held_out" in line)
    assert {"mlm_accuracy", "replaced", "rtd_recall", "rtd_precision", "rtd_average_precision"} <= set(held)
    assert 0.14 < held["replaced"] < 0.16  # a generator that knows nothing yet hits by luck only


def test_both_networks_are_saved_and_share_their_tables(text: Path, tmp_path: Path) -> None:
    final = pretrain(wishes(text, tmp_path / "run", steps=3))
    model, generator = load_parts(final), load_parts(final / "generator")
    assert set(model.heads) == {"rtd"}
    assert set(generator.heads) == {"mlm"}
    assert (model.backbone.width, generator.backbone.width) == (32, 8)
    assert generator.tokenizer is not None
    for name in ("tokens", "positions", "segments"):
        ours, theirs = (getattr(parts.backbone.embeddings, name).weight for parts in (model, generator))
        assert torch.equal(ours, theirs)
    own = load_file(final / "generator" / "model.safetensors")
    assert not any("discriminator" in name for name in own)
