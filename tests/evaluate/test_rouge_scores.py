"""Equal to Google's rouge-score: figures that it printed (0.1.2, NLTK 3.10), and itself where it is installed."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sesame.errors import SesameError
from sesame.evaluate.rouge import NAMES, common, porter, rouge_each, rouge_scores
from sesame.evaluate.statistics import paired_bootstrap

FOX = "The quick brown fox jumps over the lazy dog.", "The quick brown dog jumps on the log."
GUNMAN = (
    "Police killed the gunman.\nThe gunman was running away.",
    "the gunman police killed\nkilled police, running away; running!",
)
PRINTED = [
    ("the cat sat on the mat", "the cat the cat on a mat", [0.769231, 0.181818, 0.615385, 0.615385]),
    (*FOX, [0.705882, 0.266667, 0.588235, 0.588235]),
    (*GUNMAN, [0.666667, 0.375, 0.444444, 0.666667]),
    ("w1 w2 w3 w4 w5", "w1 w2 w6 w7 w8\nw1 w3 w8 w9 w5", [0.533333, 0.153846, 0.533333, 0.533333]),
    ("a b a\nb a b", "b a\na b b a b a b", [0.8, 0.769231, 0.8, 0.8]),
    ("a b\na c", "c a", [0.666667, 0, 0.333333, 0.333333]),
    ("alone", "none", [0, 0, 0, 0]),
    ("", "a b", [0, 0, 0, 0]),
    ("a", "", [0, 0, 0, 0]),
]
SKIED = (
    "Relational databases were quickly skied over by dying employees",
    "relate the database; quick sky employee died",
)
STEMS = """caresses:caress ponies:poni dies:die flies:fli cats:cat feed:feed agreed:agre plastered:plaster motoring:motor
    sing:sing conflated:conflat troubled:troubl sized:size hopping:hop falling:fall hissing:hiss filing:file happy:happi
    enjoy:enjoy spy:spi relational:relat conditional:condit rationally:ration digitizer:digit vietnamization:vietnam
    geology:geolog hopefully:hope triplicate:triplic formative:form electricity:electr revival:reviv adjustment:adjust
    adoption:adopt communism:commun probate:probat rate:rate cease:ceas controlling:control rolling:roll dying:die
    skies:sky news:news died:die oed:o abed:abe yearly:yearli generously:gener skis:ski 1990s:1990"""


@pytest.mark.parametrize(("gold", "said", "wanted"), PRINTED)
@pytest.mark.parametrize("stem", [False, True])
def test_printed_figures(gold: str, said: str, wanted: list[float], stem: bool) -> None:
    found = rouge_each([gold], [said], stem)
    assert [found[name][0] for name in NAMES] == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize(
    ("gold", "said", "wanted"),
    [
        ("यह किताब है।", "यह कातबा हो", 1 / 3),  # vowel signs belong to their word
        ("ของ ครับ", "ของ คริบ", 1 / 2),
        ("кот-пёс_1", "КОТ пёс 1", 1.0),
        ("cafe\u0301 noir", "cafe noir", 1 / 2),
        ("спасибо \u2764\ufe0f", "пока \u2764\ufe0f", 0.0),  # the sign behind a heart that makes it red is no word
    ],
)
def test_words_of_all_alphabets(gold: str, said: str, wanted: float) -> None:
    assert rouge_each([gold], [said], letters="all")["rouge1"].tolist() == pytest.approx([wanted])


def test_stems() -> None:
    assert not any(rouge_each([SKIED[0]], [SKIED[1]])["rouge1"])
    found = rouge_each([SKIED[0]], [SKIED[1]], stem=True)
    assert [found[name][0] for name in NAMES] == pytest.approx([0.5, 0.0, 0.375, 0.375])
    pairs = [pair.split(":") for pair in STEMS.split()]
    assert [porter(word) for word, _ in pairs] == [stem for _, stem in pairs]
    assert rouge_each(["dies"], ["die"], stem=True)["rouge1"][0] == 1.0
    assert rouge_each(["his"], ["hi"], stem=True)["rouge1"][0] == 0.0  # three letters are left alone


WORDS = st.lists(st.sampled_from("abcd"), max_size=12)


@settings(max_examples=200, deadline=None)
@given(WORDS, WORDS)
def test_the_common_subsequence_is_one_and_a_longest(wanted: list[str], given_: list[str]) -> None:
    places = common(wanted, given_)
    assert places == sorted(set(places))
    rest = iter(given_)
    assert all(wanted[at] in rest for at in places)  # in this order
    table = np.zeros((len(wanted) + 1, len(given_) + 1), dtype=int)
    for i, one in enumerate(wanted, 1):
        for j, other in enumerate(given_, 1):
            table[i, j] = max(table[i - 1, j], table[i, j - 1], table[i - 1, j - 1] + (one == other))
    assert len(places) == table[-1, -1]


@settings(max_examples=100, deadline=None)
@given(st.lists(WORDS.map(" ".join), min_size=1, max_size=3), st.lists(WORDS.map(" ".join), min_size=1, max_size=3))
def test_properties(gold: list[str], said: list[str]) -> None:
    one, other = "\n".join(gold), "\n".join(said)
    there, back = rouge_each([one], [other]), rouge_each([other], [one])
    for name in NAMES[:3]:  # the union of rougeLsum is of the reference's words
        assert there[name][0] == back[name][0]
        assert 0 <= there[name][0] <= 1
    same = rouge_each([one], [one])
    words = len(one.split())
    assert [same[name][0] for name in NAMES] == [float(words > 0), float(words > 1), float(words > 0), float(words > 0)]
    flat = rouge_each([one.replace("\n", " ")], [other.replace("\n", " ")])
    assert flat["rougeLsum"][0] == flat["rougeL"][0] == there["rougeL"][0]


def test_the_best_reference_counts_for_each_score() -> None:
    gold = ["a b c d", "d c b a x"]
    alone = [rouge_each([one], ["d c b a"]) for one in gold]
    found = rouge_each([gold], ["d c b a"])
    for name in NAMES:
        assert found[name][0] == max(one[name][0] for one in alone)
    assert alone[0]["rouge1"][0] > alone[1]["rouge1"][0]
    assert alone[0]["rougeL"][0] < alone[1]["rougeL"][0]


def test_mean_and_interval() -> None:
    rng = random.Random(0)
    gold = [" ".join(rng.choices("abcdefgh", k=8)) for _ in range(100)]
    good, bad = ([" ".join(w if rng.random() < p else "x" for w in one.split()) for one in gold] for p in (0.9, 0.5))
    found = rouge_scores(gold, good, rounds=200)
    rows = rouge_each(gold, good), rouge_each(gold, bad)
    for name in NAMES:
        assert found[name].value == pytest.approx(rows[0][name].mean())
        assert found[name].low < found[name].value < found[name].high
        assert paired_bootstrap(rows[0][name], rows[1][name], rounds=200)["p"] < 0.01
    assert found == rouge_scores(gold, good, rounds=200)


def test_other_alphabets_are_told_or_counted(capsys: pytest.CaptureFixture[str]) -> None:
    gold, said = ["the cat", "Кошка спит на_ковре", "..."], ["the cat", "кошка на ковре", "..."]
    assert rouge_each(gold, said)["rouge1"].tolist() == [1.0, 0.0, 0.0]
    line = capsys.readouterr().err
    assert "2 of 3 examples" in line
    assert "example 2" in line
    assert "go by chrf" in line, "the command has no other letters to offer"
    assert 'rouge_scores(..., letters="all")' in line
    assert rouge_each(gold, said, letters="all")["rouge1"].tolist() == pytest.approx([1.0, 6 / 7, 0.0])
    assert "1 of 3 examples" in capsys.readouterr().err


def test_mistakes_are_sentences() -> None:
    with pytest.raises(SesameError, match="2 examples but 1 answers"):
        rouge_scores(["a", "b"], ["a"])
    with pytest.raises(SesameError, match="nothing to score"):
        rouge_scores([], [])
    with pytest.raises(SesameError, match="example 2 has no reference"):
        rouge_scores([["a"], []], ["a", "b"])
    with pytest.raises(SesameError, match="choose one of ascii, all"):
        rouge_scores(["a"], ["a"], letters="latin")  # type: ignore[arg-type]


ENDINGS = [
    "ational",
    "tional",
    "enci",
    "izer",
    "bli",
    "alli",
    "entli",
    "eli",
    "ousli",
    "ization",
    "ation",
    "alism",
    "iveness",
    "aliti",
    "biliti",
    "fulli",
    "logi",
    "icate",
    "ative",
    "ical",
    "ful",
    "ness",
    "al",
    "er",
    "ment",
    "ion",
    "ou",
    "ate",
    "iti",
    "ive",
    "ed",
    "ing",
    "eed",
    "ied",
    "ies",
    "sses",
    "s",
    "y",
    "e",
    "ll",
    "at",
    "bl",
    "iz",
]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_equals_rouge_score(seed: int) -> None:
    scorer = pytest.importorskip("rouge_score.rouge_scorer")
    from nltk.stem.porter import PorterStemmer

    rng = random.Random(seed)
    stemmer = PorterStemmer()
    for _ in range(2_000):
        word = "".join(rng.choices("abeilosty", k=rng.randrange(4, 7))) + "".join(
            rng.choices(ENDINGS, k=rng.randrange(3))
        )
        assert porter(word) == stemmer.stem(word)
    vocabulary = ["the", "cat", "cats", "running", "run", "Dog's", "relational", "a", "1990s", "über", "…"]

    def text() -> str:
        return "".join(rng.choice(vocabulary) + rng.choice("   \n.") for _ in range(rng.randrange(40)))

    gold, said = [[text() for _ in range(rng.randrange(1, 4))] for _ in range(100)], [text() for _ in range(100)]
    for stem in (False, True):
        oracle = scorer.RougeScorer(list(NAMES), use_stemmer=stem)
        found = rouge_each(gold, said, stem)
        for at, (texts, given_) in enumerate(zip(gold, said, strict=True)):
            wanted = oracle.score_multi(texts, given_)
            for name in NAMES:
                assert found[name][at] == pytest.approx(wanted[name].fmeasure, abs=1e-12)
