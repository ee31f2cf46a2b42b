"""What a fine-tuning says at its end: beside which baseline it stands, and whether it is better."""

from typing import Any

import pytest

from sesame.evaluate.results import advice, strongest


def ending(metric: str, low: float, high: float, adapted: bool = False, adaptable: bool = True, **more: Any) -> str:
    versus = {"baseline": "tf-idf", "difference": (low + high) / 2, "low": low, "high": high}
    found = {metric: {"mean": 0.5, "std": None, "n": 1}}
    data = {"rows": {"train": 2000}, "adapted": adapted, "adaptable": adaptable}
    return advice({"versus": versus, "data": data, "scores": {"test": found}, **more}, "test", metric)


@pytest.mark.parametrize(
    ("metric", "low", "high", "said"),
    [
        ("accuracy", 0.1, 0.2, "next: look at the mistakes"),
        ("accuracy", -0.1, 0.2, "next: not clearly better than tf-idf (difference +0.0500"),
        ("accuracy", -0.2, -0.1, "next: worse than tf-idf (difference -0.1500"),
        ("mse", -0.2, -0.1, "next: look at the mistakes"),
        ("mse", -0.1, 0.2, "next: not clearly better than tf-idf"),
        ("mae", 0.1, 0.2, "next: worse than tf-idf (difference +0.1500"),
    ],
)
def test_advice(metric: str, low: float, high: float, said: str) -> None:
    """Of errors less is better."""
    assert ending(metric, low, high).startswith(said)


def test_who_has_adapted_is_not_told_to() -> None:
    assert ending("accuracy", -0.1, 0.2).endswith("your own text first (--text YOUR.txt), or label more")
    assert ending("accuracy", -0.1, 0.2, adapted=True).endswith("adapt the model to more text, or label more")


def test_what_cannot_be_adapted_is_not_told_to() -> None:
    assert ending("accuracy", -0.1, 0.2, adaptable=False).endswith("0.2000); label more")


@pytest.mark.parametrize(
    ("collapsed", "said"),
    [(True, "next: the model gives every text the same answer; train longer"), (False, "next: worse")],
)
def test_a_collapsed_model_is_not_told_to_label_more(collapsed: bool, said: str) -> None:
    seeds = [{"collapsed": not collapsed}, {"collapsed": collapsed}]
    assert ending("accuracy", -0.2, -0.1, seeds=seeds, best=1).startswith(said)


@pytest.mark.parametrize("metric", ["mse", "mae", "pearson"])
def test_the_strongest_baseline_has_the_least_error(metric: str) -> None:
    good, bad = {"mse": 0.1, "mae": 0.2, "pearson": 0.9}, {"mse": 9.0, "mae": 3.0, "pearson": 0.1}
    assert strongest({"bad": {"scores": {"test": bad}}, "good": {"scores": {"test": good}}}, "test", metric) == "good"
