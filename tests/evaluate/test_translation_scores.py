"""Equal to sacrebleu, with intervals like its own; figures by hand; mistakes as sentences."""

import random
import sys
from typing import Any

import numpy as np
import pytest

from sesame.errors import SesameError
from sesame.evaluate.translation import (
    Bleu,
    ChrF,
    CorpusScore,
    compare_systems,
    corpus_score,
    references,
    sentence_chrf,
)

sacrebleu: Any = pytest.importorskip("sacrebleu")
WORDS = ["the", "a", "cat,", "Dog", "house.", "Über", "сидит", "你好", "3.14", "(and)", "it's", "cat"]


def texts(seed: int, count: int = 60) -> tuple[list[str], list[str], list[str]]:
    """References, a good and a worse translation of them."""
    rng = random.Random(seed)
    gold = [" ".join(rng.choices(WORDS, k=rng.randrange(4, 20))) for _ in range(count)]
    good, bad = (
        [" ".join(w if rng.random() > p else rng.choice(WORDS) for w in one.split()) for one in gold]
        for p in (0.2, 0.5)
    )
    return gold, good, bad


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("tokenizer", ["13a", "intl", "zh", "char", "none"])
def test_bleu_equals_sacrebleu(tokenizer: str, lowercase: bool, seed: int) -> None:
    gold, good, _ = texts(seed)
    found = corpus_score(Bleu(tokenizer, lowercase), gold, good)
    wanted = sacrebleu.corpus_bleu(good, [gold], tokenize=tokenizer, lowercase=lowercase, force=True)
    assert (found.name, found.value, found.low) == ("BLEU", pytest.approx(wanted.score / 100), None)
    for part in (f"tok:{tokenizer}|", "smooth:exp", f"case:{'lc' if lowercase else 'mixed'}", "nrefs:1"):
        assert part in found.signature


@pytest.mark.parametrize("words", [0, 2])
def test_chrf_equals_sacrebleu(words: int) -> None:
    gold, good, _ = texts(3)
    found = corpus_score(ChrF(words), gold, good)
    wanted = sacrebleu.corpus_chrf(good, [gold], word_order=words)
    assert found.value == pytest.approx(wanted.score / 100)
    assert found.name == ("chrF2++" if words else "chrF2")
    assert f"nw:{words}" in found.signature
    each = sentence_chrf(gold, good, ChrF(words))
    assert each == pytest.approx(
        [sacrebleu.sentence_chrf(a, [b], word_order=words).score / 100 for a, b in zip(good, gold, strict=True)]
    )


def test_by_hand() -> None:
    """Precisions 5/6, 3/5, 1/4, 0/3 and equal lengths; then all right, but a word fewer than the reference."""
    found = corpus_score(Bleu(), ["the cat is on the mat"], ["the cat is in the mat"])
    assert found.value == pytest.approx((5 / 6 * 3 / 5 * 1 / 4 * (1 / 2) / 3) ** 0.25)  # exp: 0/3 is (1/2)/3
    found = corpus_score(Bleu(), ["the cat is on the mat"], ["the cat is on the"])
    assert found.value == pytest.approx(np.exp(1 - 6 / 5))
    assert corpus_score(Bleu(), ["a b c d e"], ["a b c d e"]).value == pytest.approx(1.0)
    assert corpus_score(Bleu(), ["a"], [""]).value == 0.0


def test_several_references_by_example() -> None:
    gold, good, bad = texts(4)
    both = [[one, other] for one, other in zip(gold, bad, strict=True)]
    found = corpus_score(Bleu(), both, good)
    assert found.value == pytest.approx(sacrebleu.corpus_bleu(good, [gold, bad], force=True).score / 100)
    assert "nrefs:2" in found.signature
    both[3] = [gold[3]]
    uneven = [*bad[:3], None, *bad[4:]]
    for how, wanted in (
        (Bleu(), sacrebleu.corpus_bleu(good, [gold, uneven], force=True)),
        (ChrF(), sacrebleu.corpus_chrf(good, [gold, uneven])),
    ):
        found = corpus_score(how, both, good, rounds=20)
        assert found.value == pytest.approx(wanted.score / 100)
        assert "nrefs:var" in found.signature


@pytest.mark.parametrize("how", [Bleu(), Bleu(smoothing="add-k"), ChrF(), ChrF(2)])
def test_intervals_are_like_those_of_sacrebleu(how: Bleu | ChrF) -> None:
    gold, good, _ = texts(5, 100)
    found = corpus_score(how, gold, good, rounds=400, seed=1)
    assert found.low is not None
    assert found.high is not None
    if isinstance(how, Bleu):
        oracle = sacrebleu.BLEU(smooth_method=how.smoothing, force=True)
    else:
        oracle = sacrebleu.CHRF(word_order=how.words)
    half = oracle.corpus_score(good, [gold], n_bootstrap=400)._ci / 100
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.2)
    assert found.low < found.value < found.high
    assert found == corpus_score(how, gold, good, rounds=400, seed=1)
    assert found != corpus_score(how, gold, good, rounds=400, seed=2)


@pytest.mark.parametrize("how", [Bleu(), ChrF()])
@pytest.mark.parametrize("seed", range(3))
def test_two_systems(how: Bleu | ChrF, seed: int) -> None:
    gold, good, bad = texts(seed)
    found = compare_systems(how, gold, good, bad, rounds=200, seed=seed)
    gap = corpus_score(how, gold, good).value - corpus_score(how, gold, bad).value
    assert found["difference"] == pytest.approx(gap)
    assert 0 < found["low"] < gap < found["high"]
    assert found["p"] < 0.01
    assert compare_systems(how, gold, good, good, rounds=50)["p"] == 1.0
    mixed = [one if at % 2 else other for at, (one, other) in enumerate(zip(good, bad, strict=True))]
    turned = [other if at % 2 else one for at, (one, other) in enumerate(zip(good, bad, strict=True))]
    assert compare_systems(how, gold, mixed, turned, rounds=200)["p"] > 0.01


def test_the_worst_come_first() -> None:
    gold = ["the cat sleeps", "the dog barks", "it rains"]
    said = ["the cat sleeps", "a dog barked", "completely other"]
    scores = sentence_chrf(gold, said)
    assert sorted(range(3), key=scores.__getitem__) == [2, 1, 0]
    assert scores[0] == pytest.approx(1.0)


def test_what_is_printed() -> None:
    score = CorpusScore("BLEU", 0.3812, 0.37, 0.391, "nrefs:1|tok:13a")
    assert str(score) == "BLEU 38.12 (95 % of resamples: 37.00 to 39.10)  BLEU|nrefs:1|tok:13a"
    assert str(CorpusScore("chrF2", 0.5, None, None, "nrefs:1")) == "chrF2 50.00  chrF2|nrefs:1"


def test_tokenized_and_blank_texts_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    corpus_score(Bleu(), ["It rains.", "So.", ""], ["It rains .", "So .", "x"])
    line = capsys.readouterr().err
    assert "2 of 3 translations" in line
    assert "1 of 3 examples have a blank reference, the first is example 3" in line
    corpus_score(Bleu(), ["It rains.", "So."], ["It rains.", "So ."])
    assert not capsys.readouterr().err


def test_mistakes_are_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SesameError, match="2 examples but 1 answers"):
        corpus_score(Bleu(), ["a", "b"], ["a"])
    with pytest.raises(SesameError, match="1 examples but 2 answers"):
        compare_systems(ChrF(), ["a"], ["a"], ["a", "b"])
    with pytest.raises(SesameError, match="nothing to score"):
        sentence_chrf([], [])
    with pytest.raises(SesameError, match="example 2 has no reference"):
        references([["a"], []], ["a", "b"])
    with pytest.raises(SesameError, match="list of texts"):
        corpus_score(Bleu(), ["a"], "a")
    with pytest.raises(SesameError, match="no tokenizer 'moses' here; choose one of 13a, intl, zh"):
        Bleu("moses")
    with pytest.raises(SesameError, match="no smoothing 'more'"):
        Bleu(smoothing="more")
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics.bleu", None)
    with pytest.raises(SesameError, match="pip install sacrebleu"):
        corpus_score(Bleu(), ["a"], ["a"])


@pytest.mark.parametrize(
    ("how", "gold", "told"),
    [
        (Bleu(), "这只狗 ran 在睡觉。", True),
        (Bleu("zh"), "这只狗在睡觉。", False),
        (Bleu(), "개가 자고 있다.", False),
        (Bleu(), "собака спит", False),
        (Bleu(), "ของ ครับ", True),
        (Bleu(), "...", False),
    ],
)
def test_scripts_without_spaces_are_told(how: Bleu, gold: str, told: bool, capsys: pytest.CaptureFixture[str]) -> None:
    corpus_score(how, [gold], [gold])
    assert ("go by chrF" in capsys.readouterr().err) == told
