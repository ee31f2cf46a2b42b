"""SQuAD's JSON: answers are where the examples say, moved or left out where the file is wrong."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sesame.data.examples import Answer
from sesame.data.labelled import Labelled, read_labelled
from sesame.data.squad import Finder, nearest
from sesame.errors import SesameError

CONTEXT = "Normandy is in France, and France is in Europe."


def squad(*questions: dict[str, Any]) -> dict[str, Any]:
    return {"version": "v2.0", "data": [{"title": "t", "paragraphs": [{"context": CONTEXT, "qas": list(questions)}]}]}


def question(id: str, *answers: tuple[str, int], **more: Any) -> dict[str, Any]:
    return {
        "id": id,
        "question": "Where?",
        "answers": [{"text": text, "answer_start": start} for text, start in answers],
        **more,
    }


def read(path: Path, value: Any, labels: bool = True) -> Labelled:
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return read_labelled(path, "qa", labels=labels)


def test_both_versions(tmp_path: Path) -> None:
    found = read(
        tmp_path / "a.json",
        squad(question("q1", ("France", 15), ("Europe", 40)), question("q2", is_impossible=True), question("q3")),
    )
    assert [one.label for one in found.examples] == [(Answer("France", 15), Answer("Europe", 40)), (), ()]
    first = found.examples[0]
    assert (first.text, first.pair, first.id) == (CONTEXT, "Where?", "q1")
    assert first.place == f"{tmp_path / 'a.json'}: question q1"
    assert not found.warnings


def test_packed(tmp_path: Path) -> None:
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(json.dumps(squad(question("q1", ("France", 15)))).encode()))
    assert read_labelled(path, "qa").examples[0].label == (Answer("France", 15),)


def test_impossible_questions_have_no_answer(tmp_path: Path) -> None:
    found = read(tmp_path / "a.json", squad(question("q1", ("France", 15), is_impossible=True)))
    assert found.examples[0].label == ()


def test_answers_are_moved_to_the_nearest_place(tmp_path: Path) -> None:
    questions = [question("q1", ("France", 24)), question("q2", ("France", 13)), question("q3", (" France", 14))]
    found = read(tmp_path / "a.json", squad(*questions))
    assert [one.label[0].start for one in found.examples] == [27, 15, 15]
    assert found.warnings == [
        f"{tmp_path / 'a.json'}: moved to where they are in the context: 2 answers, first at "
        f"{tmp_path / 'a.json'}: question q1"
    ]


def test_answers_that_are_nowhere_are_left_out(tmp_path: Path) -> None:
    good = [question(f"g{number}", ("France", 15)) for number in range(20)]
    path = tmp_path / "a.json"
    found = read(path, squad(*good, question("bad", ("Spain", 3)), question("half", ("Spain", 3), ("France", 15))))
    assert len(found.examples) == 21
    assert found.examples[-1].label == (Answer("France", 15),)
    assert "not in the context: 2 answers" in found.warnings[0]
    assert "question bad" in found.warnings[0]
    assert "1 of 22 questions without a label" in found.warnings[1]
    assert len(read(path, squad(*good, question("bad", ("Spain", 3))), labels=False).examples) == 21


def test_prediction_needs_no_answers(tmp_path: Path) -> None:
    value = squad({"id": 7, "question": "Where?"})
    assert read(tmp_path / "a.json", value, labels=False).examples[0].id == "7"
    with pytest.raises(SesameError, match=r"a\.json: question 7: 1 of 1 questions have no answer, or none that stands"):
        read(tmp_path / "a.json", value)


@given(st.text("ab ", max_size=30), st.text("ab ", max_size=4), st.integers(0, 40))
def test_nearest_is_nearest(context: str, text: str, start: int) -> None:
    bare = text.strip()
    places = [at for at in range(len(context)) if bare and context.startswith(bare, at)]
    goal = start + len(text) - len(text.lstrip())
    found = nearest(context, text, start)
    if not places:
        assert found is None
    else:
        assert found in places
        assert abs(found - goal) == min(abs(at - goal) for at in places)


@given(st.text("abc", min_size=5, max_size=20), st.data())
def test_right_answers_stay(context: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(context) - 1))
    text = context[start : start + data.draw(st.integers(1, 5))]
    finder = Finder()
    assert finder.find(context, [(text, start)], "here") == (Answer(text, start),)
    assert not finder.warnings()


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        ('{"data":\n [}', ["a.json:2:", "not JSON", "copy it again"]),
        ('{"data": []}\n{"data": []}', ["a.json:2:", ".jsonl"]),
        ([], ["a.json:", "SQuAD", ".jsonl"]),
        ({"rows": []}, ["a.json: has no list 'data'", "add it"]),
        ({"data": [{"paragraphs": [{"qas": []}]}]}, ["a.json: data[0].paragraphs[0]: has no text 'context'"]),
        ({"data": [{"paragraphs": [5]}]}, ["a.json: data[0].paragraphs[0]: is not a JSON object", "mend"]),
        (squad({"id": "x"}), ["data[0].paragraphs[0].qas[0]: has no text 'question'"]),
        (squad(question("x", ("France", "15"))), ["question x", '["France", "15"]', "mend it"]),
        (squad(question("x", answers=5)), ["question x", "not a list", "mend"]),
        ({"data": []}, ["a.json:", "no text"]),
    ],
)
def test_bad_files(tmp_path: Path, value: Any, parts: list[str]) -> None:
    with pytest.raises(SesameError) as caught:
        read(tmp_path / "a.json", value)
    for part in (str(tmp_path), *parts):
        assert part in str(caught.value)


def test_columns_make_no_sense(tmp_path: Path) -> None:
    read(tmp_path / "a.json", squad(question("q1", ("France", 15))))
    with pytest.raises(SesameError, match="leave out --text-column"):
        read_labelled(tmp_path / "a.json", "qa", {"text": "context"})
