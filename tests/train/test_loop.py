"""The loop: accumulation equals the big batch, broken batches are left out, nothing depends on how a run was cut up."""

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sesame import chance
from sesame.backbones import Encoder, EncoderConfig
from sesame.data.batch import Batch
from sesame.data.loader import Loader
from sesame.data.pack import Packer, Specials
from sesame.data.packers import packer_of
from sesame.data.parts import hold_out
from sesame.errors import SesameError
from sesame.objectives import Vocab, build
from sesame.objectives.mlm import MaskedLMConfig
from sesame.objectives.model import Model
from sesame.objectives.pair import NextSentenceConfig
from sesame.train.guard import Guard
from sesame.train.loop import Clock, Hooks, Window, _Stop, fit, take_step
from sesame.train.optim import OptimConfig, build_optimizer
from sesame.train.precision import Machine
from sesame.train.schedule import DECAYS, Schedule
from sesame.train.state import State
from sesame.train.step import count_targets, step_loss
from tests.languages import Topics, store_of, word_tokenizer

CPU = Machine(torch.device("cpu"), "fp32")


@pytest.fixture(scope="module")
def packer(tmp_path_factory: pytest.TempPathFactory) -> Packer:
    topics = Topics(8, 5)
    tokenizer = word_tokenizer(topics.words)
    store = store_of(topics.text(60, 9, 6, seed=1), tokenizer, tmp_path_factory.mktemp("loop"))
    part, _ = hold_out(store, 0, 0.0)
    specials = Specials(tokenizer.id("cls"), tokenizer.id("sep"), tokenizer.id("pad"))
    return packer_of(part, "pairs", 40, specials, short=0.5)


def small_model(dtype: torch.dtype = torch.float64, dropout: float = 0.0) -> Model:
    torch.manual_seed(0)
    backbone = Encoder(EncoderConfig(45, 16, 2, 2, max_length=40, dropout=dropout, attention_dropout=dropout))
    vocab = Vocab(45, {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4})
    objective = build({"mlm": MaskedLMConfig(), "nsp": NextSentenceConfig(weight=0.7)}, backbone, vocab)
    return Model(backbone, objective).to(dtype)


def gradients(model: Model, batches: list[Batch]) -> list[torch.Tensor]:
    model.zero_grad()
    counts = count_targets(batches)
    for batch in batches:
        step_loss(model(batch), counts).backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def test_4_batches_of_8_equal_1_of_32(packer: Packer) -> None:
    model = small_model()
    small = Loader(packer, 32, 8, 0, model.objective.corrupt).load(3, 0.0)
    large = Loader(packer, 32, 32, 0, model.objective.corrupt).load(3, 0.0)
    assert len(small) == 4
    assert len(large) == 1
    assert len({int(length) for length in large[0].lengths}) > 3  # ragged
    for one, many in zip(gradients(model, large), gradients(model, small), strict=True):
        assert (one - many).abs().max() < 1e-12


def test_a_mean_of_means_would_differ(packer: Packer) -> None:
    """The test above is not empty: dividing inside each micro-batch gives other gradients."""
    model = small_model()
    batches = Loader(packer, 32, 8, 0, model.objective.corrupt).load(3, 0.0)
    right = gradients(model, batches)
    model.zero_grad()
    for batch in batches:
        (step_loss(model(batch), count_targets([batch])) / len(batches)).backward()
    wrong = [p.grad for p in model.parameters() if p.grad is not None]
    assert max(float((a - b).abs().max()) for a, b in zip(right, wrong, strict=True)) > 1e-6


def test_ranks_share_a_batch(packer: Packer) -> None:
    """Two ranks together draw exactly what one draws alone, corrupted alike."""
    corrupt = small_model().objective.corrupt
    alone = Loader(packer, 8, 8, 5, corrupt).load(2, 0.0)[0]
    ranks = [Loader(packer, 8, 4, 5, corrupt, rank=rank, ranks=2).load(2, 0.0)[0] for rank in (0, 1)]
    rows = [batch.ids[row, : int(batch.lengths[row])] for batch in ranks for row in range(4)]
    for row in range(8):
        assert torch.equal(alone.ids[row, : int(alone.lengths[row])], rows[row])


def weights(model: Model) -> list[torch.Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def run(packer: Packer, pieces: list[int], poison: int | None = None, **more: Any) -> tuple[Model, State, list[int]]:
    """Train 25 steps with dropout, stopping and going on with a new optimiser state at `pieces`."""
    model = small_model(torch.float32, dropout=0.1)
    optimizer = build_optimizer(model, OptimConfig(rate=1e-2))
    loader = Loader(packer, 8, 4, 0, model.objective.corrupt)
    skipped: list[int] = []
    call_count = [0]

    def call(batch: Batch) -> list:  # type: ignore[type-arg]
        terms = model(batch)
        call_count[0] += 1
        if poison is not None and batch.keys is not None and int(batch.keys[0]) == poison_key:
            from dataclasses import replace

            return [replace(term, total=term.total * float("nan")) for term in terms]
        return terms

    poison_key = int(loader.load(poison, 0.0)[0].keys[0]) if poison is not None else 0  # type: ignore[index]
    state = State()
    for last in [*pieces, 25]:
        state = fit(
            model, call, optimizer, lambda step: loader.load(step, 0.0),
            rate=1e-2, schedule=Schedule(), clip=1.0, clock=Clock(steps=25, last=last / 25), state=state, machine=CPU,
            seed=7, hooks=Hooks(skipped=lambda state, step, why: skipped.append(step), **more),
        )  # fmt: skip
        assert state.step == last
    return model, state, skipped


def test_cutting_a_run_into_pieces_changes_nothing(packer: Packer) -> None:
    whole, _, _ = run(packer, [])
    cut, state, _ = run(packer, [3, 10, 11, 24])
    assert state.step == 25
    for one, other in zip(weights(whole), weights(cut), strict=True):
        assert torch.equal(one, other)


def test_a_broken_batch_is_undone_and_left_out(packer: Packer) -> None:
    model, state, skipped = run(packer, [], poison=13)
    assert skipped == [13]
    assert state.skipped == [13]
    assert all(torch.isfinite(w).all() for w in weights(model))
    cut, _, _ = run(packer, [5, 12, 15], poison=13)
    for one, other in zip(weights(model), weights(cut), strict=True):
        assert torch.equal(one, other)


def test_a_look_outlives_a_broken_batch_after_it(packer: Packer) -> None:
    """The weights looked at are those that are gone back to: a best look that was forgotten would lose its checkpoint."""
    looks: list[int] = []

    def evaluate(state: State) -> None:
        looks.append(state.step)
        state.best = {"step": state.step, "loss": 1.0}

    due = {"evaluate_due": lambda state: state.step == 10 and not looks, "evaluate": evaluate}
    state, skipped = run(packer, [], poison=13, **due)[1:]
    assert skipped == [13]
    assert looks == [10]
    assert state.best == {"step": 10, "loss": 1.0}


def test_guard_sees_spikes_and_gives_up_on_divergence() -> None:
    guard = Guard([])
    assert all(guard.trouble(5.0 - i * 0.01, 1.0) is None for i in range(50))
    assert "jumped" in (guard.trouble(20.0, 1.0) or "")
    assert "norm" in (guard.trouble(4.0, float("inf")) or "")
    assert guard.trouble(4.5, 1.0) is None
    from sesame.train.guard import check_skipped

    with pytest.raises(SesameError, match="diverges"):
        check_skipped(list(range(30)))


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([*DECAYS, "inverse_sqrt"]), st.floats(0, 0.9), st.floats(0, 1.5), st.integers(0, 10**6))
def test_schedule_stays_between_0_and_1(kind: str, warmup: float, progress: float, step: int) -> None:
    steps = int(kind == "inverse_sqrt")  # it needs a warm-up
    factor = Schedule(kind, warmup, steps).factor(progress, step)  # type: ignore[arg-type]
    assert 0 <= factor <= 1 + 1e-9


def test_schedule_known_values() -> None:
    linear = Schedule("linear", 0.1)
    assert linear.factor(0.05, 0) == pytest.approx(0.5)
    assert linear.factor(0.1, 0) == pytest.approx(1.0)
    assert linear.factor(0.55, 0) == pytest.approx(0.5)
    assert Schedule("cosine", 0.0).factor(0.5, 0) == pytest.approx(0.5)
    cut, peak = 0.1, Schedule("slanted", 0.1)
    for progress in (0.0, 0.03, 0.1, 0.5, 1.0):  # Howard & Ruder 2018, equation 3
        p = progress / cut if progress < cut else 1 - (progress - cut) / (cut * (1 / cut - 1))
        assert peak.factor(progress, 0) == pytest.approx((1 + p * 31) / 32)
    assert Schedule("inverse_sqrt", 0.1).factor(0.4, 0) == pytest.approx(0.5)
    assert Schedule("constant", 0.0, warmup_steps=10).factor(0.9, 4) == pytest.approx(0.5)


@pytest.mark.parametrize("share", [0.0, 0.004])
def test_the_transformers_schedule_by_steps(share: float) -> None:
    """Vaswani et al. 2017, equation 3, as a factor of its peak; a shorter share beside the steps changes nothing."""
    schedule, warmup, steps = Schedule("inverse_sqrt", share, 400), 400, 10_000
    for step in (0, 19, 199, 399, 400, 1599, 9999):
        number = step + 1
        wanted = min(number**-0.5, number * warmup**-1.5) / warmup**-0.5
        assert schedule.factor(number / steps, step) == pytest.approx(wanted)


def test_a_fall_from_the_end_of_a_warm_up_needs_one() -> None:
    with pytest.raises(SesameError, match=r"schedule\.warmup"):
        Schedule("inverse_sqrt", 0.0)


def test_step_counts_real_tokens(packer: Packer) -> None:
    model = small_model(torch.float32)
    batches = Loader(packer, 8, 4, 0, model.objective.corrupt).load(0, 0.0)
    window = Window()
    take_step(model, model, build_optimizer(model, OptimConfig()), batches, 1.0, CPU, 1, window)
    assert window.read()[2] == sum(int(batch.lengths.sum()) for batch in batches)
    assert window.places >= window.read()[2]


def test_order_of_examples_is_a_permutation_each_epoch() -> None:
    from sesame.data.order import locate, shuffled

    for count in (1, 2, 3, 4, 5, 6, 17, 1000, 1024, 1025, 65_537):
        rows = shuffled(np.arange(count), count, key=9)
        assert sorted(rows.tolist()) == list(range(count))
    epochs, rows = locate(995, 10, 1000, seed=3)
    assert epochs.tolist() == [0] * 5 + [1] * 5
    assert np.array_equal(rows, np.concatenate([locate(995, 5, 1000, 3)[1], locate(1000, 5, 1000, 3)[1]]))
    assert not np.array_equal(shuffled(np.arange(1000), 1000, 1), shuffled(np.arange(1000), 1000, 2))


def test_order_of_examples_is_well_mixed() -> None:
    """Neighbours come from anywhere, and every row comes to every place: over 2,000 shuffles of 12 rows, chi-square."""
    from sesame.data.order import shuffled

    rows = shuffled(np.arange(10_000), 10_000, key=5)
    assert abs(np.corrcoef(rows[:-1], rows[1:])[0, 1]) < 0.05
    assert abs(np.corrcoef(np.arange(10_000), rows)[0, 1]) < 0.05
    seen = np.zeros((12, 12))
    for key in range(2_000):
        seen[np.arange(12), shuffled(np.arange(12), 12, key)] += 1
    expected = 2_000 / 12
    assert ((seen - expected) ** 2 / expected).sum() < 200  # 121 degrees of freedom: 5 deviations above the mean


def test_chance_is_the_same_in_numpy_and_torch(tmp_path: Path) -> None:
    rows = chance.keys(chance.key(1, 2), np.arange(50))
    ours = chance.uniform(rows, "test", 33)
    theirs = chance.uniform_tensor(torch.from_numpy(rows.view(np.int64)), "test", 33).numpy()
    assert np.array_equal(ours, theirs)
    assert abs(ours.mean() - 0.5) < 0.02
    assert ours.min() >= 0
    assert ours.max() < 1
    assert not np.array_equal(ours, chance.uniform(rows, "other", 33))


@pytest.mark.slow
def test_static_masks_return_after_so_many_epochs(packer: Packer) -> None:
    """BERT's ten fixed masks: the same example is masked alike in epochs 0 and 10, otherwise in 0 and 1."""
    corrupt = small_model().objective.corrupt
    count = len(packer)

    def seen(loader: Loader, epoch: int) -> dict[int, list[int]]:
        found = {}
        for step in range(epoch * count, (epoch + 1) * count):
            (batch,) = loader.load(step, 0.0)
            (row,) = loader.rows(step)[1].tolist()
            found[row] = batch.ids[0].tolist()
        return found

    fixed, fresh = Loader(packer, 1, 1, 0, corrupt, static=10), Loader(packer, 1, 1, 0, corrupt)
    assert seen(fixed, 0) == seen(fixed, 10)
    assert seen(fixed, 0) != seen(fixed, 1)
    assert seen(fresh, 0) != seen(fresh, 10)


def press_twice() -> None:
    with _Stop() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.asked == "SIGINT"
        signal.raise_signal(signal.SIGINT)


def test_a_second_ctrl_c_is_left_to_whoever_had_it_before() -> None:
    """The command's handler says that it stops and removes what is half-written; Python's raises."""
    heard: list[int] = []

    def leave(number: int, frame: object) -> None:
        heard.append(number)
        raise SystemExit(130)

    before = signal.signal(signal.SIGINT, leave)
    try:
        with pytest.raises(SystemExit):
            press_twice()
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [signal.SIGINT]
    with pytest.raises(KeyboardInterrupt):
        press_twice()
