"""Equal to evalb with COLLINS.prm: every figure below was printed by that program for these trees."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sesame.data.trees import Tree, bare, delinearize, linearize, parse_trees
from sesame.errors import SesameError
from sesame.evaluate.brackets import bracket_counts, bracket_scores, count
from sesame.evaluate.statistics import micro_f1

DOG = "(TOP (S (NP-SBJ (DT the) (NN dog)) (VP (VBZ runs) (PRT (RP off)) (PP-TMP (IN at) (NP (NN night)))) (. .)))"
CASES = [  # gold, answer, what evalb prints: right, gold, said, crossing, words, right tags; None: an error
    (DOG, DOG, (6, 6, 6, 0, 6, 6)),
    (DOG, DOG.replace("PRT", "ADVP").replace("-SBJ", "=2").replace("TOP", "TOP-X"), (6, 6, 6, 0, 6, 6)),
    (DOG, DOG.replace("(NN dog)", "(JJ dog)").replace("PP-TMP", "NP"), (5, 6, 6, 0, 6, 5)),
    (DOG, DOG.replace("TOP", "ROOT"), (6, 6, 7, 0, 6, 6)),
    # the full stop is deleted, wherever it hangs, with the brackets that hold nothing else
    (DOG, DOG.replace(" (. .)", "").replace("(NN night)", "(NN night) (FRAG (. .))"), (6, 6, 6, 0, 6, 6)),
    # multisets: as often as both have it
    ("(S (NP (NP (NN a))) (VP (VB b)))", "(S (NP (NN a)) (VP (VB b)))", (3, 4, 3, 0, 2, 2)),
    ("(S (NP (NN a)) (VP (VB b)))", "(S (NP (NP (NP (NN a)))) (VP (VB b)))", (3, 3, 5, 0, 2, 2)),
    ("(S (PRT (ADVP (RB a))) (VP (VB b)))", "(S (ADVP (ADVP (RB a))) (VP (VB b)))", (4, 4, 4, 0, 2, 2)),
    # traces go, and what held nothing else
    (
        "(S (NP (PRP he)) (VP (VBD said) (SBAR (-NONE- 0) (S (-NONE- *T*-1)))) (. .))",
        "(S (NP (PRP he)) (VP (VBD said)) (. .))",
        (3, 3, 3, 0, 2, 2),
    ),
    # crossing: brackets of the answer, each once, by their spans alone
    (
        "(S (X (A a) (B b)) (Y (C c) (D d)) (E e))",
        "(S (A a) (X (B b) (C c)) (Z (Z (D d) (E e))))",
        (1, 3, 4, 3, 5, 5),
    ),
    ("(S (X (A a) (B b)) (C c))", "(S (Y (A a) (B b) (C c)))", (1, 2, 2, 0, 3, 3)),
    # words without brackets count, in recall
    ("(S (NP (A a)) (B b))", "((A a) (B b))", (0, 2, 0, 0, 2, 2)),
    # a tag that makes punctuation of a word, or a word of punctuation, is an error, and so is another word
    (DOG, DOG.replace("(. .)", "(NN .)"), None),
    (DOG, DOG.replace("(IN at)", "(: at)"), None),
    (DOG, DOG.replace("night", "Night"), None),
    (DOG, DOG.replace("(. .)", "(. !)"), (6, 6, 6, 0, 6, 6)),  # which is not seen in punctuation
    (DOG, DOG.replace("(NN night)", "(NN night) (NN time)"), None),
]


def tree(text: str) -> Tree:
    (found,) = parse_trees(text)
    return found


@pytest.mark.parametrize(("gold", "said", "wanted"), CASES)
def test_sentences(gold: str, said: str, wanted: tuple[int, ...] | None) -> None:
    found = count(tree(gold), tree(said))
    if wanted is None:
        assert found.wrong
    else:
        assert (found.right, found.gold, found.said, found.crossing, found.words, found.tags) == wanted
        assert found.complete == (wanted[0] == wanted[1] == wanted[2])


def test_the_summary(capsys: pytest.CaptureFixture[str]) -> None:
    gold = [tree(one) for one, _, _ in CASES] + [tree(DOG)] * 2
    said = [tree(other) for _, other, _ in CASES] + [None, tree("(S (. .))")]
    found = bracket_scores(gold, said)
    printed = {
        "recall": 87.72,
        "precision": 86.21,
        "f1": 86.96,
        "complete_match": 46.15,
        "no_crossing": 92.31,
        "two_or_less_crossing": 92.31,
        "tag_accuracy": 98.15,
    }
    assert {name: round(100 * found[name], 2) for name in printed} == printed
    assert round(found["crossing"], 2) == 0.23
    assert (found["sentences"], found["errors"], found["skipped"]) == (19, 4, 2)
    assert found["f1_of_all"] == pytest.approx(2 * 50 / (57 + 58 + 6 * 6))  # ours: six gold trees of DOG are missed
    said_line = capsys.readouterr().err
    for part in ("6 of 19", "2 without words", "4 with other words", "sentence 13", "6 words in the gold tree, 7"):
        assert part in said_line
    counts = bracket_counts(gold, said)
    assert counts.sum(0).tolist() == [50, 58, 57]
    assert micro_f1(counts)(np.arange(19)[None])[0] == pytest.approx(found["f1"])


def test_short_sentences_only() -> None:
    pair = tree("(S (NP (A a)) (B b) (-NONE- *))"), tree("(S (A a) (B b))")
    found = bracket_scores([tree(DOG), pair[0]], [tree(DOG), pair[1]], longest=2)
    assert (found["sentences"], found["precision"], found["recall"]) == (1, 1.0, 0.5)
    assert bracket_scores([tree(DOG), pair[0]], [tree(DOG), pair[1]])["recall"] == 7 / 8
    with pytest.raises(SesameError, match="1 words or fewer"):
        bracket_scores([tree(DOG)], [tree(DOG)], longest=1)


def test_nothing_right_is_no_nan() -> None:
    found = bracket_scores([tree("(S (A a))")], [tree("(X (A a))")])
    assert (found["precision"], found["recall"], found["f1"], found["tag_accuracy"]) == (0.0, 0.0, 0.0, 1.0)
    found = bracket_scores([tree("(S (A a))")], [None])
    assert (found["f1"], found["crossing"], found["skipped"]) == (0.0, 0.0, 1)


def test_what_a_model_says_with_the_gold_tags() -> None:
    """The walk of parsing as translation: without the tags the full stop would be a word."""
    gold = tree(DOG)
    target = linearize(bare(gold))
    clean = delinearize(target, gold.words, gold.tags).tree
    assert bracket_scores([gold], [clean])["f1"] == 1.0
    assert bracket_scores([gold], [delinearize(target, gold.words).tree])["errors"] == 1
    broken = delinearize(target.removesuffix(" XX )TOP").replace("(PP", "(X"), gold.words, gold.tags)
    assert broken.repairs
    assert 0 < bracket_scores([gold], [broken.tree])["f1"] < 1


LABELS = ["S", "NP", "NP-SBJ", "PRT", "ADVP", "TOP", "X=1"]


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Tree, Tree]:
    """Two trees over the same words."""
    tags = [*draw(st.lists(st.sampled_from(["N", "V", ",", "-NONE-"]), max_size=7)), "N"]
    words = [f"w{at}" for at in range(len(tags))]
    rng = draw(st.randoms(use_true_random=False))
    return one_of(words, tags, rng), one_of(words, tags, rng)


def one_of(words: list[str], tags: list[str], rng: random.Random) -> Tree:
    tokens = ["XX"] * len(words)
    for _ in range(rng.randrange(6)):
        tokens.insert(rng.randrange(len(tokens) + 1), f"({rng.choice(LABELS)}")
        tokens.insert(rng.randrange(len(tokens) + 1), ")")
    return delinearize(" ".join(tokens), words, tags).tree


@settings(max_examples=200, deadline=None)
@given(st.lists(pairs(), min_size=1, max_size=4))
def test_swapping_the_sides_swaps_precision_and_recall(drawn: list[tuple[Tree, Tree]]) -> None:
    gold, said = [one for one, _ in drawn], [other for _, other in drawn]
    there, back = bracket_scores(gold, said), bracket_scores(said, gold)
    assert (there["precision"], there["recall"]) == (back["recall"], back["precision"])
    assert (there["f1"], there["complete_match"]) == (back["f1"], back["complete_match"])
    assert there["no_crossing"] == back["no_crossing"]
    for side in (gold, said):
        same = bracket_scores(side, side)
        assert same["f1"] == float(bracket_counts(side, side).any())
        assert (same["complete_match"], same["crossing"], same["tag_accuracy"]) == (1.0, 0.0, 1.0)
        stripped = [bare(one) for one in side]
        assert bracket_scores(side, stripped) == same


def test_mistakes_are_sentences() -> None:
    with pytest.raises(SesameError, match="2 examples but 1 answers"):
        bracket_scores([tree(DOG)] * 2, [tree(DOG)])
    with pytest.raises(SesameError, match="nothing to score"):
        bracket_scores([], [])
