"""What may be said and what is drawn, token for token as in transformers."""

import itertools
from typing import Any

import pytest
import torch

from sesame.generate import Settings, generate
from tests.generate.parity import MOST, check_beam, ours, whole
from tests.generate.speakers import Stranger, sources
from tests.generate.strangers import END, FAMILIES, PAD, START, prompts, stranger, theirs


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


@pytest.mark.parametrize("family", ["gpt2", "bart"])
@pytest.mark.parametrize("beams", [1, 3])
def test_phrases_that_are_never_said(family: str, beams: int) -> None:
    """A phrase may begin in the prompt, or with the decoder's first token."""
    model, rows = stranger(family, 1), prompts(1)
    wishes: dict[str, Any] = {"num_beams": beams, "max_new_tokens": MOST}
    free, _ = theirs(model, rows, **wishes)
    told = [[START] if model.config.is_encoder_decoder else row for row in rows]
    phrases = [(old[-1], new[0]) for old, new in zip(told, free, strict=True)]
    phrases += [tuple(new[1:4]) for new in free if len(new) > 4]
    there, _ = theirs(model, rows, bad_words_ids=[list(phrase) for phrase in phrases], **wishes)
    settings = Settings(beams=beams, most=MOST, never=tuple(phrases), early="present" if beams > 1 else "provable")
    assert whole(ours(model, rows, settings)) == there
    assert sum(one != other for one, other in zip(there, free, strict=True)) >= 3


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("last", [END, 9])
def test_the_forced_end_where_several_tokens_end_a_text(last: int, beams: int) -> None:
    """One of them, or another one, which then is a part of the text."""
    model, rows = stranger("bart", 2, lift=-50.0), prompts(2)
    ends = [END, 5]
    there, _ = theirs(
        model, rows, num_beams=beams, max_new_tokens=MOST, eos_token_id=ends, forced_eos_token_id=last, pad_token_id=PAD
    )
    settings = Settings(beams=beams, most=MOST, force_end=True, early="present" if beams > 1 else "provable")
    before = sources([[START]] * len(rows))
    here = generate(Stranger(model), sources(rows), settings, ends, before=before, last=last)
    assert whole(here) == there
    assert any(text[-1] == last and len(text) == MOST for text in there)


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
