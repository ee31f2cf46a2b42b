"""SQuAD's rules, against a slow reading of them that is written another way."""

import random
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sesame.errors import SesameError
from sesame.evaluate.answers import (
    answer_f1,
    answer_scores,
    best_null_threshold,
    best_over_gold,
    exact_match,
    normalize_answer,
    squad_scores,
)

# ---- the slow reference ---------------------------------------------------------------------------------------------


def slow_words(text: str) -> list[str]:
    """Character by character: no punctuation, then runs of word characters that are articles become a space."""
    kept = [letter for letter in text.lower() if letter not in set(string.punctuation)]
    out, run = "", ""
    for letter in [*kept, " "]:
        if letter.isalnum() or letter == "_":
            run += letter
        else:
            out += (" " if run in {"a", "an", "the"} else run) + letter
            run = ""
    return out.split()


def slow_f1(gold: str, said: str) -> float:
    wanted, given_ = slow_words(gold), slow_words(said)
    if wanted == [] or given_ == []:
        return 1.0 if wanted == given_ else 0.0
    left, same = list(wanted), 0
    for word in given_:
        if word in left:
            left.remove(word)
            same += 1
    if same == 0:
        return 0.0
    precision, recall = same / len(given_), same / len(wanted)
    return 2 * precision * recall / (precision + recall)


def slow_best(gold: list[str], said: str) -> tuple[float, float]:
    left = [one for one in gold if slow_words(one)]
    if not left:
        left = [""]
    return float(any(slow_words(one) == slow_words(said) for one in left)), max(slow_f1(one, said) for one in left)


ANSWERS = [
    "the Denver Broncos", "Denver  Broncos!", "A man, a plan", "An", "The", "", " ", "U.S.A.", "usa", "don't", "in 1066",
    "«Зенит»", "зенит", "北京", "北京。", "the-the the", "a_b", "over-the-top", "New York New York", "new york", "–1", "…",
    "theory an", "ANTHEM", "İstanbul", "naïve\u00a0the\u2003café", "5%", "$5", "’the’", "`a`",
]  # fmt: skip


def perturbed(text: str, rng: random.Random) -> str:
    words = text.split(" ")
    changes = [
        str.upper,
        str.title,
        lambda t: f"the {t}",
        lambda t: f"{t}.",
        lambda t: f"“{t}”",
        lambda t: f"  {t}\t",
        lambda t: t + " " + words[0],
        lambda t: " ".join(reversed(t.split(" "))),
        lambda t: t[1:],
        lambda t: "",
        lambda t: t,
    ]
    for change in rng.sample(changes, 2):
        text = change(text)
    return text


@pytest.mark.parametrize("text", ANSWERS)
def test_words_of_an_answer(text: str) -> None:
    assert normalize_answer(text) == " ".join(slow_words(text))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(ANSWERS) | st.text(max_size=12), st.randoms(use_true_random=False))
def test_equals_the_slow_reading(text: str, rng: random.Random) -> None:
    said = perturbed(text, rng)
    gold = [text, *rng.sample(ANSWERS, rng.randrange(3))]
    assert answer_f1(text, said) == pytest.approx(slow_f1(text, said))
    assert exact_match(text, said) == float(slow_words(text) == slow_words(said))
    assert best_over_gold(gold, said) == pytest.approx(slow_best(gold, said))


def test_by_hand() -> None:
    assert normalize_answer("The U.S.A., an  Answer!") == "usa answer"
    assert (
        normalize_answer("over-the-top") == "overthetop"
    )  # punctuation goes first, so the article is no word any more
    assert normalize_answer("«The end»") == "« end»"  # only ASCII punctuation goes
    assert exact_match("the Cat", "cat.") == 1.0
    assert answer_f1("new york new york", "new york") == pytest.approx(2 / 3)
    assert answer_f1("the", "a") == 1.0
    assert answer_f1("the", "cat") == 0.0
    assert best_over_gold(["red", "dark red"], "dark red") == (1.0, 1.0)
    assert best_over_gold([], "") == (1.0, 1.0)
    assert best_over_gold([], "red") == (0.0, 0.0)


def test_totals_of_both_versions() -> None:
    first = {"q1": ["red"], "q2": ["blue car", "car"]}
    assert squad_scores(first, {"q1": "red", "q2": "blue"}) == pytest.approx({"exact": 0.5, "f1": 5 / 6, "total": 2})
    second = first | {"q3": [], "q4": []}
    assert squad_scores(second, {"q1": "red", "q2": "", "q3": "", "q4": "x", "other": "y"}) == pytest.approx(
        {"exact": 0.5, "f1": 0.5, "total": 4}
        | {"HasAns_exact": 0.5, "HasAns_f1": 0.5, "HasAns_total": 2}
        | {"NoAns_exact": 0.5, "NoAns_f1": 0.5, "NoAns_total": 2}
    )
    assert set(squad_scores({"q": []}, {"q": ""})) == {"exact", "f1", "total", "NoAns_exact", "NoAns_f1", "NoAns_total"}


def test_a_missing_prediction_scores_zero_and_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer_scores({"q1": [], "q2": ["x"]}, {"q2": "x"}) == {"q1": (0.0, 0.0), "q2": (1.0, 1.0)}
    assert "1 of 2 questions have no prediction and score 0, the first is 'q1'" in capsys.readouterr().err


# ---- the threshold --------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from(["exact", "f1"]))
def test_no_threshold_is_better(data: st.DataObject, by: str) -> None:
    count = data.draw(st.integers(1, 8))
    gold, said, null = {}, {}, {}
    for at in range(count):
        gold[f"q{at}"] = data.draw(st.sampled_from([[], ["red car"], ["the"], ["red", "dark blue car"]]))
        said[f"q{at}"] = data.draw(st.sampled_from(["", "red", "red car", "green"]))
        null[f"q{at}"] = data.draw(st.sampled_from([-2.0, -0.5, 0.0, 0.25, 0.5, 3.0]))
    threshold, scores = best_null_threshold(gold, said, null, by)  # type: ignore[arg-type]

    def at(limit: float) -> dict[str, float]:
        return squad_scores(gold, {question: "" if null[question] > limit else said[question] for question in gold})

    assert scores == at(threshold)
    tried = {limit: at(limit)[by] for limit in [-9.0, *sorted(null.values())]}
    assert scores[by] == pytest.approx(max(tried.values()))
    last = max(limit for limit in tried if limit <= threshold)  # speaks: no smaller threshold is as good
    assert all(tried[limit] < scores[by] - 1e-9 for limit in tried if limit < last)
    assert min(abs(limit - threshold) for limit in null.values()) >= 0.125  # half the way between two of these


def official_sweep(
    has: dict[str, bool], scores: dict[str, float], said: dict[str, str], null: dict[str, float]
) -> float:
    """The walk of the script of 2.0, step by step: the best sum of scores."""
    current = best = float(sum(not one for one in has.values()))
    for question in sorted(null, key=lambda one: null[one]):
        if has[question]:
            current += scores[question]
        elif said[question]:
            current -= 1
        best = max(best, current)
    return best


def test_the_sweep_equals_the_script_where_null_scores_differ() -> None:
    rng = random.Random(0)
    for _ in range(50):
        names = [f"q{at}" for at in range(30)]
        gold = {name: rng.choice([[], ["red car"], ["blue"]]) for name in names}
        said = {name: rng.choice(["", "red", "red car", "blue"]) for name in names}
        null = {name: rng.random() for name in names}
        f1 = {name: pair[1] for name, pair in answer_scores(gold, said).items()}
        wanted = official_sweep({name: bool(gold[name]) for name in names}, f1, said, null)
        _, scores = best_null_threshold(gold, said, null)
        assert scores["f1"] * 30 == pytest.approx(wanted)


def test_never_answering_may_be_best() -> None:
    threshold, scores = best_null_threshold({"a": [], "b": []}, {"a": "x", "b": "y"}, {"a": 0.5, "b": -1.0})
    assert threshold < -1.0
    assert scores["exact"] == 1.0


def test_mistakes_are_sentences() -> None:
    with pytest.raises(SesameError, match="nothing to score"):
        squad_scores({}, {})
    with pytest.raises(SesameError, match="question 'b' has no finite null score"):
        best_null_threshold({"a": ["x"], "b": ["x"]}, {"a": "x", "b": "x"}, {"a": 0.0})
