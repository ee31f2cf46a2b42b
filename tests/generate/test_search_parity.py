"""Token for token what transformers' `generate` gives, on seeded models of four families."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from sesame.generate import Hypothesis, Settings, generate, top
from tests.generate.speakers import Stranger, sources
from tests.generate.strangers import END, FAMILIES, PAD, prompts, stranger, theirs

MOST = 10
EARLY = {"full": True, "present": False, "never": "never"}
PRODUCT = list(itertools.product((4, 8), (0.6, 1.0, 2.0), EARLY))


@pytest.fixture(params=["plain", "pieces"], autouse=True)
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way for large vocabularies must find the same."""
    if request.param == "pieces":
        monkeypatch.setattr(top, "SMALL", 0)
        monkeypatch.setattr(top, "PIECE", 4)


@pytest.fixture(autouse=True)
def single(one_thread: None) -> Iterator[None]:
    yield


def whole(hypotheses: list[list[Hypothesis]]) -> list[list[int]]:
    return [one.ids + ([] if one.end is None else [one.end]) for some in hypotheses for one in some]


def ours(model: Any, rows: list[list[int]], settings: Settings, **more: Any) -> list[list[Hypothesis]]:
    batch = sources(rows)
    before = None if model.config.is_encoder_decoder else batch
    return generate(Stranger(model), batch, settings, END, before=before, **more)


def check_beam(family: str, seed: int, beams: int, alpha: float, early: str, **more: Any) -> list[list[int]]:
    model, rows = stranger(family, seed), prompts(seed)
    here = ours(model, rows, Settings(beams=beams, best=beams, most=MOST, alpha=alpha, early=early, **more))  # type: ignore[arg-type]
    texts, scores = theirs(
        model,
        rows,
        num_beams=beams,
        num_return_sequences=beams,
        max_new_tokens=MOST,
        length_penalty=alpha,
        early_stopping=EARLY[early],
        no_repeat_ngram_size=more.get("no_repeat", 0),
        min_new_tokens=more.get("fewest", None),
    )
    assert whole(here) == texts
    assert [one.score for some in here for one in some] == pytest.approx(scores, abs=1e-4)
    return whole(here)


@pytest.mark.parametrize("family", FAMILIES)
def test_beams(family: str) -> None:
    """Every width with every length penalty and every way to stop, all n-best with their scores."""
    texts = []
    for number, (beams, alpha, early) in enumerate(PRODUCT):
        texts += check_beam(family, number % 5, beams, alpha, early)
    lengths = [len(text) for text in texts if text[-1] == END]
    assert len(set(lengths)) >= 4 and len(lengths) < len(texts), "the models' texts end at different lengths, some are cut"


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(6))
def test_beams_of_more_models(family: str, seed: int) -> None:
    for beams, alpha, early in PRODUCT:
        check_beam(family, seed, beams, alpha, early)
