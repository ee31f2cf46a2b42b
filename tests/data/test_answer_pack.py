"""Pairs as sources and answers; batches of similar length that are a pure function of seed and step."""

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sesame import chance
from sesame.backbones import EncoderDecoder, EncoderDecoderConfig
from sesame.data.answer_pack import AnswerPacker, BucketLoader, bucketed, plan_batches
from sesame.data.batch import IGNORE, Batch
from sesame.data.build import build_pairs
from sesame.data.loader import Loader
from sesame.data.pack import Specials
from sesame.data.parts import hold_out
from sesame.errors import SesameError
from sesame.objectives import Vocab, build
from sesame.objectives.model import Model
from sesame.objectives.seq2seq import Seq2SeqConfig
from sesame.train.step import count_targets, step_loss
from tests.languages import word_tokenizer

WORDS = [f"w{chr(97 + i)}" for i in range(20)]


def pairs(folder: Path, count: int = 200, longest: int = 9) -> tuple[AnswerPacker, list[tuple[list[int], list[int]]]]:
    rng = np.random.default_rng(0)
    rows = [
        (rng.integers(0, 20, rng.integers(1, longest)), rng.integers(0, 20, rng.integers(1, longest)))
        for _ in range(count)
    ]
    text = "".join("\t".join(" ".join(WORDS[i] for i in side) for side in row) + "\n" for row in rows)
    (folder / "pairs.tsv").write_text(text)
    tokenizer = word_tokenizer(WORDS)
    store = build_pairs([folder / "pairs.tsv"], ("en", "de"), tokenizer, folder / "cache")
    packer = AnswerPacker(hold_out(store, 0, 0.0)[0], 16, Specials(2, 3, 0))
    return packer, [([int(i) + 5 for i in a], [int(i) + 5 for i in b]) for a, b in rows]


def keys(rows: np.ndarray) -> chance.Words:
    return chance.keys(1, rows)


def test_a_row_is_its_pair(tmp_path: Path) -> None:
    packer, rows = pairs(tmp_path)
    chosen = np.array([3, 0, 117])
    batch = packer.draw(chosen, keys(chosen))
    for place, number in enumerate(chosen):
        source, answer = rows[number]
        length = int(batch.lengths[place])
        assert batch.ids[place, :length].tolist() == [*source, 3]
        assert (batch.ids[place, length:] == 0).all()
        labels = batch.targets["seq2seq"].labels[place]
        assert labels[: len(answer) + 1].tolist() == [*answer, 3]
        assert (labels[len(answer) + 1 :] == IGNORE).all()
    assert packer.source(3).endswith("pairs.tsv:4")


def test_sources_may_be_read_from_their_end(tmp_path: Path) -> None:
    packer, rows = pairs(tmp_path)
    packer.reverse = True
    batch = packer.draw(np.array([5]), keys(np.array([5])))
    assert batch.ids[0].tolist() == [*reversed(rows[5][0]), 3]
    assert batch.targets["seq2seq"].labels[0].tolist() == [*rows[5][1], 3]


def test_long_pairs_are_left_out_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packer, rows = pairs(tmp_path)
    short = AnswerPacker(packer.part, 5, packer.specials)
    kept = [row for row in rows if max(map(len, row)) <= 4]
    assert len(short) == len(kept) < len(rows)
    assert f"{len(rows) - len(kept)} of 200 pairs are left out" in capsys.readouterr().err
    with pytest.raises(SesameError, match="all pairs are longer"):
        AnswerPacker(packer.part, 1, packer.specials)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=60),
    st.integers(1, 200),
    st.integers(0, 9),
    st.booleans(),
)
def test_every_pair_is_in_one_batch_and_none_is_too_large(
    sizes: list[tuple[int, int]], most: int, seed: int, fixed: bool
) -> None:
    array = np.array(sizes)
    order, starts = plan_batches(array, most, seed, fixed)
    assert sorted(order.tolist()) == list(range(len(sizes)))
    assert starts[0] == 0
    assert starts[-1] == len(sizes)
    for begin, end in itertools.pairwise(starts):
        assert end > begin
        rows = array[order[begin:end]]
        assert rows.max() * len(rows) <= most or len(rows) == 1
        assert not fixed or len({-(-width // 8) for width in rows.max(axis=1)}) == 1


def loader(folder: Path, seed: int = 0, rank: int = 0, ranks: int = 1) -> BucketLoader:
    packer, _ = pairs(folder)
    basic = Loader(packer, 8, 8, seed, lambda batch, progress: batch, rank=rank, ranks=ranks)
    return bucketed(basic, 40, 20)


def flat(batches: list[Batch]) -> Counter[tuple[int, ...]]:
    return Counter(
        tuple(row[:length].tolist())
        for batch in batches
        for row, length in zip(batch.ids, batch.lengths.tolist(), strict=True)
    )


def test_an_epoch_reads_each_pair_once_in_another_order(tmp_path: Path) -> None:
    found = loader(tmp_path)
    steps = len(found.starts) - 1
    epochs = [[found.rows(step)[1].tolist() for step in range(first, first + steps)] for first in (0, steps)]
    for epoch in epochs:
        assert sorted(row for rows in epoch for row in rows) == list(range(200))
    assert epochs[0] != epochs[1]
    assert sorted(map(tuple, epochs[0])) == sorted(map(tuple, epochs[1]))
    assert loader(tmp_path, seed=1).rows(0)[1].tolist() != found.rows(0)[1].tolist()


def test_steps_are_cut_into_parts_that_fit(tmp_path: Path) -> None:
    found = loader(tmp_path)
    for step in range(20):
        batches = found.load(step, 0.0)
        assert sum(batch.size for batch in batches) == len(found.rows(step)[1])
        for batch in batches:
            widest = max(batch.ids.shape[1], batch.targets["seq2seq"].labels.shape[1])
            assert batch.size * widest <= 20 or batch.size == 1
        again = found.load(step, 0.0)
        assert all(torch.equal(a.ids, b.ids) for a, b in zip(batches, again, strict=True))


def test_few_shapes_for_a_gpu(tmp_path: Path) -> None:
    found = loader(tmp_path)
    found.packer.fixed = True
    found = bucketed(Loader(found.packer, 8, 8, 0, found.corrupt), 200, 10_000)
    batches = [batch for step in range(len(found.starts) - 1) for batch in found.load(step, 0.0)]
    assert {batch.ids.shape[1] for batch in batches} == {8, 16}
    assert all(batch.ids.shape == batch.targets["seq2seq"].labels.shape for batch in batches)
    assert len({batch.ids.shape for batch in batches}) <= 4 < len(batches)
    assert sum(flat(batches).values()) == 200


def test_ranks_share_a_step(tmp_path: Path) -> None:
    whole = loader(tmp_path)
    shares = [loader(tmp_path, rank=rank, ranks=2) for rank in range(2)]
    for step in range(5):
        if len(whole.rows(step)[1]) > 1:
            assert flat(whole.load(step, 0.0)) == flat(shares[0].load(step, 0.0)) + flat(shares[1].load(step, 0.0))


def test_a_rank_without_a_pair_takes_the_step_and_adds_nothing(tmp_path: Path) -> None:
    """Of 200 pairs in batches of few places some have fewer pairs than there are ranks; together these still learn each pair
    once, as one rank would alone."""
    whole = loader(tmp_path)
    shares = [loader(tmp_path, rank=rank, ranks=4) for rank in range(4)]
    sizes = [len(whole.rows(step)[1]) for step in range(len(whole.starts) - 1)]
    assert min(sizes) < 4 < max(sizes)
    torch.manual_seed(0)
    backbone = EncoderDecoder(EncoderDecoderConfig(30, 8, 1, 2, max_length=16, dropout=0.0, attention_dropout=0.0))
    vocab = Vocab(30, {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4})
    model = Model(backbone, build({"seq2seq": Seq2SeqConfig()}, backbone, vocab)).double()
    for step in (sizes.index(min(sizes)), sizes.index(max(sizes))):
        found = []
        for many in ([whole], shares):
            model.zero_grad()
            batches = [model.objective.corrupt(batch) for one in many for batch in one.load(step, 0.0)]
            assert len(batches) >= len(many)
            counts = count_targets(batches)
            for batch in batches:
                step_loss(model(batch), counts).backward()  # type: ignore[no-untyped-call]
            found.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
        torch.testing.assert_close(found[1], found[0], rtol=0, atol=1e-12)
