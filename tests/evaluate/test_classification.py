"""Equal to scikit-learn, also where a formula divides by nothing."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    accuracy_score,
    confusion_matrix,
    f1_score,
    matthews_corrcoef,
    precision_recall_fscore_support,
)

from sesame.errors import SesameError
from sesame.evaluate import classification as c

NAMES = ["да", "нет", "1", "0", "", "a b", "猫"]
PAIRS = st.integers(1, 7).flatmap(
    lambda k: st.tuples(
        st.permutations(NAMES).map(lambda names: names[:k]),
        st.lists(st.tuples(st.sampled_from(NAMES[:k]), st.sampled_from(NAMES[:k])), min_size=1, max_size=40),
    )
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(PAIRS)
@pytest.mark.filterwarnings("ignore:A single label was found")
def test_equals_scikit_learn(drawn: tuple[list[str], list[tuple[str, str]]]) -> None:
    """The labels are drawn apart from the answers, so some never occur and some answers are not among them."""
    labels, pairs = drawn
    gold, said = [g for g, _ in pairs], [s for _, s in pairs]
    names = [*labels, *sorted({*gold, *said} - set(labels))]
    scores = c.classification_scores(gold, said, labels)
    common = {"labels": names, "zero_division": 0}
    assert scores["accuracy"] == pytest.approx(accuracy_score(gold, said))
    assert scores["macro_f1"] == pytest.approx(f1_score(gold, said, average="macro", zero_division=0))
    assert scores["weighted_f1"] == pytest.approx(f1_score(gold, said, average="weighted", **common))
    assert scores["matthews"] == pytest.approx(matthews_corrcoef(gold, said), abs=1e-9)
    assert c.confusion(gold, said, labels) == confusion_matrix(gold, said, labels=names).tolist()
    wanted = precision_recall_fscore_support(gold, said, **common)
    for at, row in enumerate(c.per_class(gold, said, labels)):
        assert row["label"] == names[at]
        got = row["precision"], row["recall"], row["f1"], row["count"]
        assert got == pytest.approx(tuple(float(column[at]) for column in wanted))
    if len(labels) == 2:
        positive = "1" if "1" in labels else labels[1]
        assert scores["f1"] == pytest.approx(f1_score(gold, said, average=None, **common)[names.index(positive)])
    else:
        assert "f1" not in scores


def test_known_numbers() -> None:
    gold, said = list("1100"), list("1000")
    assert c.classification_scores(gold, said, ["0", "1"]) == pytest.approx(
        {
            "accuracy": 0.75,
            "macro_f1": (0.8 + 2 / 3) / 2,
            "weighted_f1": (0.8 + 2 / 3) / 2,
            "matthews": 0.57735,
            "f1": 2 / 3,
        },
        abs=1e-5,
    )
    assert c.classification_scores(gold, said, ["1", "0"])["f1"] == pytest.approx(2 / 3)  # "1" wherever it stands
    assert c.classification_scores(["yes"], ["no"], ["no", "yes"])["f1"] == 0.0


def test_a_label_never_learnt_is_always_missed() -> None:
    scores = c.classification_scores(["a", "new"], ["a", "a"], ["a", "b"])
    assert scores["accuracy"] == 0.5
    assert scores["macro_f1"] == pytest.approx((2 / 3 + 0) / 2)  # "b" neither occurs nor is said
    assert [row["label"] for row in c.per_class(["a", "new"], ["a", "a"], ["a", "b"])] == ["a", "b", "new"]


def test_classes_that_do_not_occur_are_left_out_of_the_macro_mean() -> None:
    """A model of seven classes on rows that have some of them: scikit-learn's mean is over those in gold or said."""
    random = np.random.default_rng(0)
    lacking = 0
    for _ in range(60):
        known = random.choice(NAMES, random.integers(1, len(NAMES) + 1), replace=False)
        gold, said = (random.choice(known, 12).tolist() for _ in range(2))
        lacking += len({*gold, *said}) < len(NAMES)
        wanted = f1_score(gold, said, average="macro", zero_division=0)
        assert c.classification_scores(gold, said, NAMES)["macro_f1"] == pytest.approx(wanted)
        taken = random.integers(12, size=(5, 12))
        each = [f1_score([gold[at] for at in row], [said[at] for at in row], average="macro") for row in taken]
        assert c.resampled(gold, said, NAMES, "macro_f1")(taken) == pytest.approx(each)
    assert lacking > 30


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(NAMES))), min_size=1, max_size=20))
def test_several_labels_equal_scikit_learn(pairs: list[tuple[set[str], set[str]]]) -> None:
    labels = NAMES[:4]
    gold, said = [g for g, _ in pairs], [s for _, s in pairs]
    names = [*labels, *sorted(set().union(*gold, *said) - set(labels))]
    y, z = (np.array([[name in one for name in names] for one in side]).astype(int) for side in (gold, said))
    scores = c.multilabel_scores(gold, said, labels)
    assert scores["micro_f1"] == pytest.approx(f1_score(y, z, average="micro", zero_division=0))
    assert scores["macro_f1"] == pytest.approx(f1_score(y, z, average="macro", zero_division=0))
    assert scores["exact_match"] == pytest.approx(accuracy_score(y, z))
    each = f1_score(y, z, average=None, zero_division=0)
    rows = c.multilabel_per_class(gold, said, labels)
    assert {row["label"]: row["f1"] for row in rows} == pytest.approx(dict(zip(names, each.tolist(), strict=True)))
    right, of_said, of_gold = c.multilabel_counts(gold, said).sum(0)
    assert (right, of_said, of_gold) == (np.minimum(y, z).sum(), z.sum(), y.sum())


def test_repeated_labels_of_an_example_count_once() -> None:
    assert c.multilabel_scores([("a", "a")], [("a",)], ["a"]) == {"micro_f1": 1.0, "macro_f1": 1.0, "exact_match": 1.0}
    assert c.multilabel_scores([()], [()], []) == {"micro_f1": 0.0, "macro_f1": 0.0, "exact_match": 1.0}


@pytest.mark.parametrize("score", ["accuracy", "macro_f1", "weighted_f1", "matthews", "f1"])
def test_resamples_are_scored_as_one_by_one(score: str, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    gold, said = (random.choice(["0", "1", "x"], 30).tolist() for _ in range(2))
    labels = ["0", "1"]
    taken = random.integers(30, size=(50, 30))
    one_by_one = [
        c.classification_scores([gold[at] for at in row], [said[at] for at in row], labels)[score] for row in taken
    ]
    monkeypatch.setattr(c, "_LARGEST_BLOCK", 70)  # several blocks
    together = c.resampled(gold, said, labels, score)(taken)
    assert together.shape == (50,)
    assert together == pytest.approx(one_by_one)


def test_thousands_of_classes_are_resampled_quickly() -> None:
    """A whole confusion matrix for each of 10,000 resamples took minutes at a thousand classes."""
    random = np.random.default_rng(0)
    labels = [f"class {number}" for number in range(5000)]
    gold, said = (random.choice(labels, 400).tolist() for _ in range(2))
    began = time.process_time()
    for score in ("accuracy", "macro_f1", "matthews"):
        c.resampled(gold, said, labels, score)(random.integers(400, size=(200, 400)))
    assert time.process_time() - began < 2.0


def test_mistakes_are_sentences() -> None:
    with pytest.raises(SesameError, match=r"2 examples but 1 answers; give one answer"):
        c.classification_scores(["a", "b"], ["a"], ["a", "b"])
    with pytest.raises(SesameError, match="nothing to score"):
        c.classification_scores([], [], ["a"])
    with pytest.raises(SesameError, match="nothing to score"):
        c.multilabel_scores([], [], ["a"])
    with pytest.raises(SesameError, match=r"no score 'f2'.*known are accuracy"):
        c.resampled(["a"], ["a"], ["a"], "f2")
