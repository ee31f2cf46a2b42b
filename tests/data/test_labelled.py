"""The door to labelled data: which column is which, what is left out, and what each task's label is."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest

from sesame.data.examples import Answer
from sesame.data.labelled import Labelled, read_labelled
from sesame.errors import SesameError


def read(
    path: Path, data: Any, task: str = "classify", labels: bool = True, multi: str = "", **columns: str
) -> Labelled:
    """Write a text as it is, a list of rows as JSON lines, a dict as parquet; then read it."""
    if isinstance(data, dict):
        parquet.write_table(arrow.table(data), path)
    else:
        text = data if isinstance(data, str) else "".join(json.dumps(row) + "\n" for row in data)
        path.write_text(text, encoding="utf-8")
    return read_labelled(path, task, columns, labels=labels, multi=multi or None)


def fails(path: Path, data: Any, *parts: str, **how: Any) -> None:
    with pytest.raises(SesameError) as caught:
        read(path, data, **how)
    message = str(caught.value)
    assert "\n" not in message
    for part in (str(path), "; ", *parts):
        assert part in message


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("question,Category,note", 'text = "question", label = "Category" (guessed)'),
        ("id,Sentence,label", 'text = "Sentence", label = "label" (guessed)'),
        ("premise,hypothesis,label", 'text = "premise", pair = "hypothesis", label = "label" (guessed)'),
        ("label,sentence1,sentence2", 'text = "sentence1", pair = "sentence2", label = "label" (guessed)'),
        ("text,pair,class", 'text = "text", pair = "pair", label = "class" (guessed)'),
        ("uid,context,hypothesis,label", 'text = "context", pair = "hypothesis", label = "label" (guessed)'),
        ("question,title,answer,passage", 'text = "question", pair = "passage", label = "answer" (guessed)'),
        (
            "question,title,answer,label",
            "text = \"question\", label = \"label\" (guessed); not read: 'title', 'answer'",
        ),
        ("id,Title,description,label", 'text = "description", label = "label" (guessed); not read: \'Title\''),
        ("Review Text,stars,x", 'text = "Review Text", label = "stars" (guessed)'),
    ],
)
def test_columns_are_guessed(tmp_path: Path, header: str, said: str) -> None:
    cells = "abcd"[: header.count(",") + 1]
    found = read(tmp_path / "a.csv", "\n".join([header, ",".join(cells), ",".join(cells.upper())]))
    assert found.said == f"a.csv: 2 rows; {said}"
    assert found.examples[0].place == f"{tmp_path / 'a.csv'}:2"


def test_columns_are_given(tmp_path: Path) -> None:
    found = read(tmp_path / "a.csv", "x,y,z,n\na,b,c,7\n", text="X", pair="y", label="z", id="n")
    (one,) = found.examples
    assert (one.text, one.pair, one.label, one.id) == ("a", "b", "c", "7")
    assert "guessed" not in found.said
    fails(tmp_path / "a.csv", "x,y,z\na,b,c\n", "'body'", "'x', 'y', 'z'", "--text-column", text="body")


def test_only_one_column_is_left(tmp_path: Path) -> None:
    assert 'text = "utt"' in read(tmp_path / "a.jsonl", [{"utt": "a", "label": 1}]).said
    assert 'label = "kind"' in read(tmp_path / "a.csv", "text,kind\na,x\n").said


def test_unknown_columns_are_listed(tmp_path: Path) -> None:
    fails(tmp_path / "a.csv", "x,y,z\na,b,c\n", "'x', 'y', 'z'", "--text-column", "--pair-column", "--label-column")
    fails(tmp_path / "a.csv", "text,v,z\na,b,c\n", "holds the label", "--label-column")


def test_two_columns_without_a_header(tmp_path: Path) -> None:
    found = read(tmp_path / "a.tsv", "pos\tfine\nneg\tbad\npos\tvery nice\n")
    assert found.said == 'a.tsv: 3 rows; no header; text = "2", label = "1" (guessed)'
    assert [(one.text, one.label) for one in found.examples] == [("fine", "pos"), ("bad", "neg"), ("very nice", "pos")]
    found = read(tmp_path / "a.tsv", "1\tgood\n2.5\tbad\n2\tgood\n", task="regress")
    assert [one.label for one in found.examples] == [1, 2.5, 2]


def test_columns_by_number(tmp_path: Path) -> None:
    found = read(tmp_path / "a.tsv", "sun\tlight\t5\nriver\twater\t4\n", "regress", text="1", pair="2", label="3")
    assert [(one.text, one.pair, one.label) for one in found.examples] == [("sun", "light", 5), ("river", "water", 4)]


def test_names_of_labels(tmp_path: Path) -> None:
    values = [1, True, 2.0, 0.5, " x ", "1.0"]
    found = read(tmp_path / "a.jsonl", [{"text": "a", "label": value} for value in values])
    assert [one.label for one in found.examples] == ["1", "True", "2", "0.5", "x", "1.0"]
    found = read(tmp_path / "a.csv", "text,label\na,1.0\n")
    assert found.examples[0].label == "1.0"
    fails(tmp_path / "a.jsonl", [{"text": "a", "label": {"b": 1}}], "a.jsonl:1:", "not a label")


def test_labels_that_are_written_in_two_ways_are_told(tmp_path: Path) -> None:
    rows = [("a", "Yes"), ("b", "yes "), ("c", "YES"), ("d", "no"), ("e", "1"), ("f", "1.0")]
    found = read(tmp_path / "a.csv", "text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    groups = 'the labels "1", "1.0", and 1 more such groups are taken for different classes; write them alike'
    assert len(found.warnings) == 1
    assert groups in found.warnings[0]
    several = read(tmp_path / "b.jsonl", [{"text": "a", "labels": ["x", "X"]}, {"text": "b", "labels": []}])
    assert 'the labels "X", "x" are taken' in several.warnings[0]
    assert not read(tmp_path / "c.csv", "text,label\na,yes\nb,no\nc,nan\n").warnings


def test_several_labels(tmp_path: Path) -> None:
    found = read(tmp_path / "a.jsonl", [{"text": "a", "labels": ["x", 1]}, {"text": "b", "labels": []}])
    assert [one.label for one in found.examples] == [("x", "1"), ()]
    found = read(tmp_path / "a.csv", "text,labels\na,x| y\nb,\nc,z\n", multi="|")
    assert [one.label for one in found.examples] == [("x", "y"), (), ("z",)]
    found = read(tmp_path / "a.parquet", {"text": ["a", "b"], "labels": [["x"], []]})
    assert [one.label for one in found.examples] == [("x",), ()]
    found = read(tmp_path / "a.jsonl", [{"text": "a", "labels": ["x"]}, {"text": "b", "labels": "y"}])
    assert [one.label for one in found.examples] == [("x",), ("y",)]


def test_empty_texts_are_counted(tmp_path: Path) -> None:
    found = read(tmp_path / "a.csv", "text,label\na,x\n ,y\n,x\nb,y\n")
    assert len(found.examples) == 2
    assert found.warnings == [
        f"{tmp_path / 'a.csv'}: left out 2 of 4 rows with an empty text, first at {tmp_path / 'a.csv'}:3"
    ]
    fails(tmp_path / "a.csv", "text,label\n,x\n", "no text", "--text-column")


def test_a_prediction_keeps_every_row(tmp_path: Path) -> None:
    for name, rows in (
        ("a.csv", "text,id\na,1\n,2\nb,3\n"),
        ("a.csv", 'text\na\n""\nb\n'),
        ("a.tsv", "text\tid\na\t\n\t\nb\t\n"),
    ):
        assert [one.text for one in read(tmp_path / name, rows, labels=False).examples] == ["a", "", "b"]
    tagged = [{"tokens": ["a"]}, {"tokens": []}, {"tokens": ["\u00a0"]}, {"tokens": ["b"]}]
    assert [one.text for one in read(tmp_path / "a.jsonl", tagged, "tag", labels=False).examples] == ["a", "", "", "b"]
    asked = [{"question": question, "context": "a"} for question in ("What?", " ", "Who?")]
    assert len(read(tmp_path / "a.jsonl", asked, "qa", labels=False).examples) == 3


def test_missing_labels(tmp_path: Path) -> None:
    rows = [{"text": f"t{number}", "label": "x"} for number in range(20)]
    found = read(tmp_path / "a.jsonl", [*rows, {"text": "a"}])
    assert len(found.examples) == 20
    assert "left out 1 of 21 rows without a label" in found.warnings[0]
    assert "a.jsonl:21" in found.warnings[0]
    bad = [*rows, {"text": "a", "label": None}, {"text": "b", "label": ""}, {"text": "c", "label": float("nan")}]
    fails(tmp_path / "a.jsonl", bad, "a.jsonl:21: 3 of 23 rows have no label", "--label-column")


def test_prediction_needs_no_labels(tmp_path: Path) -> None:
    assert read(tmp_path / "a.csv", "text\na\nb\n", labels=False).examples[1].label is None
    assert [one.text for one in read(tmp_path / "a.csv", "a\nb\n", labels=False).examples] == ["a", "b"]
    assert [one.label for one in read(tmp_path / "a.csv", "text,label\na,x\nb,\n", labels=False).examples] == [
        "x",
        None,
    ]
    found = read(tmp_path / "a.csv", "text,rating,z\na,good,1\n", "regress", labels=False)
    assert found.examples[0].label is None  # a guessed column does not stop a prediction, a given one does
    fails(tmp_path / "a.csv", "text,rating,z\na,good,1\n", "a.csv:2:", task="regress", labels=False, label="rating")
    fails(tmp_path / "a.csv", "text\na\nb\n", "holds the label")


@pytest.mark.parametrize("value", ["nan", "inf", "good", "3,5", True, [1], float("nan"), 10**400])
def test_scores_are_numbers(tmp_path: Path, value: Any) -> None:
    rows = [{"text": "a", "score": "1.5"}, {"text": "b", "score": value}]
    fails(tmp_path / "a.jsonl", rows, "a.jsonl:2:", "'score'", "finite number", "like 3.5", task="regress")


def test_annotators_that_did_not_agree(tmp_path: Path) -> None:
    """SNLI and MultiNLI write so; as a plain label "-" may mean "negative"."""
    rows = [{"sentence1": f"a{n}", "sentence2": "b", "gold_label": "-" if n == 3 else "neutral"} for n in range(20)]
    found = read(tmp_path / "a.jsonl", rows)
    assert {one.label for one in found.examples} == {"neutral"}
    assert found.warnings == [
        f"{tmp_path / 'a.jsonl'}: left out 1 of 20 rows without a label, first at {tmp_path / 'a.jsonl'}:4"
    ]
    assert [one.label for one in read(tmp_path / "b.csv", "text,label\na,-\nb,+\n").examples] == ["-", "+"]


def test_scores_that_no_model_can_hold(tmp_path: Path) -> None:
    rows = [{"text": "a", "score": 1e36}, {"text": "b", "score": "-1e300"}]
    fails(tmp_path / "a.jsonl", rows, "a.jsonl:2:", '"-1e300"', "too large", "divide", task="regress")
    found = read(tmp_path / "b.csv", "text,score\na,1e36\nb,-1e36\n", "regress")
    assert [one.label for one in found.examples] == [1e36, -1e36]


def test_scores(tmp_path: Path) -> None:
    found = read(tmp_path / "a.csv", "text,label,score\na,x,1e-1\nb,y,-2\n", "regress")
    assert [one.label for one in found.examples] == [0.1, -2.0]


def test_texts_are_texts(tmp_path: Path) -> None:
    fails(tmp_path / "a.jsonl", [{"text": 5, "label": 1}], "a.jsonl:1:", "holds 5, not a text", "mend")


def test_texts_to_be_tagged_are_read_as_lines_are(tmp_path: Path) -> None:
    """What a word is there says the task; a column of words keeps its own."""
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "l\'été, Ada."}\n{"text": ""}\n')
    found = read_labelled(file, "tag", labels=False).examples
    assert [(one.text, one.words) for one in found] == [("l'été, Ada.", ()), ("", ())]
    file.write_text('{"words": "l\'été, Ada."}\n')
    (one,) = read_labelled(file, "tag", labels=False).examples
    assert [one.text[start:end] for start, end in one.words] == ["l'été,", "Ada."]


def test_tags(tmp_path: Path) -> None:
    found = read(tmp_path / "a.jsonl", [{"id": 4, "tokens": ["EU", "rose"], "ner_tags": ["I-ORG", "O"]}], "tag")
    (one,) = found.examples
    assert (one.text, one.words, one.label, one.id) == ("EU rose", ((0, 2), (3, 7)), ("B-ORG", "O"), "4")
    found = read(tmp_path / "a.parquet", {"words": [["EU", "rose"]], "tags": [[3, 0]]}, "tag")
    assert found.examples[0].label == ("3", "0")
    assert "numbers" in found.said
    assert read(tmp_path / "a.jsonl", [{"tokens": ["EU"]}], "tag", labels=False).examples[0].label is None
    found = read(tmp_path / "a.jsonl", [{"tokens": ["EU", None, 5], "tags": ["B-ORG", "O", "O"]}], "tag")
    assert (found.examples[0].text, found.examples[0].label) == ("EU 5", ("B-ORG", "O"))  # null is no word "None"
    assert "left out 1 words of white space alone" in found.warnings[0]
    rows = [{"tokens": ["EU", "rose"], "tags": ["O"]}]
    fails(tmp_path / "a.jsonl", rows, "a.jsonl:1: there are 2 words and 1 tags", task="tag")
    fails(tmp_path / "a.jsonl", [{"tokens": ["EU"], "tags": ["PER"]}], "a.jsonl:1: the tag 'PER'", task="tag")
    fails(tmp_path / "a.jsonl", [{"tokens": 5, "tags": ["O"]}], "a.jsonl:1:", "neither a text nor a list", task="tag")


@pytest.mark.parametrize(
    "answers",
    [
        {"text": ["rose"], "answer_start": [3]},
        [{"text": "rose", "start": 3}],
        [{"text": "rose", "answer_start": 3}],
        ["rose"],
        "rose",
    ],
)
def test_questions(tmp_path: Path, answers: Any) -> None:
    row = {"id": "q", "question": "What?", "context": "EU rose", "answers": answers}
    found = read(tmp_path / "a.jsonl", [row], "qa")
    (one,) = found.examples
    assert (one.text, one.pair, one.label, one.id) == ("EU rose", "What?", (Answer("rose", 3),), "q")
    assert not found.warnings


def test_bad_questions(tmp_path: Path) -> None:
    row = {"question": "What?", "context": "EU rose", "answers": {"text": ["rose"], "answer_start": []}}
    fails(tmp_path / "a.jsonl", [row], "a.jsonl:1:", "one start for each", task="qa")
    fails(tmp_path / "a.jsonl", [{"question": "What?", "answers": []}], "the context", "--text-column", task="qa")
    fails(tmp_path / "a.jsonl", [{"question": "What?", "context": "a"}], "the answers", "--label-column", task="qa")
    empty = read(tmp_path / "a.jsonl", [{"question": "What?", "context": "a", "answers": []}], "qa")
    assert empty.examples[0].label == ()


def test_questions_in_a_csv(tmp_path: Path) -> None:
    """All of its cells are texts: a start was refused as no number, and "True" was not taken for it."""
    text = "question,context,answer,answer_start,is_impossible\n"
    text += "Who?,EU EU,EU,3,False\nWhat?,EU,,,True\nWhere?,EU,EU,,0\nHow?,EU,,0,1\n"
    labels = [one.label for one in read(tmp_path / "a.csv", text, "qa").examples]
    assert labels == [(Answer("EU", 3),), (), (Answer("EU", 0),), ()]
    gaps = {"question": ["Who?"] * 2, "context": ["EU EU"] * 2, "answer": ["EU"] * 2, "start": [3.0, None]}
    found = read(tmp_path / "a.parquet", gaps, "qa").examples
    assert [one.label for one in found] == [(Answer("EU", 3),), (Answer("EU", 0),)]
    fails(tmp_path / "a.csv", text.replace(",3,", ",three,"), "a.csv:2: an answer needs", "three", task="qa")


def test_words_and_tags_in_a_csv(tmp_path: Path) -> None:
    """A first row of such names was taken for data."""
    for header in ("tokens,tags", "words,ner_tags", "tokens,ner"):
        (one,) = read(tmp_path / "a.csv", f"{header}\nEU rose,B-ORG O\n", "tag").examples
        assert (one.text, one.label) == ("EU rose", ("B-ORG", "O"))


def test_decimals_are_numbers(tmp_path: Path) -> None:
    values = {"text": ["a", "b"], "label": [Decimal("1.50"), Decimal("2.00")]}
    assert [one.label for one in read(tmp_path / "a.parquet", values, "regress").examples] == [1.5, 2.0]
    assert [one.label for one in read(tmp_path / "a.parquet", values).examples] == ["1.50", "2"]


def test_choices(tmp_path: Path) -> None:
    rows = [{"stem": "A", "options": ["w", "x"], "label": label, "id": label} for label in (1, 2)]
    found = read(tmp_path / "a.jsonl", [*rows, {**rows[0], "stem": " "}], "choice")
    assert [(one.text, one.options, one.label, one.id) for one in found.examples] == [
        ("A", ("w", "x"), 0, "1"),
        ("A", ("w", "x"), 1, "2"),
    ]
    assert found.said == 'a.jsonl: 3 rows; text = "stem", label = "label", answers count from 1'
    assert "left out 1 of 3 rows with an empty text" in found.warnings[0]


def test_bad_calls(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("")
    for path, task, columns, part in [
        (tmp_path, "classify", {}, "is a folder"),
        (tmp_path / "no.csv", "classify", {}, "no such file"),
        (tmp_path / "empty.csv", "classify", {}, "is empty"),
        (tmp_path / "empty.csv", "guess", {}, "no task 'guess'"),
        (tmp_path / "empty.csv", "classify", {"words": "a"}, "'words'"),
    ]:
        with pytest.raises(SesameError, match=part):
            read_labelled(path, task, columns)


@pytest.mark.slow
def test_many_rows(tmp_path: Path) -> None:
    rows = "".join(f'"text, {number}",{number % 7}\n' for number in range(50_000))
    assert len(read(tmp_path / "a.csv", "text,label\n" + rows).examples) == 50_000
