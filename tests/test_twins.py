"""`sesame.pretrain` and `sesame.finetune` take the options of their commands, and refuse what these refuse."""

from pathlib import Path
from typing import Any

import pytest

import sesame
from sesame.errors import SesameError
from sesame.finetuning import wishes as taught
from sesame.finetuning.transfer import resolve_transfer
from sesame.pretraining import wishes as trained


def finetune(**options: Any) -> taught.Wishes:
    return taught.wishes_of("m", "classify", Path("a.csv"), "out", **options)


def test_options_that_stand_for_settings_and_columns() -> None:
    found = finetune(epochs=2, rate=1e-4, layers="mix", label_column="topic", settings="batch=8")
    assert found.settings == [
        *("epochs=2", "optimizer.rate=0.0001", 'task.layers="mix"', "least_steps=0", "rate_width=0", "batch=8"),
    ]
    assert found.columns == {"label": "topic"}
    assert finetune(columns={"text": "body"}).columns == {"text": "body"}
    assert finetune().settings == []


def test_one_name_where_several_may_stand() -> None:
    """A text alone was read letter by letter: "t: no such file"."""
    found = finetune(text="train", also="tag:b.conll", test=Path("b.csv"))
    assert (found.text, found.also, found.test) == (["train"], ["tag:b.conll"], "b.csv")
    more = trained.wishes_of("bert", Path("a.txt"), valid="b.txt", settings="batch=8", start=Path("m"), size="tiny")
    assert (more.text, more.valid, more.settings, more.start) == (["a.txt"], ["b.txt"], ["batch=8"], "m")
    assert more.out == Path("runs/bert-tiny"), "as the command has it"
    assert trained.wishes_of("transformer", pairs="en-de=a.tsv").pairs == ["en-de=a.tsv"]


def test_none_is_none_of_them() -> None:
    """A program that hands its own options on leaves out by None what the command leaves out by saying nothing."""
    nothing = dict.fromkeys(("valid", "pairs", "settings"))
    more = trained.wishes_of("bert", "a.txt", **nothing)
    assert (more.valid, more.pairs, more.settings) == ([], [], [])
    found = finetune(**dict.fromkeys(("text", "settings", "columns", "also", "valid", "test")))
    assert (found.text, found.settings, found.columns, found.also, found.valid) == ([], [], {}, (), None)
    assert [one.name for one in found.asked()] == ["classify"]


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"epoch": 1}, ["'epoch'", "did you mean 'epochs'?"]),
        ({"seeds": 0}, ["--seeds 0", "at least 1"]),
        ({"text": "train", "text_steps": 1, "text_budget": 5}, ["--text-budget", "--text-steps", "one of them"]),
        ({"text": "train", "text_budget": "10m"}, ["text_budget", "'10m'", "seconds"]),
        ({"precision": "fp8"}, ["fp8", "bf16"]),
    ],
)
def test_finetune_refuses(options: dict[str, Any], parts: list[str], tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\na,b\n")
    with pytest.raises(SesameError) as caught:
        sesame.finetune("m", "classify", tmp_path / "a.csv", tmp_path / "run", **options)
    assert all(part in str(caught.value) for part in parts), caught.value
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"step": 1}, ["'step'", "did you mean 'steps'?"]),
        ({"steps": 0}, ["--steps 0", "at least 1"]),
        ({"steps": 1, "budget": 5}, ["--budget", "--steps", "one of them"]),
        ({"budget": "20m"}, ["budget", "'20m'", "seconds"]),
        ({"budget": 0}, ["budget is 0"]),
        ({"steps": 1, "precision": "fp8"}, ["fp8", "bf16"]),
        ({"steps": 1, "text": ()}, ["nothing to learn from"]),
    ],
)
def test_pretrain_refuses(options: dict[str, Any], parts: list[str], tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A text.\n")
    with pytest.raises(SesameError) as caught:
        sesame.pretrain("bert", options.pop("text", tmp_path / "a.txt"), tmp_path / "run", **options)
    assert all(part in str(caught.value) for part in parts), caught.value
    assert not (tmp_path / "run").exists()


def test_what_seq2seq_does_not_know(tmp_path: Path) -> None:
    with pytest.raises(SesameError, match="unknown option 'text'"):
        sesame.finetune("m", "seq2seq", "a.tsv", tmp_path / "run", text="b.txt")


def test_a_model_named_in_two_ways_is_one() -> None:
    """`finetune ./runs/mine` goes on where `finetune runs/mine` stopped."""
    transfer = resolve_transfer("full")
    both = (
        taught.identity_of(taught.wishes_of(model, "classify", "a.csv", "out"), (), transfer)["run"]
        for model in ("runs/mine", "./runs/mine/")
    )
    assert next(both) == next(both)
