"""BART's noise: equal to a loop over each row in fairseq's way, by its laws, and the target is the text."""

import math
import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from scipy.stats import poisson as exact_poisson

from sesame import chance
from sesame.data.batch import IGNORE, Batch
from sesame.data.docstrings import documents
from sesame.errors import SesameError
from sesame.objectives.base import Vocab
from sesame.objectives.denoise import DenoiseConfig, Denoising, poisson, stop_ids
from sesame.objectives.seq2seq import DecoderHead, Exercise, Seq2Seq
from sesame.pretraining.heads import vocab_of
from sesame.text.train import train_tokenizer

ROLES = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
SIZE, STOP = 5000, 5
NONE: dict[str, Any] = {"permute": 0.0, "infill": 0.0, "random": 0.0}


def rows(lengths: list[int], width: int, seed: int = 0, stops: float = 0.1) -> Batch:
    """All tokens of a row differ, but for the full stops; words have one to three pieces."""
    generator = torch.Generator().manual_seed(seed)
    first, step = torch.randint(1, 4993, (2, len(lengths), 1), generator=generator)
    ids = (first + step * torch.arange(width)) % 4993 + 6  # a prime: no token comes twice
    ids = torch.where(torch.rand(ids.shape, generator=generator) < stops, STOP, ids)
    words = (torch.rand(ids.shape, generator=generator) < 0.6).long()
    words[:, 1] = 1
    words, size = words.cumsum(1), torch.tensor(lengths)
    place = torch.arange(width)[None]
    ids[:, 0], words[:, 0] = ROLES["cls"], 0
    ids.scatter_(1, size[:, None] - 1, ROLES["sep"])
    ids[place >= size[:, None]] = ROLES["pad"]
    words[place >= size[:, None] - 1] = 0
    keys = torch.from_numpy(chance.keys(seed, np.arange(len(lengths))).view(np.int64))
    return Batch(ids, size, keys=keys, words=words, full=min(lengths) == width)


def noise(**settings: Any) -> Denoising:
    return Denoising(DenoiseConfig(**settings), Vocab(SIZE, ROLES), stops=[STOP])


def source(made: Exercise, row: int) -> list[int]:
    """Without the frame."""
    ids, length = made.ids[row].tolist(), int(made.lengths[row])
    assert (ids[0], ids[length - 1]) == (ROLES["cls"], ROLES["sep"])
    assert ids[length:] == [ROLES["pad"]] * (len(ids) - length)
    return ids[1 : length - 1]


def text_of(batch: Batch, row: int) -> list[int]:
    return batch.ids[row, 1 : int(batch.lengths[row]) - 1].tolist()


# ---- infilling -------------------------------------------------------------------------------------------------------


def one_by_one(text: list[int], starts: list[bool], key: int, rate: float, mean: float) -> list[int]:
    """Spans of words, in the order of fairseq's steps."""
    draw = lambda name, count: chance.uniform(np.array([key], dtype=np.int64).view(np.uint64), name, count)[0]  # noqa: E731
    words = [place for place, start in enumerate(starts) if start]
    budget = math.ceil(len(words) * rate - 1e-9)
    if budget == 0:
        return text
    law, lengths = np.cumsum(poisson(mean)), []
    for luck in draw("denoise.length", 500):
        if sum(lengths) >= budget:
            break
        lengths.append(min(int(np.searchsorted(law[:-1], luck, side="right")), budget - sum(lengths)))
    spans = [length for length in lengths if length > 0]
    begins = np.argsort(draw("denoise.begin", len(words)), kind="stable")[: len(spans)]
    keep, found = [True] * len(text), list(text)
    for word, length in zip(begins, spans, strict=True):
        found[words[word]] = ROLES["mask"]
        end = words[word + length] if word + length < len(words) else len(text)
        for place in range(words[word] + 1, end):
            keep[place] = False
    left = [token for token, kept in zip(found, keep, strict=True) if kept]
    inserts = min(len(lengths) - len(spans), len(text) - len(left))
    places = set(np.argsort(draw("denoise.insert", len(left) + inserts), kind="stable")[:inserts].tolist())
    rest = iter(left)
    return [ROLES["mask"] if place in places else next(rest) for place in range(len(left) + inserts)]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(2, 50), min_size=1, max_size=6),
    st.sampled_from([0.3, 0.1, 0.8, 1.0]),
    st.sampled_from([3.0, 0.5, 8.0]),
    st.booleans(),
    st.integers(0, 2**31),
)
def test_infilling_is_that_of_the_loop_over_each_row(
    lengths: list[int], rate: float, mean: float, whole: bool, seed: int
) -> None:
    batch = rows(lengths, max(lengths), seed)
    assert batch.keys is not None
    assert batch.words is not None
    made = noise(permute=0.0, random=0.0, infill=rate, mean=mean, whole_words=whole)(batch)
    for row, length in enumerate(lengths):
        text, words = text_of(batch, row), batch.words[row, : length - 1].tolist()
        starts = [not whole or a != b for a, b in pairwise(words)]
        assert source(made, row) == one_by_one(text, starts, int(batch.keys[row]), rate, mean)


def test_a_line_without_spaces_is_not_hidden_whole() -> None:
    """A line of DNA is one word: all of it was missing, and a lone mask left."""
    batch = rows([60] * 50, 60)
    real = torch.arange(60) < 59
    one = replace(batch, words=(real & (torch.arange(60) > 0)).long().expand(50, 60).contiguous())
    whole, pieces = (noise(permute=0.0, whole_words=whole)(one) for whole in (True, False))
    assert torch.equal(whole.ids, pieces.ids)
    assert int(whole.lengths.min()) > 40


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(2, 50), min_size=1, max_size=6), st.sampled_from([0.3, 0.7]), st.integers(0, 2**31))
def test_masks_stand_where_words_are_missing(lengths: list[int], rate: float, seed: int) -> None:
    """What is left is in order; words are missing whole; no source is longer than its text; the target is the text."""
    batch = rows(lengths, max(lengths), seed, stops=0.0)
    assert batch.words is not None
    made = noise(permute=0.0, random=0.0, infill=rate)(batch)
    for row, length in enumerate(lengths):
        text, found = text_of(batch, row), source(made, row)
        left = [token for token in found if token != ROLES["mask"]]
        pattern = "".join(r"(\d+ )*" if token == ROLES["mask"] else f"{token} " for token in found)
        assert re.fullmatch(pattern, "".join(f"{token} " for token in text))
        gone: dict[int, set[bool]] = {}
        for token, word in zip(text, batch.words[row, 1 : length - 1].tolist(), strict=True):
            gone.setdefault(word, set()).add(token in left)
        assert all(len(kinds) == 1 for kinds in gone.values())
        assert sum(kinds == {False} for kinds in gone.values()) <= math.ceil(rate * len(gone))
        assert int(made.lengths[row]) <= length
        assert made.labels[row, :length].tolist() == batch.ids[row, :length].tolist()
        assert made.labels[row, length:].eq(IGNORE).all()


def test_the_law_of_the_lengths() -> None:
    assert poisson(3.0) == pytest.approx(exact_poisson.pmf(np.arange(len(poisson(3.0))), 3.0), abs=1e-7)
    assert poisson(3.5)[-1] < 1e-7 < poisson(3.5)[-2]
    for seed in range(3):
        keys = torch.from_numpy(chance.keys(seed, np.arange(4000)).view(np.int64))
        spans, inserts = noise(infill=0.3)._lengths(torch.full((4000, 1), 40), keys)
        assert spans.sum(1).eq(40).all()
        number = (spans > 0).sum(1)
        drawn = spans[torch.arange(spans.shape[1])[None] < number[:, None] - 1]  # the last one is shortened
        counts = torch.bincount(drawn, minlength=9)[1:9].double().numpy()
        law = exact_poisson.pmf(np.arange(1, 9), 3.0)
        # long spans stop a row early and so are a little rarer among those that are not its last
        assert counts / counts.sum() == pytest.approx(law / law.sum(), abs=0.02)
        # spans of none: one for each e^-3 / (1 - e^-3) of the others
        assert float(inserts.double().mean() / number.double().mean()) == pytest.approx(1 / math.expm1(3.0), abs=0.006)


def test_real_text() -> None:
    """Docstrings: nearly 30 % of the words are missing, one mask for three of them; the order of sentences is gone."""
    names = {".": 0}
    words = [w for _, text in documents(200_000) for w in re.findall(r"\w+|[^\w\s]", text)]
    ids = torch.tensor([5 + names.setdefault(word, len(names)) for word in words])
    body = ids[: len(ids) // 126 * 126].view(-1, 126)
    batch = Batch(
        F.pad(F.pad(body, (1, 0), value=2), (0, 1), value=3),
        torch.full((len(body),), 128),
        keys=torch.from_numpy(chance.keys(7, np.arange(len(body))).view(np.int64)),
        full=True,
    )
    vocab = Vocab(5 + len(names), ROLES)
    config = DenoiseConfig(whole_words=False, random=0.0)
    made = Denoising(config, vocab, stops=[5])(batch)
    masks = (made.ids == ROLES["mask"]).sum(1).double()
    gone = 128 - made.lengths.double() + masks
    assert len(body) > 200
    assert 0.22 < float(gone.mean()) / 126 < 0.3  # spans that overlap lose some of it
    assert 2.3 < float(gone.sum() / masks.sum()) < 3.2
    still = Denoising(replace(config, permute=0.0), vocab)(batch)
    assert float((made.ids[:, 1:40] == still.ids[:, 1:40]).double().mean()) < 0.4
    assert not made.full
    assert torch.equal(made.labels, batch.ids)


def test_some_masks_are_random_tokens() -> None:
    batch = rows([60] * 2000, 60)
    for mean, kept in ((30.0, 0.9), (3.0, 0.9)):
        made = noise(permute=0.0, infill=0.3, mean=mean, whole_words=False)(batch)
        plain = noise(permute=0.0, infill=0.3, mean=mean, whole_words=False, random=0.0)(batch)
        assert torch.equal(made.lengths, plain.lengths)
        masks = plain.ids == ROLES["mask"]
        assert torch.equal(made.ids[~masks], plain.ids[~masks])
        share = float((made.ids[masks] == ROLES["mask"]).double().mean())
        # of the masks that are put in, 1 in 20 or so at mean 3, fairseq makes ceil(0.1 n) random: nearly all
        assert share == pytest.approx(kept - (0.045 if mean == 3.0 else 0.0), abs=0.015)
    drawn = made.ids[masks & (made.ids != ROLES["mask"])]
    assert 0.9 < float(drawn.double().mean()) / (SIZE / 2) < 1.1


# ---- sentences -------------------------------------------------------------------------------------------------------


def sentences(text: list[int]) -> list[list[int]]:
    """One ends at the first of several stops; the last token ends one too, unless a stop stands before it."""
    found: list[list[int]] = [[]]
    for place, token in enumerate(text):
        found[-1].append(token)
        if (token == STOP or place == len(text) - 1) and not (place and text[place - 1] == STOP):
            found.append([])
    return found  # the last one, if it has a token, stays where it is


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(2, 40), min_size=1, max_size=6), st.sampled_from([0.3, 0.1, 0.0]), st.integers(0, 2**31))
def test_sentences_change_places(lengths: list[int], stops: float, seed: int) -> None:
    batch = rows(lengths, max(lengths), seed, stops)
    made = noise(permute=1.0, infill=0.0)(batch)
    for row in range(len(lengths)):
        *before, tail = sentences(text_of(batch, row))
        found = source(made, row)
        assert found[len(found) - len(tail) :] == tail
        rest = found[: len(found) - len(tail)]
        todo = [tuple(sentence) for sentence in before]
        while rest:  # the sentences, whole, in some order
            options = [s for s in todo if tuple(rest[: len(s)]) == s]
            best = max(options, key=len)
            todo.remove(best)
            rest = rest[len(best) :]
        assert not todo


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_all_orders_are_equally_likely(seed: int) -> None:
    count = 12_000
    ids = torch.tensor([2, 10, STOP, 11, 11, STOP, 12, STOP, 13, 13, 3]).expand(count, -1)
    keys = torch.from_numpy(chance.keys(seed, np.arange(count)).view(np.int64))
    batch = Batch(ids, torch.full((count,), 11), keys=keys, full=True)
    orders = Counter(
        tuple(dict.fromkeys(t for t in row if t >= 10)) for row in noise(permute=1.0, infill=0.0)(batch).ids.tolist()
    )
    assert len(orders) == 24
    assert chisquare(list(orders.values())).pvalue > 1e-4
    half = Counter(
        tuple(dict.fromkeys(t for t in row if t >= 10)) for row in noise(permute=0.5, infill=0.0)(batch).ids.tolist()
    )  # 2 of 4 are drawn, and in half of the rows they change places: all 6 swaps alike
    assert set(half) == {o for o in orders if sum(a != b for a, b in zip(o, (10, 11, 12, 13), strict=True)) in (0, 2)}
    assert half[10, 11, 12, 13] / count == pytest.approx(0.5, abs=0.02)
    assert chisquare([n for order, n in half.items() if order != (10, 11, 12, 13)]).pvalue > 1e-4


# ---- the others ------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(2, 40), min_size=1, max_size=6), st.sampled_from([0.15, 0.5, 1.0]), st.integers(0, 2**31))
def test_masking_deletion_rotation(lengths: list[int], share: float, seed: int) -> None:
    batch = rows(lengths, max(lengths), seed, stops=0.0)
    masked, deleted = noise(**NONE, mask=share)(batch), noise(**NONE, delete=share)(batch)
    turned = noise(**NONE, rotate=1.0)(batch)
    for row in range(len(lengths)):
        text = text_of(batch, row)
        count = math.ceil(len(text) * share - 1e-9)
        found = source(masked, row)
        assert sum(a != b for a, b in zip(text, found, strict=True)) == found.count(ROLES["mask"]) == count
        found = source(deleted, row)
        assert len(found) == len(text) - count
        assert found == [token for token in text if token in found]
        found = source(turned, row)
        assert found in [text[n:] + text[:n] for n in range(len(text) + 1)]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_which_tokens_and_where_it_turns(seed: int) -> None:
    batch = rows([12] * 20_000, 12, seed, stops=0.0)
    masked = noise(**NONE, mask=0.3)(batch).ids[:, 1:-1] == ROLES["mask"]
    assert masked.sum(1).eq(3).all()
    assert masked.double().mean(0).numpy() == pytest.approx(np.full(10, 0.3), abs=0.015)
    turned = noise(**NONE, rotate=0.4)(batch).ids
    first = (batch.ids[:, 1:-1] == turned[:, 1:2]).long().argmax(1)
    law = np.full(10, 0.4 / 11)
    law[0] += 0.6 + 0.4 / 11  # fairseq draws the end of the text too, which is where it begins
    assert chisquare(torch.bincount(first, minlength=10).numpy(), law * 20_000).pvalue > 1e-4


def test_a_row_is_corrupted_alone_as_in_company() -> None:
    corruption = noise(mask=0.1, delete=0.1, rotate=0.5)  # everything at once
    lengths = [48, 9, 31, 3, 2]
    for seed in range(5):
        batch = rows(lengths, 48, seed)
        assert batch.keys is not None
        assert batch.words is not None
        made = corruption(batch)
        assert made.ids.shape == batch.ids.shape
        dirty = batch.ids.clone()
        dirty[torch.arange(48)[None] >= batch.lengths[:, None]] = STOP
        assert torch.equal(corruption(replace(batch, ids=dirty)).ids, made.ids)
        for row, length in enumerate(lengths):
            here = slice(row, row + 1)
            alone = corruption(
                Batch(batch.ids[here, :length], batch.lengths[here], batch.keys[here], words=batch.words[here, :length])
            )
            assert source(alone, 0) == source(made, row)
        assert not torch.equal(corruption(replace(batch, keys=batch.keys + 1)).ids, made.ids)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the other device is a GPU")
def test_a_gpu_draws_the_same() -> None:
    corruption, batch = noise(mask=0.1, delete=0.1, rotate=0.5), rows([48, 9, 31, 3, 2], 48)
    made, there = corruption(batch), corruption(batch.to(torch.device("cuda")))
    assert torch.equal(made.ids, there.ids.cpu())
    assert torch.equal(made.labels, there.labels.cpu())


def test_the_objective_tells_the_whole_text() -> None:
    denoise = Seq2Seq("denoise", DecoderHead(8, SIZE), start=3, pad=0, corruption=noise())
    assert denoise.needs_words
    batch = rows([20, 9], 20)
    after = denoise.corrupt(batch)
    assert after.outputs is not None
    assert after.outputs[0].tolist() == [3, *batch.ids[0, :-1].tolist()]
    assert after.outputs[1].tolist() == [3, *batch.ids[1, :8].tolist(), *[0] * 11]
    assert after.words is None  # those of the text
    assert int(after.targets["denoise"].count()) == 29


def test_pieces_that_end_a_sentence() -> None:
    tokens = ["[PAD]", ".", "Ġ.", "##!", "▁?", "...", "a.", "", "▁", "#", "。", "Ġ", "x", "?!"]
    assert [tokens[id] for id in stop_ids(tokens)] == [".", "Ġ.", "##!", "▁?", "...", "。", "?!"]


def test_stops_of_a_vocabulary_of_bytes_are_found() -> None:
    tokenizer = train_tokenizer(["यह है। 你好。再见。 He said so. Yes!"] * 50, "bpe", 600)
    shown = {tokenizer.shown(id) for id in vocab_of(tokenizer).stops}
    assert {".", "!", "?", "。"} <= shown <= {".", "!", "?", "。", "।"}


def test_what_it_needs() -> None:
    bare = Vocab(SIZE, {name: id for name, id in ROLES.items() if name != "mask"})
    with pytest.raises(SesameError, match="needs a mask token"):
        Denoising(DenoiseConfig(), bare, stops=[STOP])
    with pytest.raises(SesameError, match=r"objectives\.denoise\.permute=0"):
        Denoising(DenoiseConfig(), Vocab(SIZE, ROLES))
    for wrong in ({"infill": 1.2}, {"random": -0.1}, {"mean": 0.0}, {"mean": 90.0}, NONE):
        with pytest.raises(SesameError, match=r"objectives\.denoise"):
            DenoiseConfig(**wrong)
