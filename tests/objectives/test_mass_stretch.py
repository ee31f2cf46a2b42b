"""MASS: one stretch, told alone, with the tokens before it as the decoder's input."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from sesame import chance
from sesame.data.batch import IGNORE, Batch
from sesame.errors import SesameError
from sesame.objectives.base import Vocab
from sesame.objectives.mass import MaskedSpan, MassConfig
from sesame.objectives.seq2seq import DecoderHead, Exercise, Seq2Seq

ROLES = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
SIZE = 1000


def rows(lengths: list[int], width: int, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    ids, size = torch.randint(5, SIZE, (len(lengths), width), generator=generator), torch.tensor(lengths)
    ids[:, 0] = ROLES["cls"]
    ids.scatter_(1, size[:, None] - 1, ROLES["sep"])
    ids[torch.arange(width)[None] >= size[:, None]] = ROLES["pad"]
    keys = torch.from_numpy(chance.keys(seed, np.arange(len(lengths))).view(np.int64))
    return Batch(ids, size, keys=keys, full=min(lengths) == width)


def made(batch: Batch, **settings: float) -> Exercise:
    return MaskedSpan(MassConfig(**settings), Vocab(SIZE, ROLES))(batch)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(2, 40), min_size=1, max_size=6), st.sampled_from([0.5, 0.1, 0.9]), st.integers(0, 2**31))
def test_source_and_target_are_the_text(lengths: list[int], rate: float, seed: int) -> None:
    batch = rows(lengths, max(lengths), seed)
    found = made(batch, rate=rate)
    assert found.at is not None
    assert found.outputs is not None
    assert found.labels.shape[1] == max(1, round(max(lengths) * rate))
    for row, length in enumerate(lengths):
        count, text = min(round(length * rate), length - 1), batch.ids[row].tolist()
        begin = int(found.at[row, 0]) if count else 1
        places = list(range(begin, begin + count))
        assert begin >= 1
        assert begin + count <= length
        assert found.at[row, :count].tolist() == places
        assert found.labels[row].tolist() == [*(text[at] for at in places), *[IGNORE] * (found.labels.shape[1] - count)]
        assert found.outputs[row, :count].tolist() == [text[at - 1] for at in places]
        assert found.outputs[row, count:].eq(ROLES["pad"]).all()
        source = found.ids[row].tolist()
        source[begin : begin + count] = text[begin : begin + count]
        assert source == text
    assert torch.equal(found.lengths, batch.lengths)
    assert found.full == batch.full


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_where_stretches_are(seed: int) -> None:
    """20 tokens, 10 of them masked: begins 1 to 10; a fifth first, a fifth last, the rest anywhere."""
    found = made(rows([20] * 20_000, 20, seed))
    assert found.at is not None
    counts = torch.bincount(found.at[:, 0], minlength=11)[1:]
    wanted = np.full(10, 0.06)
    wanted[[0, -1]] += 0.2
    assert chisquare(counts.numpy(), wanted * 20_000).pvalue > 1e-4


@pytest.mark.parametrize("seed", [0, 1])
def test_eighty_ten_ten(seed: int) -> None:
    batch = rows([40] * 5000, 40, seed)
    found = made(batch)
    assert found.at is not None
    shown = found.ids.gather(1, found.at)
    masked, same = (shown == ROLES["mask"]).double().mean(), (shown == found.labels).double().mean()
    assert float(masked) == pytest.approx(0.8, abs=0.005)
    assert float(same) == pytest.approx(0.1, abs=0.005)
    drawn = shown[(shown != ROLES["mask"]) & (shown != found.labels)]
    assert 0.95 < float(drawn.double().mean()) / (SIZE / 2) < 1.05
    assert len(drawn.unique()) > 0.99 * (SIZE - 5)


def test_a_row_is_masked_alone_as_in_company() -> None:
    batch = rows([30, 12, 21], 30, seed=5)
    assert batch.keys is not None
    found = made(batch)
    assert found.outputs is not None
    dirty = batch.ids.clone()
    dirty[torch.arange(30)[None] >= batch.lengths[:, None]] = 77
    assert torch.equal(made(replace(batch, ids=dirty)).labels, found.labels)
    for row in range(3):
        length = int(batch.lengths[row])
        alone = made(Batch(batch.ids[row : row + 1, :length], batch.lengths[row : row + 1], batch.keys[row : row + 1]))
        count = alone.labels.shape[1]
        assert alone.outputs is not None
        assert torch.equal(alone.ids[0], found.ids[row, :length])
        assert torch.equal(alone.labels[0], found.labels[row, :count])
        assert torch.equal(alone.outputs[0], found.outputs[row, :count])
    assert not torch.equal(made(replace(batch, keys=batch.keys + 1)).ids, found.ids)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the other device is a GPU")
def test_a_gpu_masks_the_same() -> None:
    batch = rows([30, 12, 21], 30)
    here, there = made(batch), made(batch.to(torch.device("cuda")))
    assert torch.equal(here.ids, there.ids.cpu())
    assert torch.equal(here.labels, there.labels.cpu())


def test_the_objective_passes_inputs_and_places_on() -> None:
    mass = Seq2Seq("mass", DecoderHead(8, SIZE), 3, 0, corruption=MaskedSpan(MassConfig(), Vocab(SIZE, ROLES)))
    batch = rows([30, 12, 21], 30)
    after, found = mass.corrupt(batch), made(batch)
    assert after.outputs is not None
    assert found.outputs is not None
    assert torch.equal(after.outputs, found.outputs)  # no start token: what stands before the stretch
    assert after.targets["mass"].at is not None
    assert int(after.targets["mass"].count()) == 15 + 6 + 10


def test_what_it_needs() -> None:
    for role in ("mask", "cls"):
        with pytest.raises(SesameError, match=f"needs a {role} token"):
            MaskedSpan(MassConfig(), Vocab(SIZE, {name: id for name, id in ROLES.items() if name != role}))
    for wrong in ({"rate": 1.0}, {"begin": 0.7, "end": 0.7}, {"mask": 0.8, "random": 0.3}, {"mask": -0.1}):
        with pytest.raises(SesameError, match=r"objectives\.mass"):
            MassConfig(**wrong)
