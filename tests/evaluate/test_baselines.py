"""Simple methods on small data of every shape."""

import random
import subprocess
import sys

import numpy as np
import pytest

from sesame.data.examples import Answer, Example
from sesame.errors import SesameError
from sesame.evaluate import baselines as module
from sesame.evaluate.baselines import baselines


def row(text: str, label: object = None, pair: str | None = None, **more: object) -> Example:
    return Example("train.csv:2", text, pair, label, **more)  # type: ignore[arg-type]


def sentence(words: str, tags: str = "") -> Example:
    spans, at = [], 0
    for word in words.split():
        spans.append((at, at + len(word)))
        at += len(word) + 1
    return Example("x:1", words, None, tuple(tags.split()) or None, tuple(spans))


TOPICS = {
    "sport": "goal match team coach player league score",
    "money": "bank loan market share price trade tax",
    "food": "bread soup salt kitchen taste pepper dinner",
}


def topics(count: int, seed: int, table: dict[str, str] = TOPICS) -> list[Example]:
    rng = random.Random(seed)
    filler = ["the", "a", "of", "and", "with", "some", "new"]
    return [
        row(" ".join([*rng.sample(words.split(), 3), *rng.sample(filler, 3)]), name)
        for _ in range(count)
        for name, words in table.items()
    ]


def accuracy(said: list[object], test: list[Example]) -> float:
    return float(np.mean([one == example.label for one, example in zip(said, test, strict=True)]))


def test_classify_learns_topics() -> None:
    train = [*topics(10, 0), row("dinner salt", "food")]
    test = topics(20, 1)
    said = baselines("classify", train, test)
    assert said["majority"] == ["food"] * 60
    assert accuracy(said["tf-idf"], test) > 0.95
    assert said == baselines("classify", train, test)  # the same again


def test_classify_without_spaces() -> None:
    """Chinese words of two characters inside sentences without any space."""
    words = {"体育": "足球 球队 教练 比赛 进球", "金融": "银行 贷款 市场 股票 价格"}
    rng = random.Random(0)

    def drawn(count: int) -> list[Example]:
        middle = ["我们", "看到新的东西"]
        return [
            row("".join([middle[0], *rng.sample(names.split(), 2), middle[1]]), name)
            for _ in range(count)
            for name, names in words.items()
        ]

    train, test = drawn(10), drawn(30)
    assert accuracy(baselines("classify", train, test)["tf-idf"], test) > 0.95


def test_classify_two_classes_both_ways_round() -> None:
    for order in (("no", "yes"), ("yes", "no")):
        train = [row("good film", order[0]), row("bad film", order[1])]
        said = baselines("classify", train, [row("good one"), row("bad one")])
        assert said["tf-idf"] == list(order)


@pytest.mark.parametrize(
    "train",
    [
        [row("a", "x"), row("b", "y")],
        [row("a", "x")],
        [row("a", "x"), row("b", "x")],  # one class
        [*topics(3, 0), row("only one", "rare")],
        [row("!!!", "x"), row("?!", "y")],  # no words
        [row("", "x"), row("  ", "y")],  # nothing at all
        [row("👍", "x"), row("\u0301", "y"), row("x" * 5000, "z")],
        [row("unlabelled"), row("a", "x")],
    ],
)
def test_classify_on_next_to_nothing(train: list[Example]) -> None:
    labels = {example.label for example in train if example.label}
    said = baselines("classify", train, [row("what is this"), row(""), row("!!!")])
    assert all(answer in labels for answers in said.values() for answer in answers)
    assert [len(answers) for answers in said.values()] == [3, 3]
    assert baselines("classify", train, []) == {"majority": [], "tf-idf": []}


def test_pairs_need_the_product() -> None:
    """Whether two texts share their word cannot be told from either alone."""
    rng = random.Random(0)
    words = ["red", "green", "blue", "black", "white", "brown", "pink", "gray"]

    def drawn(count: int) -> list[Example]:
        out = []
        for _ in range(count):
            first, second = rng.sample(words, 2)
            out += [row(f"it is {first}", "same", f"a {first} car"), row(f"it is {first}", "other", f"a {second} car")]
        return out

    train, test = drawn(60), drawn(40)
    assert accuracy(baselines("classify", train, test)["tf-idf"], test) > 0.95


def test_several_labels() -> None:
    rng = random.Random(0)

    def drawn(count: int) -> list[Example]:
        out = []
        for _ in range(count):
            names = tuple(sorted(rng.sample(sorted(TOPICS), rng.randrange(3))))
            text = " ".join(word for name in names for word in rng.sample(TOPICS[name].split(), 4))
            out.append(row(f"{text} of the", (*names, "always")))
        return out

    train, test = drawn(80), drawn(30)
    said = baselines("classify", train, test)
    assert all(isinstance(answer, tuple) for answers in said.values() for answer in answers)
    assert all("always" in answer for answer in said["tf-idf"])
    got = np.mean([set(one) == set(example.label) for one, example in zip(said["tf-idf"], test, strict=True)])
    assert got > 0.8
    assert baselines("classify", [row("a", ()), row("b", ())], [row("c")]) == {"majority": [()], "tf-idf": [()]}


def test_long_training_is_thinned_out_and_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", 30)
    test = topics(5, 1)
    assert accuracy(baselines("classify", topics(40, 0), test)["tf-idf"], test) > 0.8
    assert "learns from 30 of 120 training rows" in capsys.readouterr().err


def test_regress() -> None:
    rng = random.Random(0)
    weights = {"good": 1.0, "fine": 0.5, "poor": -0.5, "bad": -1.0}

    def drawn(count: int) -> list[Example]:
        texts = [[rng.choice(sorted(weights)) for _ in range(3)] for _ in range(count)]
        return [row(" ".join(words), sum(weights[word] for word in words)) for words in texts]

    train, test = drawn(100), drawn(50)
    said, gold = baselines("regress", train, test), np.array([example.label for example in test])
    assert said["mean"] == [pytest.approx(np.mean([example.label for example in train]))] * 50
    assert np.corrcoef(said["tf-idf"], gold)[0, 1] > 0.9
    assert all(isinstance(one, float) for one in said["tf-idf"])
    assert baselines("regress", train[:1], test[:2])["tf-idf"] == [train[0].label] * 2


def test_regress_pairs_by_likeness() -> None:
    """The share of words in common, with words that training never saw."""
    rng = random.Random(0)

    def drawn(count: int, stem: str) -> list[Example]:
        out = []
        for _ in range(count):
            words = [f"{stem}{rng.randrange(10**6)}" for _ in range(8)]
            shared = rng.randrange(5)
            out.append(row(" ".join(words[:4]), float(shared), " ".join([*words[:shared], *words[4 : 8 - shared]])))
        return out

    train, test = drawn(150, "x"), drawn(50, "x")
    said = baselines("regress", train, test)["tf-idf"]
    assert np.corrcoef(said, [example.label for example in test])[0, 1] > 0.7


def test_tag() -> None:
    train = [
        sentence("Anna likes Paris", "B-PER O B-LOC"),
        sentence("Paris sleeps", "B-LOC O"),
        sentence("Paris Hilton", "B-PER I-PER"),
        sentence("Boris and Carl", "B-PER O B-PER"),
    ]
    said = baselines("tag", train, [sentence("Paris and Dora swim"), sentence("")])
    assert said == {"majority": [("B-LOC", "O", "B-PER", "O"), ()]}


def test_tag_without_o() -> None:
    train = [sentence("the cat sleeps", "DET NOUN VERB"), sentence("the dog barks", "DET NOUN VERB")]
    answers = baselines("tag", train, [sentence("the zebra"), sentence("Zed")])["majority"]
    assert answers[0][0] == "DET"
    assert answers[0][1] in {"NOUN", "VERB"}
    assert answers[1][0] in {"NOUN", "VERB"}


def test_qa() -> None:
    context = "Rome is old. The river Tiber runs through Rome. It rains."
    train = [row(context, (Answer("old", 8),), "How old is Rome?")]
    test = [row(context, pair="Which river runs there?"), row(context, pair="北京?"), row("", pair="Who?")]
    said = baselines("qa", train, test)
    assert said == {"sentence": ["The river Tiber runs through Rome.", "Rome is old.", ""]}
    assert baselines("qa", [*train, row(context, (), "Why?")], test)["no answer"] == ["", "", ""]
    chinese = [row("今天下雨。北京是首都。", pair="首都是哪里")]
    assert baselines("qa", train, chinese)["sentence"] == ["北京是首都。"]


def test_choice() -> None:
    options = ("a boat", "the cat on a mat", "x")
    train = [row("the cat", 2, options=options), row("boats", 2, options=options), row("cats", 1, options=options)]
    test = [row("where is the cat", options=options), row("a big boat", options=options[:2])]
    assert baselines("choice", train, test) == {"majority": [2, 0], "tf-idf": [1, 0]}
    assert baselines("choice", train, []) == {"majority": [], "tf-idf": []}


def test_mistakes_are_sentences() -> None:
    with pytest.raises(SesameError, match="no task 'sing'; known are classify"):
        baselines("sing", [row("a", "x")], [])
    with pytest.raises(SesameError, match="no training example has a label"):
        baselines("classify", [row("a")], [row("b")])
    with pytest.raises(SesameError, match=r"train\.csv:2: there are no options"):
        baselines("choice", [row("a", 0, options=("b",))], [row("a")])
    with pytest.raises(SesameError, match="no training sentence has a tagged word"):
        baselines("tag", [Example("x:1", "", label=())], [])


def test_importing_loads_no_heavy_library() -> None:
    rooms = ["answers", "baselines", "calibration", "classification", "entities", "regression", "statistics"]
    code = "import sys\n" + "".join(f"import sesame.evaluate.{room}\n" for room in rooms)
    code += "print({'sklearn', 'scipy', 'matplotlib', 'pandas', 'seqeval', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
