"""Corruption is what the paper says, by its statistics; labels and inputs fit together."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from sesame import chance
from sesame.backbones import Encoder, EncoderConfig
from sesame.data.batch import IGNORE, Batch
from sesame.errors import SesameError
from sesame.objectives import Vocab, build
from sesame.objectives.mlm import MaskedLM, MaskedLMConfig, MaskedLMHead

ROLES = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
SIZE = 1000


def objective(**settings: object) -> MaskedLM:
    return MaskedLM(MaskedLMConfig(**settings), MaskedLMHead(8, 8, SIZE, "gelu", 1e-12), Vocab(SIZE, ROLES))  # type: ignore[arg-type]


def rows(count: int, length: int, ragged: bool = False, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, SIZE, (count, length), generator=generator)
    lengths = torch.randint(3, length + 1, (count,), generator=generator) if ragged else torch.full((count,), length)
    ids[:, 0] = ROLES["cls"]
    ids[torch.arange(count), lengths - 1] = ROLES["sep"]
    ids[torch.arange(length)[None] >= lengths[:, None]] = ROLES["pad"]
    keys = torch.tensor([chance.key(seed, row) >> 1 for row in range(count)])
    return Batch(ids, lengths, keys=keys)


def chosen(before: Batch, after: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Original tokens, new tokens and positions of all chosen places."""
    targets = after.targets["mlm"]
    assert targets.at is not None
    real = targets.labels != IGNORE
    return targets.labels[real], torch.gather(after.ids, 1, targets.at)[real], targets.at[real]


def test_15_percent_of_which_80_10_10() -> None:
    batch = rows(2000, 128)
    after = objective().corrupt(batch)
    old, new, at = chosen(batch, after)
    assert torch.equal(after.targets["mlm"].count(), torch.tensor(2000 * 19))  # round(0.15 * 128)
    assert (new == ROLES["mask"]).float().mean() == pytest.approx(0.8, abs=0.01)
    assert (new == old).float().mean() == pytest.approx(0.1, abs=0.01)
    random = (new != old) & (new != ROLES["mask"])
    assert random.float().mean() == pytest.approx(0.1, abs=0.01)
    assert new[random].float().mean() == pytest.approx(SIZE / 2, rel=0.05)  # from the whole vocabulary
    assert at.float().mean() == pytest.approx(63.5, abs=0.5)  # everywhere in the row
    untouched = batch.ids != after.ids
    assert untouched.sum() <= len(old)


@pytest.mark.parametrize("ragged", [False, True])
def test_specials_are_never_chosen_and_the_rest_stays(ragged: bool) -> None:
    batch = rows(300, 40, ragged)
    after = objective().corrupt(batch)
    old, _, _ = chosen(batch, after)
    assert int(old.min()) >= 5
    targets = after.targets["mlm"]
    assert targets.at is not None
    seen = torch.gather(after.ids, 1, targets.at)
    restored = after.ids.scatter(1, targets.at, torch.where(targets.labels != IGNORE, targets.labels, seen))
    assert torch.equal(restored, batch.ids)
    for row in range(300):  # as many as the paper's code takes, and no place twice
        wanted = max(1, round(0.15 * int(batch.lengths[row])))
        places = targets.at[row][targets.labels[row] != IGNORE].tolist()
        assert len(places) == len(set(places)) == min(wanted, int(batch.lengths[row]) - 2)


def test_whole_words_go_together() -> None:
    batch = rows(300, 60)
    words = torch.cumsum((torch.rand(300, 60, generator=torch.Generator().manual_seed(1)) < 0.6).long(), 1) + 1
    words[:, 0] = words[:, -1] = 0
    batch = replace(batch, words=words)
    after = objective(whole_words=True).corrupt(batch)
    targets = after.targets["mlm"]
    assert targets.at is not None
    total = 0
    for row in range(300):
        places = set(targets.at[row][targets.labels[row] != IGNORE].tolist())
        total += len(places)
        for word in {int(words[row, place]) for place in places}:
            assert {place for place in range(60) if int(words[row, place]) == word} <= places
    assert 0.12 < total / (300 * 60) <= 0.15


ENGLISH = (
    "The old clockmaker had never quite understood why his neighbours, who were otherwise sensible people, insisted upon "
    "setting their watches by the church tower; its hands had been crooked since the lightning of eighteen ninety-three. "
)


def in_words(lengths: list[list[int]], width: int) -> Batch:
    """Rows of words with so many pieces each."""
    words = torch.zeros(len(lengths), width, dtype=torch.long)
    sizes = torch.zeros(len(lengths), dtype=torch.long)
    for row, pieces in enumerate(lengths):
        numbers = [number for number, size in enumerate(pieces, 1) for _ in range(size)][: width - 2]
        words[row, 1 : 1 + len(numbers)] = torch.tensor(numbers)
        sizes[row] = len(numbers) + 2
    batch = rows(len(lengths), width)
    ids = torch.where(torch.arange(width)[None] >= sizes[:, None], ROLES["pad"], batch.ids.where(words > 0, 7))
    ids[:, 0] = ROLES["cls"]
    ids[torch.arange(len(lengths)), sizes - 1] = ROLES["sep"]
    return replace(batch, ids=ids, lengths=sizes, words=words)


def hidden(mlm: MaskedLM, batch: Batch) -> list[list[int]]:
    targets = mlm.corrupt(batch).targets["mlm"]
    assert targets.at is not None
    return [sorted(at[label != IGNORE].tolist()) for at, label in zip(targets.at, targets.labels, strict=True)]


def by_hand(mlm: MaskedLM, batch: Batch) -> list[list[int]]:
    """Words in the order of their draws, all of a span's in turn, until one does not fit; too long ones are passed over."""
    assert batch.words is not None
    assert batch.keys is not None
    width = batch.ids.shape[1]
    luck = torch.gather(chance.uniform_tensor(batch.keys, "mlm.pick", width), 1, mlm.spans(batch.words, batch.keys))
    found = []
    for row in range(len(batch.ids)):
        numbers, draws, taken = batch.words[row].tolist(), luck[row].tolist(), []
        at = {number: [place for place in range(width) if numbers[place] == number] for number in {*numbers} - {0}}
        most = max(1, round(0.15 * int(batch.lengths[row])))
        fitting = [number for number in at if len(at[number]) <= most]
        for number in sorted(fitting, key=lambda number: (draws[at[number][0]], number)):
            if len(taken) + len(at[number]) > most:
                break
            taken += at[number]
        found.append(sorted(taken))
    return found


@pytest.mark.parametrize("ngram", [1, 3])
def test_masks_of_ordinary_text_are_those_of_the_rule(ngram: int) -> None:
    """Words that may be hidden whole are never taken apart: no mask of such a row depends on how others are."""
    sizes = [-(-len(word) // 4) for word in (ENGLISH * 6).split()]
    batch = in_words([sizes[start:] for start in range(60)], 100)
    mlm = objective(whole_words=True, ngram=ngram)
    assert hidden(mlm, batch) == by_hand(mlm, batch)
    odd = in_words([sizes[start:] if start % 2 else [1, 90] for start in range(60)], 100)
    assert hidden(mlm, odd)[1::2] == by_hand(mlm, batch)[1::2]


@pytest.mark.parametrize("ngram", [1, 3])
def test_words_longer_than_the_masks_of_a_row_are_taken_apart(ngram: int) -> None:
    batch = in_words([[1000]] * 300 + [[1] * 20 + [78]] * 300 + [[6]] * 300, 100)
    mlm = objective(whole_words=True, ngram=ngram)
    found = hidden(mlm, batch)
    assert [len(places) for places in found] == [15] * 600 + [1] * 300  # round(0.15 * 8) = 1
    for part in (found[:300], found[300:600]):
        counts = torch.bincount(torch.tensor(part).flatten(), minlength=100)[1:99] / 300
        assert counts.std() < 0.03, "a place is favoured"
        assert counts.mean() == pytest.approx(15 / 98, abs=1e-6)


def test_a_name_that_does_not_fit_is_hidden_whole_or_not_at_all() -> None:
    """Rows of 20 tokens hide 3; a name of five pieces among shorter words is passed over, and keeps none of them from it."""
    batch = in_words([[1, 5, 2, 1, 5, 1, 2, 1]] * 400, 20)
    mlm = objective(whole_words=True)
    found = hidden(mlm, batch)
    assert batch.words is not None
    touched = {int(batch.words[row, place]) for row, places in enumerate(found) for place in places}
    assert touched == {1, 3, 4, 6, 7, 8}
    assert found == by_hand(mlm, batch)
    assert sum(map(len, found)) > 2.4 * 400


def test_the_mask_depends_on_the_example_alone() -> None:
    batch = rows(10, 50)
    after = objective().corrupt(batch)
    wide = replace(batch, ids=torch.nn.functional.pad(batch.ids, (0, 9)))
    assert torch.equal(objective().corrupt(wide).ids[:, :50], after.ids)
    assert batch.keys is not None
    alone = Batch(batch.ids[3:4], batch.lengths[3:4], keys=batch.keys[3:4])
    assert torch.equal(objective().corrupt(alone).ids[0], after.ids[3])
    other = objective().corrupt(replace(batch, keys=batch.keys + 1))
    assert not torch.equal(other.ids, after.ids)


def test_the_rate_may_glide() -> None:
    batch = rows(100, 100)
    for progress, wanted in ((0.0, 40), (0.5, 28), (1.0, 15)):
        after = objective(rate=0.4, end_rate=0.15).corrupt(batch, progress)
        assert int(after.targets["mlm"].count()) == 100 * wanted


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"rate": 0.0}, "rate is 0"),
        ({"rate": 1.5}, "rate is 1.5"),
        ({"end_rate": 1.2}, "end_rate is 1.2"),  # "rate is 0.15" named the innocent one
        ({"static": -1}, "static is -1"),  # gave every epoch the same masks, without a word
        ({"mask": 0.9, "random": 0.2}, "mask and random"),
    ],
)
def test_bad_settings_are_told(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(SesameError, match=rf"objectives\.mlm.*\b{told}"):
        MaskedLMConfig(**settings)


def test_a_tokenizer_without_a_mask_is_told() -> None:
    backbone = Encoder(EncoderConfig(10, 8, 1, 1))
    with pytest.raises(SesameError, match="mask token"):
        build({"mlm": MaskedLMConfig()}, backbone, Vocab(10, {"pad": 0, "cls": 1, "sep": 2}))


@torch.no_grad()
def test_loss_is_the_mean_negative_log_probability_at_masked_places() -> None:
    """Against the definition, with every logit computed, padded and packed."""
    torch.manual_seed(0)
    backbone = Encoder(EncoderConfig(SIZE, 16, 2, 2, dropout=0.0, attention_dropout=0.0)).double().eval()
    mlm = objective()
    mlm.head = MaskedLMHead(16, 16, SIZE, "gelu", 1e-12)
    mlm.double().eval()
    batch = mlm.corrupt(rows(6, 30, ragged=True))
    (term,) = mlm(backbone, batch)
    logits = mlm.head(backbone(batch).last, backbone.token_table())[..., :SIZE].log_softmax(-1)
    targets = batch.targets["mlm"]
    assert targets.at is not None
    wanted = sum(
        -logits[row, int(at), int(label)]
        for row in range(6)
        for at, label in zip(targets.at[row], targets.labels[row], strict=True)
        if label != IGNORE
    )
    assert float(term.total) == pytest.approx(float(wanted), abs=1e-10)
    (unpadded,) = mlm(backbone, batch.unpadded(8))
    assert float(unpadded.total) == pytest.approx(float(wanted), abs=1e-10)
    assert int(term.count) == int((targets.labels != IGNORE).sum())
