"""What can be asked of a search, on tables of chance: rules, draws, ensembles, scores, mistakes."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from sesame.errors import SesameError
from sesame.generate import Ensemble, Judged, Settings, generate, judge, perplexity, top
from sesame.generate.sample import filtered
from tests.generate.reference import table_of
from tests.generate.speakers import Toy, sources

END = 0
ROWS = [[4, 1, 5], [1], [6, 2], [3, 3, 3, 3]]


@pytest.mark.parametrize("seed", range(3))
def test_greedy_takes_the_likeliest_and_computes_nothing_for_finished_texts(seed: int) -> None:
    toy = Toy(9, seed, end=END, lift=2.0)
    found = generate(toy, sources(ROWS), Settings(most=30), END)
    assert toy.rows == sum(some[0].length for some in found)
    for row, (one,) in zip(ROWS, found, strict=True):
        said: tuple[int, ...] = ()
        for id in [*one.ids, END][: one.length]:
            assert id == int(table_of(toy, row[0], said).argmax())
            said = (*said, id)
        assert (one.end == END) == (one.length < 30)


@pytest.mark.parametrize("beams", [1, 3])
def test_scores_are_those_of_the_judge(beams: int) -> None:
    toy, batch = Toy(9, 1, end=END, lift=1.0), sources(ROWS)
    settings = Settings(beams=beams, best=beams, most=8, alpha=0.6, penalty="gnmt")
    found = generate(toy, batch, settings, END)
    texts = [[one.ids + [END] * (one.end is not None) for one in some] for some in found]
    for some, judged in zip(found, judge(toy, batch, texts), strict=True):
        for one, opinion in zip(some, judged, strict=True):
            assert opinion.logprob == pytest.approx(one.logprob, abs=1e-12)
            assert one.score == pytest.approx(one.logprob / ((5 + one.length) / 6) ** 0.6, abs=1e-12)


def test_judge_by_definition() -> None:
    toy = Toy(5, 2)
    texts = [[[1, 2], []], [], [[3]], [[4, 4, 4]]]
    judged = judge(toy, sources(ROWS), texts, end=END)
    for row, some, opinions in zip(ROWS, texts, judged, strict=True):
        for ids, opinion in zip(some, opinions, strict=True):
            whole = [*ids, END]
            wanted = [float(table_of(toy, row[0], tuple(whole[:at]))[id].log()) for at, id in enumerate(whole)]
            assert opinion.tokens == pytest.approx(wanted)
    every = [one for some in judged for one in some]
    assert perplexity(every) == pytest.approx(math.exp(-sum(one.logprob for one in every) / 10))
    assert perplexity([Judged([math.log(0.25)] * 3)]) == pytest.approx(4)
    assert judge(toy, sources([[1]]), [[[]]]) == [[Judged([])]]


@pytest.mark.parametrize("wishes", [{}, {"beams": 4, "best": 2}, {"sample": True, "best": 3}])
def test_a_forced_prefix_begins_every_text_and_costs_nothing(wishes: dict[str, Any]) -> None:
    toy, batch, prefix = Toy(9, 1, end=END, lift=2.0), sources(ROWS), [[5, 6], [], [7, 7, 8], [2]]
    found = generate(toy, batch, Settings(most=9, **wishes), END, prefix=prefix)
    for source, (some, forced) in enumerate(zip(found, prefix, strict=True)):
        for one in some:
            assert one.ids[: len(forced)] == forced
            whole = one.ids + [END] * (one.end is not None)
            ((opinion,),) = judge(toy, sources([ROWS[source]]), [[whole]])
            assert one.logprob == pytest.approx(sum(opinion.tokens[len(forced) :]))


@pytest.mark.parametrize("wishes", [{}, {"beams": 3, "best": 3}, {"sample": True}])
def test_where_nothing_may_follow_texts_are_cut(wishes: dict[str, Any]) -> None:
    """Four tokens, none twice, no end."""
    for most in (5, 9):
        found = generate(Toy(4, 1), sources(ROWS), Settings(most=most, no_repeat=1, **wishes), [])
        assert all(some for some in found)
        assert all(sorted(one.ids) == [0, 1, 2, 3] and one.end is None for some in found for one in some)


def test_several_end_tokens_and_none() -> None:
    toy = Toy(9, 4)
    found = generate(toy, sources(ROWS), Settings(beams=4, most=12, alpha=0.0), {2, 7, 8})
    assert {some[0].end for some in found} <= {2, 7, 8}
    assert not any({2, 7, 8} & set(some[0].ids) for some in found)
    assert all(some[0].length == 6 for some in generate(toy, sources(ROWS), Settings(beams=2, most=6), ()))
    assert generate(toy, sources(ROWS).map(lambda some: some[:0]), Settings(), END) == []


# ---- draws ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("wishes", [{}, {"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.7, "temperature": 1.5}])
def test_samples_follow_the_probabilities(seed: int, wishes: dict[str, Any]) -> None:
    toy, count = Toy(6, seed, sharp=1.0), 4000
    found = generate(toy, sources([[5]]), Settings(sample=True, best=count, most=1, seed=seed, **wishes), [])[0]
    seen = torch.bincount(torch.tensor([one.ids[0] for one in found]), minlength=6) / count
    wanted = filtered(toy.logits(5, ())[None], Settings(sample=True, **wishes)).softmax(1)[0]
    assert (seen - wanted).abs().max() < 4.5 * 0.5 / count**0.5
    assert seen[wanted == 0].sum() == 0


def test_a_draw_belongs_to_its_source() -> None:
    """Its company does not matter, its key and the seed do; a second sample leaves the first as it was."""
    toy, settings = Toy(9, 1, sharp=1.0, end=END, lift=1.0), Settings(sample=True, best=3, most=12, seed=5)
    together = generate(toy, sources(ROWS, keys=[11, -12, 13, 14]), settings, END)
    for row, key, some in zip(ROWS, [11, -12, 13, 14], together, strict=True):
        assert generate(toy, sources([row], keys=[key]), settings, END) == [some]
        assert generate(toy, sources([row], keys=[key]), Settings(sample=True, most=12, seed=5), END) == [some[:1]]
    same = sources([[4]] * 20, keys=[7] * 20)
    assert len({tuple(some[0].ids) for some in generate(toy, same, settings, END)}) == 1
    assert len({tuple(some[0].ids) for some in generate(toy, sources([[4]] * 20), settings, END)}) > 10
    seeds = [
        generate(toy, sources([[4]]), Settings(sample=True, most=12, seed=seed), END)[0][0].ids for seed in range(9)
    ]
    assert len({tuple(ids) for ids in seeds}) > 5


@given(st.integers(0, 10**6), st.floats(0.01, 0.999), st.sampled_from([3, 300, 3000]))
@hypothesis_settings(max_examples=40, deadline=None)
def test_the_nucleus_is_the_smallest_set(seed: int, share: float, vocab: int) -> None:
    luck = torch.Generator().manual_seed(seed)
    logits = torch.randn(3, vocab, generator=luck, dtype=torch.float64)
    for row, kept in zip(
        logits.softmax(1), filtered(logits, Settings(sample=True, top_p=share)) > -math.inf, strict=True
    ):
        least = row[kept].min()
        assert row[kept].sum() >= share - 1e-9
        assert row[kept].sum() - least < share
        assert (row[~kept] < least).all()


# ---- the vocabulary in pieces ---------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.sampled_from([4096, 4097, 5000]), st.integers(1, 4), st.integers(1, 40))
@hypothesis_settings(max_examples=25, deadline=None)
def test_pieces_find_what_a_plain_search_finds(seed: int, vocab: int, n: int, count: int) -> None:
    luck = torch.Generator().manual_seed(seed)
    logits = torch.randn(3 * n, vocab + 60, generator=luck, dtype=torch.float64)[:, :vocab]  # a table with padding
    logits[:, 5] = -math.inf
    running = -torch.rand(3, n, generator=luck, dtype=torch.float64)
    running[0, n // 2 + 1 :] = -math.inf
    found = top.continuations(logits, top.normalizers(logits), running, count)
    every = (running.view(-1, 1) + logits.log_softmax(1)).view(3, n * vocab)
    values, at = every.topk(count, 1)
    assert torch.allclose(found[0], values, rtol=0, atol=1e-12)
    assert torch.equal(found[1] * vocab + found[2], at)


# ---- ensembles ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wishes", [{}, {"beams": 4, "best": 2, "coverage": 0.3}, {"sample": True, "best": 2}])
@pytest.mark.parametrize("mean", ["probabilities", "log-probabilities"])
def test_an_ensemble_of_one_is_the_one(wishes: dict[str, Any], mean: Any) -> None:
    toy, settings = Toy(9, 1, end=END, lift=1.0), Settings(most=8, **wishes)
    alone = generate(toy, sources(ROWS), settings, END)
    assert generate(Ensemble([toy], mean), sources(ROWS), settings, END) == alone
    for some, others in zip(generate(Ensemble([toy, toy], mean), sources(ROWS), settings, END), alone, strict=True):
        assert [one.ids for one in some] == [one.ids for one in others]
        assert [one.score for one in some] == pytest.approx([one.score for one in others])


def test_means_of_an_ensemble_by_definition() -> None:
    toys = [Toy(6, seed) for seed in range(3)]
    parts = torch.stack([table_of(toy, 4, ()) for toy in toys])
    heard = Ensemble(toys).begin(sources([[4]]), looks=True)
    assert torch.allclose(heard.logits[0].softmax(0), parts.mean(0))
    assert heard.looked is not None
    assert heard.looked.sum() == pytest.approx(1)
    geometric = Ensemble(toys, "log-probabilities").begin(sources([[4]])).logits[0].softmax(0)
    assert torch.allclose(geometric, parts.log().mean(0).softmax(0))
    assert not torch.allclose(geometric, parts.mean(0), atol=1e-3)


# ---- mistakes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wishes", "says"),
    [
        ({"beams": 0}, "generate.beams is 0"),
        ({"most": 0}, "generate.most is 0"),
        ({"fewest": 5, "most": 5}, "no room for the end token"),
        ({"best": 3, "beams": 2}, "set beams to 3"),
        ({"sample": True, "beams": 2}, "set generate.best"),
        ({"top_k": 5}, "set generate.sample"),
        ({"sample": True, "temperature": 0.0}, "temperature is 0.0"),
        ({"sample": True, "top_p": 1.5}, "top_p is 1.5"),
        ({"coverage": 0.2}, "generate.beams to 2"),
        ({"coverage": -1.0}, "coverage is -1.0"),
        ({"alpha": math.nan}, "alpha is nan"),
        ({"penalty": "wu"}, "plain, gnmt"),
        ({"early": "soon"}, "provable, full, present, never"),
        ({"no_repeat": -1}, "no_repeat is -1"),
    ],
)
def test_settings_that_make_no_sense(wishes: dict[str, Any], says: str) -> None:
    with pytest.raises(SesameError, match=says):
        Settings(**wishes)


class Deaf(Toy):
    def _looked(self, memory: Any, at: Any) -> Any:
        return None


@pytest.mark.parametrize(
    ("settings", "more", "says"),
    [
        (Settings(), {"end": 9}, "9 is no token"),
        (Settings(never=(-1,)), {}, "-1 is no token"),
        (Settings(), {"prefix": [[1]]}, "1 forced prefixes for 4 sources"),
        (Settings(most=2), {"prefix": [[1, 2], [], [], []]}, "leaves none to say"),
        (Settings(), {"prefix": [[], [1, END], [], []]}, "source 2 holds the end token"),
        (Settings(), {"prefix": [[99], [], [], []]}, "source 1: 99"),
        (Settings(force_end=True), {"end": [1, 2]}, "one end token"),
        (Settings(), {"luck": lambda *some: some}, "does not draw"),
        (Settings(beams=2, coverage=0.1), {}, "looks at a source"),
    ],
)
def test_requests_that_do_not_fit(settings: Settings, more: dict[str, Any], says: str) -> None:
    with pytest.raises(SesameError, match=says):
        generate(Deaf(9), sources(ROWS), settings, **({"end": END} | more))


def test_broken_models_and_texts() -> None:
    toy = Toy(9)
    toy.table[:] = math.nan
    with pytest.raises(SesameError, match="NaN"):
        generate(toy, sources(ROWS), Settings(), END)
    with pytest.raises(SesameError, match="source 2 has a token beyond"):
        judge(Toy(9), sources(ROWS), [[[1]], [[2], [9]], [], []])
    with pytest.raises(SesameError, match="texts for 1 sources"):
        judge(Toy(9), sources(ROWS), [[[1]]])
    with pytest.raises(SesameError, match="no token"):
        perplexity([Judged([])])
    with pytest.raises(SesameError, match="9, 8 tokens"):
        Ensemble([Toy(9), Toy(8)])
    with pytest.raises(SesameError, match="no model"):
        Ensemble([])
