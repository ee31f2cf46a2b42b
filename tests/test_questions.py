"""Tasks as questions: templates are filled row by row, and one model answers what it is asked."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

import sesame
from sesame.data.parallel import Counted
from sesame.data.questions import is_template, read_questions
from sesame.errors import SesameError
from sesame.evaluate.spoken import judge_answers, read_sides
from sesame.finetuning.answering import finetune
from sesame.finetuning.answering_wishes import Wishes
from tests.answer_toys import OTHERS, WORDS, answer, stranger

ASK = "question: {question} context: {context}"
QUICK = ("stages.main.tokens=512", "objectives.seq2seq.smoothing=0.0")


def write(file: Path, rows: list[dict[str, Any]]) -> Path:
    """As JSON lines or as a table, by the name of the file."""
    if file.suffix == ".jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        lines = ["\t".join(rows[0]), *("\t".join(map(str, row.values())) for row in rows)]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


ROWS: list[dict[str, Any]] = [
    {"id": 1, "question": "who?", "context": "Ann {sings}", "answer": "Ann"},
    {"id": 2, "question": "what?", "context": "Ann {question}", "answer": "sings"},
    {"id": 3, "question": "", "context": "", "answer": "nothing"},
    {"id": 4, "question": "when?", "context": "today", "answer": ""},
    {"id": 5, "question": "", "context": "today", "answer": "7"},
]


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.tsv"])
def test_rows_fill_the_template(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, counted = write(tmp_path / name, ROWS), Counted()
    found, column = read_questions(file, ASK, None, counted)
    assert [(pair.source, pair.target) for pair in found] == [
        ("question: who? context: Ann {sings}", "Ann"),  # braces in a cell are no field
        ("question: what? context: Ann {question}", "sings"),
        ("question:  context: today", "7"),
    ]
    assert (column, counted.pairs, counted.empty) == ("answer", 3, 2)
    assert found[1].place == f"{file}:{2 if name.endswith('l') else 3}"
    sides = read_sides(str(file), "{Context} {id}", "ANSWER", "say:")
    assert (sides.sources[0], sides.answers[0]) == ("say: Ann {sings} 1", "Ann")
    assert "1 pairs are left out" in capsys.readouterr().err  # here only the empty answer: the third row has a number


def test_one_field_at_the_end_is_a_prefix(tmp_path: Path) -> None:
    file = str(write(tmp_path / "rows.jsonl", ROWS[:2]))
    assert read_sides(file, "ask: {question}", "answer") == read_sides(file, "question", "answer", "ask: ")
    assert [is_template(text) for text in ("question", "{question}", "a {b} c", "{}", None)] == [
        False,
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("template", "target", "said"),
    [
        ("{query} {context}", None, "has no column 'query'"),
        ("{context}", "reply", "has no column 'reply'"),
        ("{answer}", None, "which column has the answers"),
    ],
)
def test_wrong_columns_are_named(template: str, target: str | None, said: str, tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", ROWS)
    with pytest.raises(SesameError, match=said):
        read_questions(file, template, target, Counted())


def test_wrong_files_are_named(tmp_path: Path) -> None:
    plain = tmp_path / "rows.txt"
    plain.write_text("a\n")
    lists = write(tmp_path / "lists.jsonl", [{"context": "a", "answer": ["b"]}])
    empty = write(tmp_path / "empty.jsonl", [{"context": "", "answer": "b"}])
    for file, said in (
        (plain, "plain text has no columns"),
        (lists, "holds no text"),
        (empty, "no row"),
        (tmp_path / "x.tsv", "no such file"),
    ):
        with pytest.raises(SesameError, match=said):
            read_questions(file, "{context}", None, Counted())


def test_two_tasks_do_not_begin_alike(tmp_path: Path) -> None:
    """The second would take the place of the first."""
    start = stranger(tmp_path / "model", "t5")
    train = write(tmp_path / "train.jsonl", [{"source": f"ba {n}", "target": "be"} for n in range(30)])
    more = write(tmp_path / "more.jsonl", ROWS[:2])
    wishes = Wishes(str(start), str(train), tmp_path / "run", also=[f"{ASK}={more}"] * 2, device="cpu", steps=1)
    with pytest.raises(SesameError, match="another task begins like this"):
        finetune(wishes)


# ---- learning -------------------------------------------------------------------------------------------------------

QUESTIONS = {OTHERS[0]: "copy", OTHERS[1]: "reverse"}  # what each asks for


def asked(count: int, seed: int) -> list[dict[str, str]]:
    """The same texts under both questions: only the question tells which answer is wanted."""
    luck, found = random.Random(seed), []
    for _ in range(count // 2):
        words = [luck.choice(WORDS) for _ in range(luck.randint(2, 3))]
        for question, kind in QUESTIONS.items():
            found.append({"question": question, "context": " ".join(words), "answer": " ".join(answer(kind, words))})
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0])
def test_a_model_answers_what_it_is_asked(seed: int, tmp_path: Path, one_thread: None) -> None:
    """Questions of the rows, and one task more whose question is in its template; tasks are drawn alike."""
    start = stranger(tmp_path / "start", "t5", seed, 64, initializer_factor=0.4)
    train = write(tmp_path / "train.jsonl", asked(3000, seed))
    valid, test = (
        write(tmp_path / f"{name}.jsonl", asked(80, seed + more)) for name, more in (("valid", 50), ("test", 60))
    )
    swap = [(row["context"].split(), "swap") for row in asked(1000, seed + 70)]
    more = write(tmp_path / "swap.tsv", [{"text": " ".join(a), "label": " ".join(answer(kind, a))} for a, kind in swap])
    ask = "{question} {context}"
    model = sesame.finetune(
        start, "seq2seq", train, tmp_path / "run", valid=str(valid), source=ask, also=[f"{OTHERS[2]} {{text}}={more}"],
        temperature=float("inf"), steps=500, rate=4e-3, beams=1, most=8, seeds=1, seed=seed, metric="exact", settings=QUICK,
        device="cpu",
    )  # fmt: skip
    scores = judge_answers(str(tmp_path / "run"), str(test), source=ask, device="cpu", beams=1, most=8)["scores"]
    assert scores["exact"] > 0.9
    rows = asked(80, seed + 90)[::2]
    said = model.translate([f"{OTHERS[2]} {row['context']}" for row in rows], beams=1, most=8)
    right = [
        one[0].text == " ".join(answer("swap", row["context"].split())) for one, row in zip(said, rows, strict=True)
    ]
    assert sum(right) / len(right) > 0.9
