"""The one door: texts from a model, by the search that the settings name."""

from collections.abc import Collection, Sequence

import torch

from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.generate.base import Speaker
from sesame.generate.beam import beam
from sesame.generate.blocking import make_rules
from sesame.generate.greedy import greedy
from sesame.generate.hypothesis import Hypothesis
from sesame.generate.sample import Luck, sample
from sesame.generate.settings import Settings


def generate(
    speaker: Speaker,
    batch: Batch,
    settings: Settings,
    end: int | Collection[int],
    *,
    prefix: Sequence[Sequence[int]] | None = None,
    before: Batch | None = None,
    last: int | None = None,
    luck: Luck | None = None,
) -> list[list[Hypothesis]]:
    """For each source `settings.best` texts, the best first (samples: in the order of their numbers).

    end: the token that ends a text, or several, or none ([]: all are cut at `settings.most`).
    prefix: for each source the tokens its texts must begin with ([] for none).
    before: what the blocking of n-grams and phrases counts as said already: a decoder's prompts. (transformers counts an
        encoder-decoder's start token too, which matters where it can be said; give it as prompts of one token.)
    last: the token that `settings.force_end` forces, where not one token alone ends a text.
    luck: draws the tokens of a sample, see `sample.py`.

    A search may return fewer than `best` texts where fewer exist; it returns at least one.
    """
    ends = [end] if isinstance(end, int) else sorted(end)
    if luck is not None and not settings.sample:
        raise SesameError("a search does not draw: luck was given, but generate.sample is off; set it")
    if batch.size == 0:
        return []
    with torch.inference_mode():
        rules = make_rules(settings, batch, speaker.vocab, ends, prefix, before, last)
        if settings.sample:
            return sample(speaker, batch, rules, luck)
        return beam(speaker, batch, rules) if settings.beams > 1 else greedy(speaker, batch, rules)
