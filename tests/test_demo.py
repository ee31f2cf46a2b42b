"""The demo on a small made-up library of docstrings."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sesame import demo, demo_labels
from sesame.data.docstrings import Docstring
from sesame.errors import SesameError
from sesame.text.train import train_tokenizer

THINGS = ["list", "file", "name", "value", "number", "string"]


def harvest(limit: int) -> Iterator[Docstring]:
    """Two libraries of sixty modules in a few patterns; each has a verb of its own."""
    for library, verb in (("one", "Return"), ("two", "Remove")):
        for number in range(60):
            for at, thing in enumerate(THINGS):
                other = THINGS[(number + at) % 6]
                text = (
                    f"{verb} the {thing} of the {other} that was given to the function {number}. "
                    f"The {thing} is not changed by the function, and nothing is raised for a {thing} that is empty."
                )
                yield Docstring(library, f"{library}.module{number}", "f", text)


def test_questions_hide_one_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "harvest", harvest)
    monkeypatch.setattr(demo, "HELD_OUT", 6)
    monkeypatch.setattr(demo_labels, "TEST", 20)
    text, held = tmp_path / "documentation.txt", tmp_path / "heldout.txt"
    demo.write_documentation(text, held)
    assert text.read_text(encoding="utf-8").count("\n\n") + held.read_text(encoding="utf-8").count("\n\n") == 118
    tokenizer = train_tokenizer([entry.text for entry in harvest(0)], "wordpiece", 300, lowercase=True)
    asked = list(demo.questions(held, tokenizer, demo.count_words(text)))
    assert asked
    for question in asked:
        assert question.text.count("[MASK]") == 1
        assert question.text.replace("[MASK]", question.answer).lower() in held.read_text(encoding="utf-8").lower()


def test_test_docstrings_are_not_among_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "harvest", harvest)
    monkeypatch.setattr(demo, "HELD_OUT", 6)
    monkeypatch.setattr(demo_labels, "TEST", 20)
    text = tmp_path / "documentation.txt"
    demo.write_documentation(text, tmp_path / "heldout.txt")
    files = {part: (tmp_path / f"{part}.jsonl").read_text(encoding="utf-8") for part in ("labels", "valid", "test")}
    counts = {part: lines.count("\n") for part, lines in files.items()}
    assert counts == {"labels": 40, "valid": 10, "test": 40}
    trained = text.read_text(encoding="utf-8")
    assert not any(line.split('"')[3] in trained for line in files["test"].splitlines())
    assert not set(files["labels"].splitlines()) & set(files["valid"].splitlines())


def test_demo_without_documentation_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "harvest", lambda limit: [])
    with pytest.raises(SesameError, match="too little documentation"):
        demo.run_demo(tmp_path / "demo", 1.0)


@pytest.mark.slow
def test_demo_from_text_to_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SESAME_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(demo, "harvest", harvest)
    monkeypatch.setattr(demo, "HELD_OUT", 6)
    monkeypatch.setattr(demo, "SETTINGS", (*demo.SETTINGS, "tokenizer.size=300"))
    monkeypatch.setattr(demo_labels, "TEST", 20)
    monkeypatch.setattr(demo_labels, "SEEDS", 2)
    demo.run_demo(tmp_path / "demo", 8.0)
    shown = capsys.readouterr().out
    assert "[MASK]" in shown
    assert "right at the first guess" in shown
    assert "from scratch" in shown
    assert "fine-tuned against" in shown
    assert (tmp_path / "demo" / "bert" / "final" / "model.safetensors").is_file()
    assert (tmp_path / "demo" / "fine-tuned" / "report.html").is_file()
