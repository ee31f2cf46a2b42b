"""One search here and there."""

from typing import Any

import pytest

from sesame.generate import Hypothesis, Settings, generate
from tests.generate.speakers import Stranger, sources
from tests.generate.strangers import END, START, prompts, stranger, theirs

MOST = 9
EARLY = {"full": True, "present": False, "never": "never"}


def whole(hypotheses: list[list[Hypothesis]]) -> list[list[int]]:
    return [one.ids + ([] if one.end is None else [one.end]) for some in hypotheses for one in some]


def ours(model: Any, rows: list[list[int]], settings: Settings, **more: Any) -> list[list[Hypothesis]]:
    batch = sources(rows)
    before = sources([[START]] * len(rows)) if model.config.is_encoder_decoder else batch
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
        min_new_tokens=more.get("fewest"),
    )
    assert whole(here) == texts
    assert [one.score for some in here for one in some] == pytest.approx(scores, abs=1e-4)
    return whole(here)
