"""T5's spans: source and target together are the text, every cut is equally likely, the numbers are the authors'."""

import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from sesame import chance
from sesame.data.batch import IGNORE, Batch
from sesame.data.docstrings import documents
from sesame.errors import SesameError
from sesame.objectives.seq2seq import DecoderHead, Exercise, Seq2Seq
from sesame.objectives.span import SpanConfig, SpanCorruption, raw_length

PAD, CLS, END, FIRST = 0, 2, 3, 1000
SENTINELS = list(range(FIRST, FIRST + 100))


def rows(lengths: list[int], width: int, seed: int = 0, front: int = 1) -> Batch:
    """[CLS] text [end], without the first if nothing stands in front."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, 900, (len(lengths), width), generator=generator)
    size = torch.tensor(lengths)
    if front:
        ids[:, 0] = CLS
    ids.scatter_(1, size[:, None] - 1, END)
    ids[torch.arange(width)[None] >= size[:, None]] = PAD
    keys = torch.from_numpy(chance.keys(seed, np.arange(len(lengths))).view(np.int64))
    return Batch(ids, size, keys=keys, full=min(lengths) == width)


def whole(made: Exercise, row: int) -> list[int]:
    """Source and target read together."""
    source = made.ids[row, : int(made.lengths[row])].tolist()
    labels = [label for label in made.labels[row].tolist() if label != IGNORE]
    assert labels.pop() == END
    spans: dict[int, list[int]] = {}
    for label in labels:
        if label >= FIRST:
            spans[label] = []
        else:
            spans[next(reversed(spans))].append(label)
    assert list(spans) == SENTINELS[: len(spans)]
    named = [token for token in source if token >= FIRST]
    assert named == list(spans)[: len(named)]
    return [found for token in source for found in (spans[token] if token >= FIRST else [token])]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(2, 60), min_size=1, max_size=6),
    st.sampled_from([0.15, 0.05, 0.5, 0.9]),
    st.sampled_from([3.0, 1.0, 8.0]),
    st.booleans(),
    st.integers(0, 1),
    st.integers(0, 2**31),
)
def test_source_and_target_are_the_text(
    lengths: list[int], rate: float, mean: float, final: bool, front: int, seed: int
) -> None:
    width = max(lengths)
    config = SpanConfig(rate=rate, mean=mean, final=final)
    batch = rows(lengths, width, seed, front)
    made = SpanCorruption(config, SENTINELS, PAD, front)(batch)
    for row, length in enumerate(lengths):
        size = length - front - 1
        assert whole(made, row) == batch.ids[row, :length].tolist()
        noise = min(max(round(size * rate), 1), size - 1) if size > 1 else 0
        spans = min(max(round(noise / mean), 1), noise, size - noise)
        real = [label for label in made.labels[row].tolist() if label != IGNORE]
        assert len(real) == noise + spans + final + 1
        assert sum(label >= FIRST for label in real) == spans + final
        assert int(made.lengths[row]) == front + size - noise + spans + 1
        assert made.labels[row, len(real) :].eq(IGNORE).all()
        assert made.ids[row, int(made.lengths[row]) :].eq(PAD).all()
        if final:
            assert real[-2] >= FIRST
        elif spans:  # a row ends with a hidden span
            assert int(made.ids[row, int(made.lengths[row]) - 2]) == SENTINELS[spans - 1]
    if batch.full:
        assert made.full
        assert made.lengths.eq(made.ids.shape[1]).all()


def test_rows_fill_sources_as_the_authors_do() -> None:
    config = SpanConfig()
    assert raw_length(config, 512) == 568
    assert config.room(568) == (512, 114)
    for source in range(8, 200):
        size = raw_length(config, source)
        assert config.room(size)[0] <= source < config.room(size + 1)[0]
    for config in (SpanConfig(), SpanConfig(rate=0.5, mean=1.0), SpanConfig(rate=0.9, final=True)):
        rooms = [config.room(size) for size in range(300)]
        assert all(a[0] <= b[0] and a[1] <= b[1] for a, b in pairwise(rooms))  # shapes follow from the width


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_all_cuts_are_equally_likely(seed: int) -> None:
    """5 of 14 tokens in 3 spans: 6 ways to cut the hidden ones, 28 ways to cut the others, independent of each other."""
    made = SpanCorruption(SpanConfig(rate=0.35, mean=1.7), SENTINELS, PAD, 1)(rows([16] * 20_000, 16, seed))
    hidden: Counter[tuple[int, ...]] = Counter()
    given_: Counter[tuple[int, ...]] = Counter()
    both: Counter[tuple[tuple[int, ...], tuple[int, ...]]] = Counter()
    for source, labels in zip((made.ids[:, 1:] >= FIRST).tolist(), (made.labels >= FIRST).tolist(), strict=True):
        a = tuple(place for place, found in enumerate(labels) if found)
        b = tuple(place for place, found in enumerate(source) if found)
        hidden[a] += 1
        given_[b] += 1
        both[a, b] += 1
    assert (len(hidden), len(given_), len(both)) == (6, 28, 6 * 28)
    for counts in (hidden, given_, both):
        assert chisquare(list(counts.values())).pvalue > 1e-4


def test_fifteen_percent_of_real_text_in_spans_of_three() -> None:
    names: dict[str, int] = {}
    words = [w for _, text in documents(200_000) for w in re.findall(r"\w+|[^\w\s]", text)]
    ids = torch.tensor([5 + names.setdefault(word, len(names)) for word in words])
    first = 5 + len(names)
    body = ids[: len(ids) // 126 * 126].view(-1, 126)
    batch = Batch(
        torch.nn.functional.pad(torch.nn.functional.pad(body, (1, 0), value=CLS), (0, 1), value=END),
        torch.full((len(body),), 128),
        keys=torch.from_numpy(chance.keys(7, np.arange(len(body))).view(np.int64)),
        full=True,
    )
    made = SpanCorruption(SpanConfig(), range(first, first + 100), PAD, 1)(batch)
    sentinels = (made.labels >= first).sum(1)
    hidden = made.labels.shape[1] - sentinels - 1
    assert len(body) > 200
    assert hidden.eq(19).all()  # round(0.15 * 126)
    assert sentinels.eq(6).all()  # round(19 / 3)
    per_place = torch.zeros(126)  # which places are hidden: all but the first and, always, the last, about equally
    for row in range(len(body)):
        at = 0
        for token in made.ids[row, 1:-1].tolist():
            if token >= first:
                label = made.labels[row].tolist()
                begin = label.index(token) + 1
                length = next(n for n in range(1, 30) if label[begin + n] >= first or label[begin + n] == END)
                per_place[at : at + length] += 1
                at += length
            else:
                at += 1
    share = per_place / len(body)
    assert share[0] == 0
    assert share[-1] == 1
    assert 0.10 < float(share[10:100].mean()) < 0.17


def test_a_row_is_corrupted_alone_as_in_company() -> None:
    corruption = SpanCorruption(SpanConfig(), SENTINELS, PAD, 1)
    batch = rows([60, 33, 9, 47], 60, seed=4)
    made = corruption(batch)
    assert batch.keys is not None
    dirty = batch.ids.clone()
    dirty[torch.arange(60)[None] >= batch.lengths[:, None]] = 77  # what stands behind a row is never read
    again = corruption(replace(batch, ids=dirty))
    assert torch.equal(again.ids, made.ids)
    assert torch.equal(again.labels, made.labels)
    for row in range(4):
        length = int(batch.lengths[row])
        cut = corruption(
            Batch(batch.ids[row : row + 1, :length], batch.lengths[row : row + 1], batch.keys[row : row + 1])
        )
        assert cut.ids[0].tolist() == made.ids[row, : int(made.lengths[row])].tolist()
        assert cut.labels[0].tolist() == [label for label in made.labels[row].tolist() if label != IGNORE]
    other = corruption(replace(batch, keys=batch.keys + 1))
    assert not torch.equal(other.ids, made.ids)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the other device is a GPU")
def test_a_gpu_draws_the_same() -> None:
    corruption, batch = SpanCorruption(SpanConfig(), SENTINELS, PAD, 1), rows([60, 33, 9, 47], 60)
    made, there = corruption(batch), corruption(batch.to(torch.device("cuda")))
    assert torch.equal(made.ids, there.ids.cpu())
    assert torch.equal(made.labels, there.labels.cpu())


def test_too_few_sentinels_are_said_before_training() -> None:
    with pytest.raises(SesameError, match=r"rows of 512 tokens need 25 sentinels, and the tokenizer has 10; .*mean"):
        SpanCorruption(SpanConfig(), SENTINELS[:10], PAD, 1, longest=512)
    SpanCorruption(SpanConfig(), SENTINELS[:25], PAD, 1, longest=512)
    with pytest.raises(SesameError, match="need 26 sentinels"):
        SpanCorruption(SpanConfig(final=True), SENTINELS[:25], PAD, 1, longest=512)
    with pytest.raises(SesameError, match="rows of 128 tokens"):  # where the longest row was not known
        SpanCorruption(SpanConfig(), SENTINELS[:2], PAD, 1)(rows([128], 128))
    for wrong in ({"rate": 0.0}, {"rate": 1.0}, {"mean": 0.5}):
        with pytest.raises(SesameError, match=r"objectives\.span\."):
            SpanConfig(**wrong)  # type: ignore[arg-type]


def test_the_objective_gives_the_decoder_its_input() -> None:
    span = Seq2Seq("span", DecoderHead(8, 1100), PAD, PAD, corruption=SpanCorruption(SpanConfig(), SENTINELS, PAD, 1))
    batch = rows([40, 20], 40)
    after = span.corrupt(batch)
    labels, outputs = after.targets["span"].labels, after.outputs
    assert outputs is not None
    assert outputs[:, 0].eq(PAD).all()
    for row in range(2):
        real = int((labels[row] != IGNORE).sum())
        assert outputs[row, 1:real].tolist() == labels[row, : real - 1].tolist()
        assert outputs[row, real:].eq(PAD).all()
    assert not span.needs_words
