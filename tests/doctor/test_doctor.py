"""`sesame doctor`: what it finds, what it prints, how it ends."""

import json
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sesame.cli import app
from sesame.doctor import run_doctor
from sesame.doctor.findings import NO_CONTROL
from sesame.errors import SesameError
from sesame.text.train import train_tokenizer

ENGLISH = [
    "The cat sat on the mat and looked at the moon. It was late in the evening.",
    "A dog came to the house of the cat, and that was the end of the peace for them. They ran.",
    "Nobody was in the garden with the birds. The rain had gone to the other side of the hill.",
    "There is a river that runs to the sea. In the spring it is wide, and in the summer it is not.",
]
RUSSIAN = [
    "Мой ёж — это не зверь, а маленький злой йог. И в этой чаще он самый большой герой.",
    "Синий чай стоит на краю стола. Мой друг ещё не пришёл, и чай остывает.",
]


def write(path: Path, *documents: str) -> str:
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return str(path)


def examine(capsys: pytest.CaptureFixture[str], *text: str, tokenizer: str | None = None) -> tuple[int, dict[str, Any]]:
    code = run_doctor(list(text), tokenizer, "text", True)
    return code, json.loads(capsys.readouterr().out)


def levels(report: dict[str, Any]) -> dict[str, str]:
    return {finding["what"]: finding["level"] for finding in report["findings"]}


@pytest.fixture
def uncased(tmp_path: Path) -> str:
    folder = tmp_path / "uncased"
    folder.mkdir()
    train_tokenizer(ENGLISH * 3, "wordpiece", 300, lowercase=True, strip_accents=True).save(folder)
    return str(folder)


def test_good_text_is_only_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, report = examine(capsys, write(tmp_path / "a.txt", *ENGLISH))
    assert code == 0
    assert levels(report) == {"small": "note"}
    assert report["text"]["documents"] == 4
    assert report["tokenizer"] is None


@pytest.mark.parametrize(
    ("what", "level", "documents"),
    [
        ("replacement", "hurts", [*ENGLISH, "caf\ufffd and tea. Fine."]),
        ("replacement", "note", [*(f"{text} {n}" for n in range(60) for text in ENGLISH), "caf\ufffd. Fine."]),
        ("control", "hurts", [*ENGLISH, "the bell \x07 rings. Fine."]),
        ("mojibake", "hurts", [*ENGLISH, "cafÃ© Ã  la crÃ¨me, dÃ©jÃ  vu. Fine."]),
        ("mojibake", "note", [*ENGLISH, "cafÃ© is a word. Fine."]),
        ("invisible", "note", [*ENGLISH, "zero\u200bwidth. Fine."]),
        ("html", "note", [*ENGLISH, "<p>one</p>\n<p>two</p>\n<p>three</p>\nFine. Good."]),
        ("not_nfc", "note", [*ENGLISH, "cafe\u0301\ncafe\u0301\ncafe\u0301\nFine. Good."]),
        ("repeated_paragraphs", "hurts", [f"Page {n}.\n{ENGLISH[0]}" for n in range(5)]),
        ("repeated_documents", "note", [*(f"{text} {n}" for n in range(9) for text in ENGLISH), *[ENGLISH[0] * 2] * 2]),
        ("scripts", "note", [*ENGLISH, RUSSIAN[0]]),
        ("one_document", "note", [" ".join(ENGLISH)]),
        ("one_sentence_documents", "note", ["Only one sentence here.", "And one there.", "Done."]),
        ("long_sentences", "note", [*ENGLISH, "word " * 200]),
    ],
)  # fmt: skip
def test_findings_about_the_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str, level: str, documents: list[str]
) -> None:
    code, report = examine(capsys, write(tmp_path / "a.txt", *documents))
    assert levels(report).get(what) == level
    assert code == int("hurts" in levels(report).values())
    assert code == int(level == "hurts")


def test_a_broken_file_is_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_bytes("first\ncafé au lait, s'il vous plaît".encode("latin-1"))
    code, report = examine(capsys, str(bad), write(tmp_path / "good.txt", *ENGLISH))
    assert code == 1
    assert report["findings"][0]["what"] == "unreadable"
    assert f"{bad}:2" in report["findings"][0]["text"]
    assert "iconv" in report["findings"][0]["text"]


def test_bad_paths_and_empty_text_are_errors(tmp_path: Path) -> None:
    with pytest.raises(SesameError, match="no such file"):
        run_doctor([str(tmp_path / "missing.txt")], None, "text", False)
    with pytest.raises(SesameError, match="no text inside"):
        run_doctor([write(tmp_path / "empty.txt", " ")], None, "text", False)
    with pytest.raises(SesameError, match="nowhere"):
        run_doctor([write(tmp_path / "a.txt", *ENGLISH)], str(tmp_path / "nowhere"), "text", False)


def test_a_tokenizer_that_does_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str], uncased: str) -> None:
    code, report = examine(capsys, write(tmp_path / "a.txt", *RUSSIAN), tokenizer=uncased)
    assert code == 1
    assert levels(report)["unknown"] == "hurts"
    assert levels(report)["merged_letters"] == "hurts"
    merged = {merge["becomes"]: merge["letters"] for merge in report["tokenizer"]["merged"]}
    assert set(merged) == {"и", "е"}
    assert set(merged["и"]) == {"и", "й"}


def test_a_handful_of_accents_is_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str], uncased: str) -> None:
    code, report = examine(
        capsys, write(tmp_path / "a.txt", *ENGLISH * 4, "The cat sat in the café. Late."), tokenizer=uncased
    )
    assert levels(report)["merged_letters"] == "note"
    assert code == int("hurts" in levels(report).values())


def test_missing_roles_hurt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = train_tokenizer(ENGLISH * 3, "wordpiece", 300, lowercase=True)
    tokens = [token for token in made.tokens() if token != "[MASK]"]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    code, report = examine(capsys, write(tmp_path / "a.txt", *ENGLISH), tokenizer=str(tmp_path / "vocab.txt"))
    assert code == 1
    assert report["tokenizer"]["missing_roles"] == ["mask"]
    assert report["masked_examples"] == []


def test_masked_examples_are_those_of_the_objective(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], uncased: str
) -> None:
    _, report = examine(capsys, write(tmp_path / "a.txt", *ENGLISH), tokenizer=uncased)
    rows = report["masked_examples"]
    assert len(rows) == 4  # one for each document
    for row in rows:
        assert (row[0]["token"], row[-1]["token"]) == ("[CLS]", "[SEP]")
        asked = [entry for entry in row if entry["original"] is not None]
        assert len(asked) == round(0.15 * len(row))
    everything = [entry for row in rows for entry in row if entry["original"] is not None]
    assert any(entry["token"] == "[MASK]" for entry in everything)
    assert {entry["original"] for entry in everything} & {"the", "cat", ".", "in", "of", "it"}


def test_report_is_plain_when_piped(tmp_path: Path, uncased: str) -> None:
    path = write(tmp_path / "a.txt", *ENGLISH, "[bold]caf\ufffd[/] with [brackets]. Fine.")
    result = CliRunner().invoke(app, ["doctor", path, "--tokenizer", uncased])
    assert result.exit_code == 1
    assert "\x1b" not in result.stdout
    lines = result.stdout.splitlines()
    assert lines[0].startswith("hurts")
    assert any(line.startswith("note") for line in lines)
    assert any("[MASK]‹" in line for line in lines)
    assert any("█" in line for line in lines)


def test_json_through_the_command(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["doctor", write(tmp_path / "a.txt", *ENGLISH), "--json"])
    assert result.exit_code == 0
    assert set(json.loads(result.stdout)) == {"findings", "text", "tokenizer", "masked_examples"}


@pytest.mark.skipif(shutil.which("perl") is None, reason="the remedy is a command that is not installed here")
def test_the_remedy_removes_every_control_character(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = "Tab\there, Ёж und Käse\n" * 99  # so much that nobody takes the file for a binary one
    text = kept + "".join(map(chr, (*range(1, 9), *range(11, 32), *range(127, 160)))) + kept
    report = examine(capsys, write(tmp_path / "bad.txt", text))[1]
    (told,) = [finding["text"] for finding in report["findings"] if finding["what"] == "control"]
    assert NO_CONTROL in told
    found = subprocess.run(shlex.split(NO_CONTROL), input=text.encode(), capture_output=True, check=True)
    assert found.stdout.decode() == kept + kept
