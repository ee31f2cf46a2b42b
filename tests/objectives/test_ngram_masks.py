"""ALBERT's masks: spans of whole words whose lengths follow 1/n, up to the rate's budget."""

from dataclasses import replace

import pytest
import torch

from sesame.data.batch import IGNORE, Batch
from sesame.errors import SesameError
from sesame.objectives.mlm import MaskedLM, MaskedLMConfig
from tests.objectives.test_mlm import ROLES, objective, rows

LAW = torch.tensor([6 / 11, 3 / 11, 2 / 11], dtype=torch.float64)


def wordy(count: int, length: int, start: float, ragged: bool = False, seed: int = 0) -> Batch:
    """Rows of words; a token begins one with probability `start`."""
    batch = rows(count, length, ragged, seed)
    starts = torch.rand(count, length, generator=torch.Generator().manual_seed(seed + 1)) < start
    inside = (batch.ids >= 5).long()
    starts[:, 1] = True
    words = torch.cumsum(starts.long() * inside, 1) * inside
    return replace(batch, words=words)


def masked(batch: Batch, mlm: MaskedLM) -> tuple[Batch, torch.Tensor]:
    """After corruption, and where (B, L) something was chosen."""
    after = mlm.corrupt(batch)
    targets = after.targets["mlm"]
    assert targets.at is not None
    found = torch.zeros_like(batch.ids).scatter_add(1, targets.at, (targets.labels != IGNORE).long())
    assert int(found.max()) == 1  # no place twice
    return after, found.bool()


def keys_of(batch: Batch) -> torch.Tensor:
    assert batch.keys is not None
    return batch.keys


def words_of(batch: Batch) -> torch.Tensor:
    assert batch.words is not None
    return batch.words


def lengths_of(spans: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    """How many words each span of a row has, over all rows."""
    pairs = torch.stack([torch.arange(len(words))[:, None].expand_as(words), spans, words], 2)[words > 0].unique(dim=0)
    return pairs[:, :2].unique(dim=0, return_counts=True)[1]


def test_lengths_follow_one_over_n() -> None:
    batch = wordy(400, 128, 1.0)
    spans = objective(ngram=3).spans(words_of(batch), keys_of(batch))
    lengths = lengths_of(spans, words_of(batch))
    shares = torch.bincount(lengths, minlength=4)[1:4] / len(lengths)
    assert len(torch.bincount(lengths)) == 4  # none is longer
    assert torch.allclose(shares.double(), LAW, atol=0.015)
    step = spans[:, 2:-1] - spans[:, 1:-2]
    assert set(step.unique().tolist()) == {0, 1}  # one span behind the other, none left out


def test_chosen_spans_follow_it_too_and_fill_the_budget() -> None:
    batch = wordy(1500, 128, 1.0)
    mlm = objective(ngram=3)
    after, found = masked(batch, mlm)
    assert int(after.targets["mlm"].count()) == 1500 * 19  # exactly round(0.15 * 128): the last span is shortened
    spans = torch.where(found, mlm.spans(words_of(batch), keys_of(batch)), 0)
    lengths = lengths_of(spans, torch.where(found, words_of(batch), 0))
    shares = torch.bincount(lengths, minlength=4)[1:4] / len(lengths)
    assert torch.allclose(shares.double(), LAW, atol=0.03)  # but for the shortened ones
    assert float(found.float().argmax(1).float().mean()) > 2  # rows do not all begin with a mask
    assert found[:, 1:-1].float().mean(0).std() < 0.02  # no place is favoured


def test_neighbours_are_masked_together() -> None:
    """What n-grams are for: beside a masked word the next is masked far more often than 15 %."""
    batch = wordy(500, 128, 1.0)
    for ngram, low, high in ((1, 0.12, 0.18), (3, 0.4, 0.6)):
        _, found = masked(batch, objective(ngram=ngram, whole_words=True))
        beside = found[:, 1:-1] & found[:, 2:]
        assert low < float(beside.sum() / found.sum()) < high


def test_whole_words_up_to_the_rate() -> None:
    batch = wordy(600, 100, 0.6, ragged=True)
    _, found = masked(batch, objective(ngram=3))
    words = words_of(batch)
    for row in range(600):
        inside = set(words[row][found[row]].tolist())
        assert 0 not in inside
        most = max(1, round(0.15 * int(batch.lengths[row])))
        if bool(
            (torch.bincount(words[row])[1:] <= most).any()
        ):  # in a row of longer words alone, parts of them are hidden
            assert torch.equal(found[row], torch.isin(words[row], torch.tensor(sorted(inside), dtype=torch.long)))
        assert int(found[row].sum()) <= most
    share = found.sum() / batch.lengths.sum()
    assert 0.13 < float(share) < 0.155


def test_80_10_10() -> None:
    batch = wordy(1500, 128, 0.7)
    after, found = masked(batch, objective(ngram=3))
    old, new = batch.ids[found], after.ids[found]
    assert float((new == ROLES["mask"]).float().mean()) == pytest.approx(0.8, abs=0.01)
    assert float((new == old).float().mean()) == pytest.approx(0.1, abs=0.01)
    assert torch.equal(after.ids[~found], batch.ids[~found])


def test_masks_depend_on_the_example_alone() -> None:
    batch = wordy(12, 60, 0.6)
    mlm = objective(ngram=3)
    after = mlm.corrupt(batch)
    wide = replace(
        batch, ids=torch.nn.functional.pad(batch.ids, (0, 9)), words=torch.nn.functional.pad(words_of(batch), (0, 9))
    )
    assert torch.equal(mlm.corrupt(wide).ids[:, :60], after.ids)
    alone = Batch(batch.ids[3:4], batch.lengths[3:4], keys=keys_of(batch)[3:4], words=words_of(batch)[3:4])
    assert torch.equal(mlm.corrupt(alone).ids[0], after.ids[3])
    assert not torch.equal(mlm.corrupt(replace(batch, keys=keys_of(batch) + 1)).ids, after.ids)


def test_it_needs_words() -> None:
    assert objective(ngram=2).needs_words
    assert not objective().needs_words
    with pytest.raises(SesameError, match="ngram"):
        MaskedLMConfig(ngram=0)
