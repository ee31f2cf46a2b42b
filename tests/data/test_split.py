"""Holding rows out, refusing what cannot be learned, and saying what is odd about the data."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sesame.data.examples import Answer, Example
from sesame.data.split import check_training, describe, stratified
from sesame.errors import SesameError


def rows(*pairs: tuple[str, object], file: str = "train.csv") -> list[Example]:
    return [Example(f"{file}:{line}", text, label=label) for line, (text, label) in enumerate(pairs, 2)]


ROWS = st.lists(st.tuples(st.text("ab", max_size=4), st.sampled_from("xyz")), min_size=1, max_size=60)


@given(ROWS, st.floats(0.05, 0.5), st.integers(0, 5))
def test_promises_of_the_split(pairs: list[tuple[str, str]], share: float, seed: int) -> None:
    examples = rows(*pairs)
    train, valid = stratified(examples, share, seed)
    assert sorted(train + valid) == list(range(len(examples)))
    assert (train, valid) == (sorted(train), sorted(valid))
    assert not {examples[row].text for row in train} & {examples[row].text for row in valid}
    assert {examples[row].label for row in train} == {example.label for example in examples}
    assert (train, valid) == stratified(examples, share, seed)


@given(st.lists(st.integers(1, 40), min_size=2, max_size=8), st.integers(0, 3))
def test_classes_keep_their_shares(sizes: list[int], seed: int) -> None:
    examples = rows(*((f"{label} {n}", f"class {label}") for label, size in enumerate(sizes) for n in range(size)))
    _, valid = stratified(examples, 0.2, seed)
    held = Counter(examples[row].label for row in valid)
    if sum(sizes) >= 10 and min(sizes) > 2:
        assert abs(len(valid) - 0.2 * len(examples)) <= 0.5
        assert all(abs(held[f"class {label}"] - 0.2 * size) <= 1 for label, size in enumerate(sizes))


def test_seeds_differ() -> None:
    examples = rows(*((f"text {n}", "xy"[n % 2]) for n in range(100)))
    assert stratified(examples, seed=1)[1] != stratified(examples, seed=2)[1]
    assert len(stratified(examples)[1]) == 10


def test_small_data() -> None:
    assert stratified(rows(("a", "x"), ("b", "y"))) == ([0, 1], [])
    train, valid = stratified(rows(("a", "x"), ("b", "y"), ("c", "x")))
    assert len(valid) == 1
    assert 1 in train
    assert stratified([]) == ([], [])


def test_several_labels_are_never_held_out_whole() -> None:
    examples = rows(*((f"text {n}", ("common", f"rare {n}") if n % 2 else ("common",)) for n in range(40)))
    train, valid = stratified(examples, 0.5)
    assert valid
    assert {name for row in train for name in examples[row].label} == {n for one in examples for n in one.label}


@given(st.lists(st.sets(st.sampled_from("PQRS"), max_size=2), min_size=2, max_size=30), st.integers(0, 9))
def test_no_entity_type_is_held_out_whole(types: list[set[str]], seed: int) -> None:
    """Nor any of several labels; and where a text can be spared, one is held out."""
    named = [tuple(sorted(one)) for one in types]
    tagged = [
        Example(
            f"a:{n}", f"w{n} x", label=(*(f"B-{name}" for name in one), *["O"] * (2 - len(one))), words=((0, 1), (2, 3))
        )
        for n, one in enumerate(named)
    ]
    counts = Counter(name for one in named for name in one)
    spare = [one for one in named if all(counts[name] > 1 for name in one)]
    for examples in (tagged, rows(*((f"w{n}", one) for n, one in enumerate(named)))):
        train, valid = stratified(examples, 0.2, seed)
        assert {name for row in train for name in named[row]} == set(counts)
        assert bool(valid) or len(spare) < 2  # the first text stays in training, whatever it is


def test_questions_about_one_context_stay_together() -> None:
    examples = [
        Example(f"a: question {n}", f"context {n % 10}", f"question {n}", (Answer("c", 0),) if n % 3 else ())
        for n in range(60)
    ]
    train, valid = stratified(examples, 0.3)
    assert len(valid) == 18
    assert not {examples[row].text for row in train} & {examples[row].text for row in valid}


@pytest.mark.parametrize(
    ("examples", "task", "parts"),
    [
        ([], "classify", ["only 0", "at least 2"]),
        (rows(("a", "x")), "classify", ["train.csv: holds only 1", "at least 2"]),
        (rows(("a", "x"), ("b", "x")), "classify", ["train.csv:", "one class only, 'x'", "--label-column"]),
        (rows(("a", 1.0), ("b", 1.0)), "regress", ["train.csv:", "score 1.0"]),
        (rows(("a", ("O",)), ("b", ("O",))), "tag", ["train.csv:", "tag O", "--label-column"]),
        (
            rows(*((f"t{n}", f"id {n}") for n in range(1500))),
            "classify",
            ["train.csv: the label column looks like an id or a text: 1,500 different labels in 1,500 rows", "choose"],
        ),
        ([Example("a.json: question q", "c")], "qa", ["a.json: holds only 1"]),
    ],
)
def test_what_cannot_be_learned(examples: list[Example], task: str, parts: list[str]) -> None:
    with pytest.raises(SesameError) as caught:
        check_training(examples, task)
    for part in parts:
        assert part in str(caught.value)


def test_what_can_be_learned() -> None:
    check_training(rows(("a", "x"), ("b", "y")), "classify")
    check_training(rows(*((f"t{n}", f"id {n}") for n in range(1000))), "classify")
    check_training(rows(("a", ("x",)), ("b", ())), "classify")
    check_training(rows(("a", 0.5), ("b", 1.0)), "regress")


def test_description() -> None:
    train = rows(*((f"text {n}", "big") for n in range(8)), ("TEXT  0", "small"), ("text 1", "big"))
    valid = rows(("Text 2", "big"), ("new", "big"), file="valid.csv")
    test = rows(("new", "other"), ("newer", "big"), file="test.csv")
    assert describe(train, valid, test, "classify") == [
        '10 training rows, 2 classes; biggest "big" in 9 rows (90.0 %), smallest "small" in 1 (10.0 %)',
        'warning: 1 of 2 classes have fewer than 5 training rows: "small"',
        "warning: 2 of 10 training rows repeat an earlier text, first train.csv:10",
        "warning: same text with different labels: 1 training texts, first train.csv:2 and train.csv:10",
        "warning: 1 of 2 validation rows (50.0 %) have a text that is also in training (case and spaces aside), first "
        "valid.csv:2; scores on them are too good",
        'warning: 1 of 2 test rows have labels that training does not: "other"; they cannot be predicted',
    ]


def test_phrases_of_training_texts_are_told() -> None:
    sentence = "the plot is thin but the music of this film is lovely"
    train = rows((sentence, "x"), ("another text that says quite other things", "y"))
    phrase = ("but THE music of this  film", "x")
    told = describe(train, rows(phrase, file="valid.csv"), rows((sentence, "x"), file="test.csv"), "classify")
    pieces = [line for line in told if "half or more" in line]
    assert len(pieces) == 1, "a whole text is told by another sentence"
    assert pieces[0].startswith("warning: 1 of 1 validation rows (100.0 %)")
    assert "first valid.csv:2" in pieces[0]
    strangers = [(f"nothing of it is in there, number {n}", "x") for n in range(2)]
    few = describe(train, rows(phrase, *strangers, file="valid.csv"), [], "classify")
    assert not any("half or more" in line for line in few), "one row in three may be chance"
    assert not any("half or more" in line for line in describe(train, rows(("film", "x")), [], "classify"))


def test_description_of_other_tasks() -> None:
    assert "from 0 to 4, on average 2" in describe(rows(("a", 0.0), ("b", 4.0)), [], [], "regress")[0]
    tags = rows(*((f"a {n}", ("B-PER", "O")) for n in range(9)))
    assert '1 entity type; biggest "PER" in 9 rows (100.0 %)' in describe(tags, [], [], "tag")[0]
    unseen = rows(("b", ("B-LOC", "I-LOC")))
    assert '"LOC"' in describe(tags, unseen, [], "tag")[-1]
    assert "50.0 % of them without" in describe(rows(("a", ()), ("b", (Answer("b", 0),))), [], [], "qa")[0]
    assert "right in 66.7 %" in describe(rows(("a", 1), ("b", 1), ("c", 0)), [], [], "choice")[0]
    assert describe([], [], [], "classify") == []
