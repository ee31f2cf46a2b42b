"""Rows of multiple choice: where the stem, the options and the right one stand, and how that one is told."""

import json
from pathlib import Path
from typing import Any

import pytest

from sesame.data.choices import read_choices
from sesame.data.examples import Example
from sesame.data.tables import read_table
from sesame.errors import SesameError


def read(path: Path, data: Any, labels: bool = True, **columns: str) -> tuple[list[Example], str, list[str]]:
    """Write a text as it is, a list of rows as JSON lines; then read it."""
    text = data if isinstance(data, str) else "".join(json.dumps(row) + "\n" for row in data)
    path.write_text(text, encoding="utf-8")
    return read_choices(read_table(path, [*columns.values()]), columns, labels)


def fails(path: Path, data: Any, *parts: str) -> None:
    with pytest.raises(SesameError) as caught:
        read(path, data)
    message = str(caught.value)
    assert "\n" not in message
    for part in (str(path), "; ", *parts):
        assert part in message


SWAG = "sent1,sent2,startphrase,ending0,ending1,ending2,ending3,label\nA,B,A B,w,x,y,z,2\n"


@pytest.mark.parametrize(
    ("name", "data", "stem", "options", "label"),
    [
        ("a.csv", SWAG, "A B", "wxyz", 2),
        ("a.csv", SWAG.replace("startphrase,", "").replace("A B,", ""), "A B", "wxyz", 2),
        ("a.jsonl", [{"article": "A", "question": "B", "options": ["w", "x"], "answer": "B"}], "A\nB", "wx", 1),
        ("a.jsonl", [{"stem": "A", "choices": ["w", "x"], "label": 0}], "A", "wx", 0),
        ("a.jsonl", [{"question_stem": "A", "choices": ["w", "x"], "answerKey": "B"}], "A", "wx", 1),
        ("a.jsonl", [{"context": "A", "endings": ["w", "x"], "label": "x"}], "A", "wx", 1),
        ("a.jsonl", [{"premise": "A", "choice1": "w", "choice2": "x", "label": 1}], "A", "wx", 1),
        (
            "a.jsonl",
            [{"question": "A", "choices": {"label": ["1", "2"], "text": ["w", "x"]}, "answerKey": "1"}],
            "A",
            "wx",
            0,
        ),
    ],
)
def test_choices(tmp_path: Path, name: str, data: Any, stem: str, options: str, label: int) -> None:
    ((one,), _, _) = read(tmp_path / name, data)
    assert (one.text, one.options, one.label) == (stem, tuple(options), label)


def test_choices_that_count_from_one(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"stem": "A", "options": ["w", "x"], "label": label} for label in (1, "2", 1)]
    examples, said, _ = read(tmp_path / "a.jsonl", rows)
    assert [one.label for one in examples] == [0, 1, 0]
    assert "count from 1" in said
    fails(tmp_path / "a.jsonl", [*rows, {**rows[0], "label": 0}], "a.jsonl:2:", "a.jsonl:4 counts")


def test_options_that_are_numbers(tmp_path: Path) -> None:
    """An answer beyond the numbers of options is a text, and then all are."""
    rows = [
        {"stem": "A", "options": ["10", "20"], "answer": 20},
        {"stem": "B", "options": ["2", "1", "0"], "answer": "1"},
    ]
    examples, said, warnings = read(tmp_path / "a.jsonl", rows)
    assert [one.label for one in examples] == [1, 1]
    assert "by their text" in said
    assert not warnings
    assert read(tmp_path / "b.jsonl", rows[1:])[0][0].label == 1
    fails(
        tmp_path / "c.jsonl",
        [*rows, {"stem": "C", "options": ["4", "5"], "answer": 1}],
        "c.jsonl:3",
        "c.jsonl:1 tells it by its text",
    )
    fails(tmp_path / "d.jsonl", [{"stem": "A", "options": ["10", "20"], "answer": 30}], "none of the 2")


def test_rows_that_do_not_tell_from_where_answers_count(tmp_path: Path) -> None:
    """A few rows of a set that counts from 1 may hold no last option, and were read as the options behind the right ones."""
    rows = [{"stem": "A", "options": ["w", "x", "y"], "label": label} for label in (1, 2)]
    examples, _, (warning,) = read(tmp_path / "a.jsonl", rows)
    assert [one.label for one in examples] == [1, 2]
    assert "count from 0" in warning
    assert not read(tmp_path / "a.jsonl", rows, labels=False)[2]
    for sure in (0, 3, "B"):
        told = [{**row, "label": sure} for row in rows] if sure == "B" else [*rows, {**rows[0], "label": sure}]
        assert not read(tmp_path / "a.jsonl", told)[2]


def test_columns_of_options_may_be_empty_at_the_end(tmp_path: Path) -> None:
    examples, _, _ = read(tmp_path / "a.csv", "question,A0,choice1,choice2,choice3,label\nA,0,w,x,y,3\nB,0,w,x,,1\n")
    assert [(one.options, one.label) for one in examples] == [(("w", "x", "y"), 2), (("w", "x"), 0)]
    fails(tmp_path / "a.csv", "question,choice1,choice2,choice3,label\nA,w,,y,1\n", "a.csv:2:", "two or more texts")
    fails(tmp_path / "a.csv", "question,choice1,choice2,choice3,label\nA,w,,,1\n", "a.csv:2:", "two or more texts")


@pytest.mark.parametrize(
    ("row", "parts"),
    [
        ({"stem": "A", "options": ["w", "x"], "label": 3}, ["a.jsonl:1:", "none of the 2", "number or letter"]),
        ({"stem": "A", "options": ["w", "x"], "label": "C"}, ["a.jsonl:1:", '"C"']),
        ({"stem": "A", "options": ["w"], "label": 0}, ["a.jsonl:1:", "two or more"]),
        (
            {"stem": "A", "choices": {"label": ["A", "B", "C"], "text": ["w", "x"]}, "answerKey": "C"},
            ["a.jsonl:1:", "the 2 options have 3 letters", "one letter for each"],
        ),
        ({"stem": "A", "label": 0}, ["cannot tell which columns hold the options", "'options'"]),
        ({"options": ["w", "x"], "label": 0}, ["the stem", "--text-column"]),
        ({"stem": "A", "options": ["w", "x"]}, ["the right answer", "--label-column"]),
    ],
)
def test_bad_choices(tmp_path: Path, row: dict[str, Any], parts: list[str]) -> None:
    fails(tmp_path / "a.jsonl", [row], *parts)


def test_columns_are_given(tmp_path: Path) -> None:
    rows = [{"stem": "A", "tale": "B", "ask": "C", "options": ["w", "x"], "label": 0, "best": "x"}]
    (one,), said, _ = read(tmp_path / "a.jsonl", rows, text="tale", pair="ask", label="best")
    assert (one.text, one.label) == ("B\nC", 1)
    assert said == 'text = "tale, ask", label = "best"'


def test_prediction_needs_no_right_one(tmp_path: Path) -> None:
    (one,), _, _ = read(tmp_path / "a.jsonl", [{"stem": "A", "options": ["w", "x"]}], labels=False)
    assert (one.options, one.label) == (("w", "x"), None)


def test_a_guessed_column_stops_no_prediction(tmp_path: Path) -> None:
    """SWAG's test rows have -1 for the right one, which is not told."""
    rows = [{"stem": "A", "options": ["w", "x"], "label": label} for label in (-1, 1)]
    examples, _, _ = read(tmp_path / "a.jsonl", rows, labels=False)
    assert [one.label for one in examples] == [None, 1]
    with pytest.raises(SesameError, match="none of the 2 options"):
        read(tmp_path / "a.jsonl", rows, labels=False, label="label")
