"""What may be said and what is drawn, token for token as in transformers."""

import itertools
from typing import Any

import pytest
import torch

from sesame.generate import Settings
from tests.generate.parity import MOST, check_beam, ours, whole
from tests.generate.strangers import END, FAMILIES, PAD, prompts, stranger, theirs


@pytest.fixture(autouse=True)
def single(one_thread: None) -> None: ...


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_blocked_ngrams_and_least_lengths(family: str) -> None:
    changed = 0
    for seed, (size, fewest) in enumerate([(1, 0), (2, 3), (3, 5), (2, 0)]):
        model, rows = stranger(family, seed), prompts(seed)
        found, _ = theirs(model, rows, max_new_tokens=MOST, no_repeat_ngram_size=size, min_new_tokens=fewest)
        assert whole(ours(model, rows, Settings(most=MOST, no_repeat=size, fewest=fewest))) == found
        changed += found != theirs(model, rows, max_new_tokens=MOST)[0]
        check_beam(family, seed, 4, 1.0, "present", no_repeat=max(size, 2), fewest=fewest)
    assert changed >= 2


@pytest.mark.parametrize("family", ["t5", "bart", "marian"])
def test_forced_tokens_and_those_never_said(family: str) -> None:
    """mBART's language, BART's end, Marian's padding."""
    for seed, beams in itertools.product(range(3), (1, 4)):
        model, rows = stranger(family, seed), prompts(seed)
        settings = Settings(
            beams=beams, most=MOST, force_end=True, never=(PAD, 5, 12), early="present" if beams > 1 else "provable"
        )
        here = ours(model, rows, settings, prefix=[[7]] * len(rows))
        there, _ = theirs(
            model,
            rows,
            num_beams=beams,
            max_new_tokens=MOST,
            forced_bos_token_id=7,
            forced_eos_token_id=END,
            bad_words_ids=[[PAD], [5], [12]],
        )
        assert whole(here) == there
        assert all(some[0].end == END and some[0].ids[0] == 7 for some in here)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_provable_stop_finds_what_a_patient_search_finds(family: str) -> None:
    for seed, (beams, alpha, best) in enumerate([(4, 1.0, 1), (4, 0.6, 2), (8, 2.0, 1), (8, 0.0, 3), (4, -1.0, 1)]):
        model, rows = stranger(family, seed), prompts(seed)
        here = ours(model, rows, Settings(beams=beams, best=best, most=MOST, alpha=alpha))
        wishes: dict[str, Any] = {"num_beams": beams, "num_return_sequences": best, "length_penalty": alpha}
        assert whole(here) == theirs(model, rows, max_new_tokens=MOST, early_stopping="never", **wishes)[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_samples(family: str) -> None:
    """The same dice on the same rows give the same tokens: probabilities and filters are equal."""
    texts = []
    for seed, (wishes, best) in enumerate(
        [
            ({}, 1),
            ({"temperature": 0.7, "top_k": 5}, 2),
            ({"top_p": 0.8}, 1),
            ({"temperature": 1.4, "top_k": 9, "top_p": 0.9}, 3),
        ]
    ):
        model, rows = stranger(family, seed), prompts(seed)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            there, _ = theirs(
                model, rows, do_sample=True, max_new_tokens=MOST, num_return_sequences=best, **({"top_k": 0} | wishes)
            )

        dice = torch.Generator().manual_seed(seed)
        count = len(rows) * best

        def luck(
            probabilities: torch.Tensor, lines: torch.Tensor, step: int, count: int = count, dice: Any = dice
        ) -> torch.Tensor:
            everyone = torch.ones(count, probabilities.shape[1])  # they draw for finished texts too
            everyone[lines] = probabilities
            return torch.multinomial(everyone, 1, generator=dice)[lines, 0]

        settings = Settings(sample=True, best=best, most=MOST, seed=seed, **wishes)  # type: ignore[arg-type]
        assert whole(ours(model, rows, settings, luck=luck)) == there
        texts += there
    assert len({tuple(text) for text in texts}) > len(texts) / 2
