"""Token for token what transformers' `generate` gives, on seeded models of four families."""

import itertools

import pytest

from sesame.generate import Settings, top
from tests.generate.parity import EARLY, MOST, check_beam, ours, whole
from tests.generate.strangers import END, FAMILIES, prompts, stranger, theirs

PRODUCT = list(itertools.product((4, 8), (0.6, 1.0, 2.0), EARLY))


@pytest.fixture(params=["plain", "pieces"], autouse=True)
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way for large vocabularies must find the same."""
    if request.param == "pieces":
        monkeypatch.setattr(top, "SMALL", 0)
        monkeypatch.setattr(top, "PIECE", 4)


@pytest.fixture(autouse=True)
def single(one_thread: None) -> None: ...


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_beams(family: str) -> None:
    """Widths with length penalties and ways to stop (half of them in each family), all n-best with their scores."""
    texts = []
    for number, (beams, alpha, early) in enumerate(PRODUCT[FAMILIES.index(family) % 2 :: 2 if top.SMALL else 6]):
        texts += check_beam(family, number % 5, beams, alpha, early)
    if not top.SMALL:
        return
    lengths = [len(text) for text in texts if text[-1] == END]
    assert len(set(lengths)) >= 4, "the models' texts end at different lengths"
    assert len(lengths) < len(texts), "some are cut"


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(6))
def test_beams_of_more_models(family: str, seed: int) -> None:
    for beams, alpha, early in PRODUCT:
        check_beam(family, seed, beams, alpha, early)


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy(family: str) -> None:
    texts = []
    for seed in range(4):
        model, rows = stranger(family, seed), prompts(seed)
        found, _ = theirs(model, rows, max_new_tokens=MOST)
        assert whole(ours(model, rows, Settings(most=MOST))) == found
        texts += found
    assert {END} < {text[-1] for text in texts}
