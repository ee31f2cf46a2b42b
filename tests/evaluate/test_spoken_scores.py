"""Answers against the answers wanted: every score is that of its own file, comparisons point the right way."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sesame.errors import SesameError
from sesame.evaluate.rouge import rouge_scores
from sesame.evaluate.spoken import METRICS, columns_of, compare_answers, judge_answers, read_sides, score_answers
from sesame.evaluate.translation import Bleu, corpus_score
from sesame.tasks import speak
from sesame.tasks.speak import Voice
from sesame.text import Tokenizer
from tests.answer_toys import stranger

GOLD = ["the cat sat on the mat today", "a dog ran far away from home", "birds sing in the old tree"] * 4
GOOD = [*GOLD[:10], "a dog ran home", "birds sing"]
BAD = [text[::-1] for text in GOLD]
TREES = ["(S (NP DT NN )NP (VP VBD . )VP )S", "(S (NP NN )NP (VP VBZ (NP DT NN )NP )VP )S"] * 4


def test_scores_are_those_of_their_files() -> None:
    found = score_answers(GOLD, GOOD, rounds=200)
    bleu = corpus_score(Bleu(), GOLD, GOOD, 200)
    assert (found.values["bleu"], *found.intervals["bleu"]) == (bleu.value, bleu.low, bleu.high)
    assert found.signatures["bleu"] == bleu.signature
    rouge = rouge_scores(GOLD, GOOD, rounds=200)["rougeL"]
    assert (found.values["rougeL"], *found.intervals["rougeL"]) == (rouge.value, rouge.low, rouge.high)
    assert found.values["exact"] == 10 / 12
    perfect = score_answers(GOLD, GOLD).values
    assert all(value == pytest.approx(1) for value in perfect.values())


def test_brackets_of_answers() -> None:
    assert score_answers(TREES, TREES, trees=True).values["brackets"] == 1
    flat = ["(S DT NN VBD . )S", "(S NN VBZ DT NN )S"] * 4
    # 3 and 4 gold brackets, 1 right of 1 said each: 2 * 2 / (2 + 7)
    found = score_answers(TREES, flat, trees=True, rounds=100)
    assert found.values["brackets"] == pytest.approx(4 / 9)
    low, high = found.intervals["brackets"]
    assert low <= 4 / 9 <= high
    assert score_answers(TREES, ["nothing"] * 8, trees=True).values["brackets"] == 0


def test_trees_without_tags_are_not_counted_as_evalb_does(capsys: pytest.CaptureFixture[str]) -> None:
    """Where a full stop hangs does not matter there; without its tag nobody knows that it is one."""
    gold, said = ["(S (NP NN )NP (VP VBZ )VP . )S"], ["(S (NP NN )NP (VP VBZ . )VP )S"]
    assert score_answers(gold, said, trees=True).values["brackets"] == 1
    assert "evalb" not in capsys.readouterr().err
    bare = [[" ".join(w if w[0] in "()" else "XX" for w in text.split()) for text in side] for side in (gold, said)]
    assert score_answers(*bare, trees=True).values["brackets"] == pytest.approx(2 / 3)
    assert "punctuation counts as words, which evalb leaves out" in capsys.readouterr().err


@pytest.mark.parametrize("metric", METRICS)
def test_the_better_system_is_told(metric: str) -> None:
    gold, good, bad = (TREES, TREES, ["(S XX )S"] * 8) if metric == "brackets" else (GOLD, GOOD, BAD)
    for sign, (a, b) in ((1, (good, bad)), (-1, (bad, good))):
        found = compare_answers(metric, gold, a, b, 200)
        assert np.sign(found["difference"]) == sign
        assert found["low"] <= found["difference"] <= found["high"]
        assert found["p"] < 0.05
    assert compare_answers(metric, gold, good, good, 50)["difference"] == 0


def test_other_alphabets_count() -> None:
    gold = ["кот сидит на окне", "собака бежит домой"]
    assert score_answers(gold, gold).values["rouge1"] == 1
    with pytest.raises(SesameError, match="--metric blue"):
        compare_answers("blue", gold, gold, gold)


def test_columns_called_by_the_languages_that_a_model_was_taught(tmp_path: Path) -> None:
    """As the training data may call them: the heading is no pair, and their order does not matter."""
    run = tmp_path / "run"
    (run / "final").mkdir(parents=True)
    (run / "final" / "sesame.toml").write_text('[run]\npairs = ["en-de=a.tsv", "en-de=b.tsv"]\n')
    (tmp_path / "test.tsv").write_text("id\tde\ten\n1\tein Hund\ta dog\n2\tzwei\ttwo\n")
    data = str(tmp_path / "test.tsv")
    assert columns_of(str(run), data) == columns_of(str(run / "final"), data) == ("en", "de")
    sides = read_sides(data, *columns_of(str(run), data))
    assert (sides.sources, sides.answers) == (["a dog", "two"], ["ein Hund", "zwei"])
    (tmp_path / "bare.tsv").write_text("a dog\tein Hund\n")
    for other in ("bare.tsv", "test.en,test.de"):  # nothing named, or plain text
        assert columns_of(str(run), str(tmp_path / other)) == (None, None)
    assert columns_of(str(tmp_path), data) == (None, None)  # a model that tells nothing
    said = run / "final" / "sesame.toml"
    for source, target, found in (
        ("en", "de", ("en", "de")),  # as --source and --target of its fine-tuning
        ("{id}: {en}", "de", ("{id}: {en}", "de")),
        ("en", "fr", (None, None)),  # another table
        ("{subject} {en}", "de", (None, None)),
    ):
        said.write_text(f'[run]\nsource = "{source}"\ntarget = "{target}"\nprefix = ""\n')
        assert columns_of(str(run), data) == found


def test_a_stranger_is_scored_on_sources_as_they_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A summariser that knows lines reads them in `evaluate` as in `translate`: both leave it to the model's voice."""
    model, read = stranger(tmp_path / "model", "bart"), list[str]()

    def inputs(tokenizer: Tokenizer, texts: list[str], voice: Voice, *more: Any) -> list[list[int]]:
        read.extend(map(voice.read, texts))
        return found(tokenizer, texts, voice, *more)

    found = speak.inputs_of
    monkeypatch.setattr(speak, "inputs_of", inputs)
    rows = [{"source": "ba be\nda  di", "target": "ba be"}, {"source": "bo\r\nda", "target": "da"}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    judge_answers(str(model), str(tmp_path / "rows.jsonl"), prefix="tell:", device="cpu", beams=1, most=4)
    assert read == ["tell: ba be\nda  di", "tell: bo\r\nda"]
