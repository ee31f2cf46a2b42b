"""Intervals that hold what they promise, and comparisons that do not cry wolf."""

import math

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import matthews_corrcoef

from sesame.errors import SesameError
from sesame.evaluate import statistics as s
from sesame.evaluate.classification import resampled
from sesame.evaluate.scoring import compare, range_of
from sesame.tasks.base import TaskConfig


def test_summary_equals_scipy() -> None:
    values = [0.91, 0.89, 0.93, 0.90, 0.92]
    found = s.summary(values)
    low, high = stats.t.interval(0.95, 4, loc=np.mean(values), scale=stats.sem(values))
    assert (found.mean, found.std, found.n) == pytest.approx((np.mean(values), np.std(values, ddof=1), 5))
    assert (found.low, found.high) == pytest.approx((low, high))


def test_one_seed_knows_nothing_of_others() -> None:
    assert s.summary([0.5]) == s.Summary(0.5, None, None, None, 1)
    assert s.summary([0.5, 0.5]) == s.Summary(0.5, 0.0, 0.5, 0.5, 2)


def test_the_t_interval_covers() -> None:
    random = np.random.default_rng(0)
    found = [s.summary(random.normal(0.8, 0.05, size=5).tolist()) for _ in range(300)]
    assert 0.90 <= np.mean([one.low <= 0.8 <= one.high for one in found]) <= 0.99  # type: ignore[operator]


def test_the_bootstrap_interval_covers() -> None:
    random = np.random.default_rng(1)
    found = [s.bootstrap_interval(random.random(150) < 0.7, rounds=400, seed=at) for at in range(300)]
    assert 0.90 <= np.mean([one.low <= 0.7 <= one.high for one in found]) <= 0.99


def test_the_paired_interval_covers_and_p_is_fair() -> None:
    """Two equally good models whose answers agree mostly: the difference is within the interval, p < 0.05 is rare."""
    random = np.random.default_rng(2)
    covered, alarms = [], []
    for at in range(300):
        shared = random.random(200)
        a, b = (np.where(random.random(200) < 0.7, shared, random.random(200)) < 0.8 for _ in range(2))
        found = s.paired_bootstrap(a, b, rounds=400, seed=at)
        covered.append(found["low"] <= 0.0 <= found["high"])
        alarms.append(found["p"] < 0.05)
    assert 0.90 <= np.mean(covered) <= 0.99
    assert 0.01 <= np.mean(alarms) <= 0.10


def test_a_real_difference_is_found() -> None:
    random = np.random.default_rng(3)
    a, b = random.random(500) < 0.9, random.random(500) < 0.8
    found = s.paired_bootstrap(a, b)
    assert found["difference"] == pytest.approx(a.mean() - b.mean())
    assert 0 < found["low"] < found["difference"] < found["high"]
    assert found["p"] < 0.001
    turned = s.paired_bootstrap(b, a)
    assert turned["difference"] == pytest.approx(-found["difference"])
    assert turned["p"] == found["p"]


def test_no_difference_and_too_few_examples() -> None:
    same = s.paired_bootstrap([1, 0, 1], [1, 0, 1], rounds=100)
    assert same == {"difference": 0.0, "low": 0.0, "high": 0.0, "p": 1.0}
    swapped = s.paired_bootstrap([1, 0], [0, 1], rounds=100)
    assert swapped["p"] == 1.0
    assert s.paired_bootstrap([1], [0], rounds=100)["p"] == 1.0
    assert s.paired_bootstrap([1, 1, 1], [0, 0, 0], rounds=100)["p"] == 0.25  # a sign test of three
    assert s.paired_bootstrap(np.ones(50), np.zeros(50), rounds=99)["p"] == 0.01


def test_the_same_seed_gives_the_same_and_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = np.random.default_rng(4).random(37)
    first = s.bootstrap_interval(scores, rounds=100, seed=5)
    assert first == s.bootstrap_interval(scores, rounds=100, seed=5)
    assert first != s.bootstrap_interval(scores, rounds=100, seed=6)
    monkeypatch.setattr(s, "_LARGEST_BLOCK", 100)
    assert s.bootstrap_interval(scores, rounds=100, seed=5) == first


def test_any_metric() -> None:
    scores = np.random.default_rng(6).random((80, 2))
    mean = s.bootstrap_interval(scores[:, 0], rounds=200)
    same = s.bootstrap_interval(scores, metric=lambda rows: float(rows[:, 0].mean()), rounds=200)
    assert (same.value, same.low, same.high) == pytest.approx((mean.value, mean.low, mean.high))
    median = s.bootstrap_interval(scores[:, 0], metric=lambda rows: float(np.median(rows)), rounds=200)
    assert median.value == np.median(scores[:, 0])


@pytest.mark.filterwarnings("ignore:A single label was found")
def test_paired_metric_equals_the_mean_and_any_function() -> None:
    random = np.random.default_rng(7)
    gold, a, b = (random.choice(["0", "1"], 60).tolist() for _ in range(3))
    right_a, right_b = ([g == x for g, x in zip(gold, said, strict=True)] for said in (a, b))
    wanted = s.paired_bootstrap(right_a, right_b, rounds=300, seed=1)
    labels = ["0", "1"]
    fast = [resampled(gold, said, labels, "accuracy") for said in (a, b)]
    assert s.paired_bootstrap_metric(*fast, examples=60, rounds=300, seed=1) == pytest.approx(wanted)

    def matthews(said: list[str]) -> s.Metric:
        names, answers = np.array(gold), np.array(said)
        return s.each(lambda row: float(matthews_corrcoef(names[row], answers[row])))

    quick = [resampled(gold, said, labels, "matthews") for said in (a, b)]
    slow = s.paired_bootstrap_metric(matthews(a), matthews(b), examples=60, rounds=100, seed=2)
    assert s.paired_bootstrap_metric(*quick, examples=60, rounds=100, seed=2) == pytest.approx(slow)


@pytest.mark.parametrize(("rows", "better"), [(200, 5), (20, 5), (8, 4), (6, 3)])
def test_few_rows_that_differ_prove_no_more_than_a_sign_test(rows: int, better: int) -> None:
    """`evaluate --against` took all rows for such that differ, and five of 200 in favor were p = 0.036."""
    gold, a, b = ["x"] * rows, ["x"] * rows, ["y"] * better + ["x"] * (rows - better)
    floor = 2.0 ** (1 - better)
    for metric in ("accuracy", "macro_f1"):
        assert compare(TaskConfig("classify", ("x", "y")), metric, gold, a, b)["p"] >= floor
    right = [[g == s for g, s in zip(gold, said, strict=True)] for said in (a, b)]
    assert s.paired_bootstrap(*right)["p"] == compare(TaskConfig("classify", ("x", "y")), "accuracy", gold, a, b)["p"]
    tags = [[("B-X",) if g == s else ("O",) for g, s in zip(gold, said, strict=True)] for said in (gold, a, b)]
    assert compare(TaskConfig("tag", ("O", "B-X")), "f1", tags[0], tags[1], tags[2])["p"] >= floor


def test_two_wrong_answers_are_no_evidence() -> None:
    gold, a = ["x"] * 20, ["x"] * 4 + ["y"] * 16
    b = ["z"] * 20  # wrong too, in other words
    assert compare(TaskConfig("classify", ("x", "y", "z")), "accuracy", gold, a, b)["p"] >= 2.0**-3


def test_micro_f1_of_draws() -> None:
    counts = [(1, 2, 1), (0, 0, 3), (2, 2, 2)]
    found = s.micro_f1(counts)(np.array([[0, 1, 2], [2, 2, 2], [1, 1, 1]]))
    assert found == pytest.approx([2 * 3 / (4 + 6), 1.0, 0.0])
    assert s.micro_f1([(0, 0, 0)])(np.array([[0]])) == 0.0


def test_mistakes_are_sentences() -> None:
    with pytest.raises(SesameError, match="no scores to summarize"):
        s.summary([])
    with pytest.raises(SesameError, match="score 2 is not a finite number"):
        s.summary([0.5, float("nan")])
    with pytest.raises(SesameError, match="2 examples but 1 answers"):
        s.paired_bootstrap([1, 0], [1])
    with pytest.raises(SesameError, match="0 rounds"):
        s.bootstrap_interval([1, 0], rounds=0)
    with pytest.raises(SesameError, match="several columns"):
        s.bootstrap_interval([[1, 0], [0, 1]])
    with pytest.raises(SesameError, match="nothing to compare"):
        s.paired_bootstrap_metric(s.micro_f1([(0, 0, 0)]), s.micro_f1([(0, 0, 0)]), examples=0)


def test_an_interval_ends_where_scores_end() -> None:
    wide, cut = s.summary([0.9, 0.4]), s.summary([0.9, 0.4], 0.0, 1.0)
    assert wide.low is not None
    assert wide.low < 0
    assert (cut.mean, cut.std, cut.low, cut.high) == (wide.mean, wide.std, 0.0, 1.0)
    assert (range_of("matthews"), range_of("accuracy"), range_of("mse")) == ((-1.0, 1.0), (0.0, 1.0), (0.0, math.inf))
