"""Encoder-decoders on the command line: taught, scored, averaged; what is wrong with pairs is said in a sentence."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.answer_toys import rows, stranger, write_rows
from tests.cli.calling import Cli

SHORT = ("--steps", 2, "--seeds", 1, "--beams", 1, "--most", 12, "--device", "cpu")
TINY = ("--size", "tiny", "--steps", 2, "--set", "backbone.width=16", "--set", "backbone.heads=2", "--set",
        "backbone.inner=32", "--set", "tokenizer.size=300", "--set", "stages.main.length=16")  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stranger(tmp_path_factory.mktemp("start") / "model", "t5")


def finetune(cli: Cli, model: Path, train: object, out: Path, *more: object) -> Any:
    return cli("finetune", model, "--task", "seq2seq", "--train", train, "--out", out, *SHORT, *more)


@pytest.mark.parametrize("shape", ["tsv", "headed", "csv", "jsonl", "plain"])
def test_pairs_come_in_many_shapes(shape: str, cli: Cli, model: Path, tmp_path: Path) -> None:
    found = rows("swap", 40, 0)
    more: tuple[object, ...] = ()
    file: object = tmp_path / f"train.{'tsv' if shape == 'headed' else shape}"
    if shape in ("tsv", "headed"):
        write_rows(tmp_path / "train.tsv", found, "body\tsubject\n" if shape == "headed" else "")
    elif shape == "csv":
        Path(str(file)).write_text("id,de,en\n" + "".join(f'{n},"{b}","{a}"\n' for n, (a, b) in enumerate(found)))
        more = ("--source", "en", "--target", "de")
    elif shape == "jsonl":
        lines = [json.dumps({"id": n, "question": a, "answer": b}) for n, (a, b) in enumerate(found)]
        Path(str(file)).write_text("\n".join(lines) + "\n")
    else:
        for side, name in enumerate("ab"):
            (tmp_path / name).write_text("".join(row[side] + "\n" for row in found))
        file = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    result = finetune(cli, model, file, tmp_path / "run", *more).fine()
    assert "tok:13a" in result.err
    kept = [json.loads(line) for part in ("train", "valid") for line in
            (tmp_path / "run" / "pairs" / f"{part}.jsonl").read_text().splitlines()]  # fmt: skip
    assert sorted((one["source"], one["target"]) for one in kept) == sorted(found)
    said = cli("translate", tmp_path / "run", "ba be", "--beams", 1, "--most", 4).fine()
    assert len(said.out.splitlines()) == 1


def test_evaluate_scores_and_compares(cli: Cli, model: Path, tmp_path: Path) -> None:
    other = stranger(tmp_path / "other", "t5", seed=1)
    test = write_rows(tmp_path / "test.tsv", rows("copy", 30, 1))
    words = ("evaluate", model, "--data", test, "--beams", 2, "--alpha", 0.6, "--most", 8, "--device", "cpu")
    found = json.loads(cli(*words, "--against", other, "--metric", "chrf", "--json").fine().out)
    assert set(found["scores"]) == {"bleu", "chrf", "rouge1", "rouge2", "rougeL", "exact"}
    for name, (low, high) in found["intervals"].items():
        assert low <= found["scores"][name] <= high
    assert "tok:13a" in found["signatures"]["bleu"]
    again = json.loads(cli("evaluate", other, *words[2:], "--json").fine().out)
    gap = found["scores"]["chrf"] - again["scores"]["chrf"]
    assert found["versus"]["difference"] == pytest.approx(gap, abs=1e-9)
    shown = cli(*words).fine().out
    assert "bleu|nrefs:1|case:mixed|eff:no|tok:13a" in shown
    assert "rougeL" in shown
    cli("evaluate", model, "--data", test, "--metric", "blue").refused("--metric blue", "rougeL")


def test_trees_are_scored_by_their_brackets(cli: Cli, model: Path, tmp_path: Path) -> None:
    trees = [("ba be", "(S (NP XX )NP (VP XX )VP )S"), ("ba be bo", "(S (NP XX XX )NP (VP XX )VP )S")] * 3
    test = write_rows(tmp_path / "test.tsv", trees)
    words = ("evaluate", model, "--data", test, "--metric", "brackets", "--most", 8, "--json")
    found = json.loads(cli(*words).fine().out)
    assert 0 <= found["scores"]["brackets"] <= 1


def test_averages(cli: Cli, model: Path, tmp_path: Path) -> None:
    other = stranger(tmp_path / "other", "t5", seed=1)
    cli("average", model, other, "--out", tmp_path / "mean").fine()
    cli("translate", tmp_path / "mean", "ba be", "--beams", 1, "--most", 4).fine()
    cli("average", model, other, "--out", tmp_path / "mean").refused("is there already")
    cli("average", model, other, "--last", 2, "--out", tmp_path / "new").refused("--last takes checkpoints of one run")


# ---- bad input ------------------------------------------------------------------------------------------------------


def test_unequal_sides(cli: Cli, model: Path, tmp_path: Path) -> None:
    found = rows("copy", 40, 0)
    (tmp_path / "a").write_text("".join(a + "\n" for a, _ in found))
    (tmp_path / "b").write_text("".join(b + "\n" for _, b in found[:-3]))
    result = finetune(cli, model, f"{tmp_path / 'a'},{tmp_path / 'b'}", tmp_path / "run")
    result.refused(tmp_path / "a", ":38:", "ends before this line")
    pairs = ("--pairs", f"aa-bb={tmp_path / 'a'}", "--pairs", f"aa-bb={tmp_path / 'b'}")
    cli("pretrain", "transformer", *pairs, "--out", tmp_path / "run2", *TINY).refused("ends before this line")


def test_empty_lines_are_counted(cli: Cli, model: Path, tmp_path: Path) -> None:
    found = [*rows("copy", 40, 0), ("ba", ""), ("", "be"), ("", "")]
    for side, name in enumerate("ab"):
        (tmp_path / name).write_text("".join(row[side] + "\n" for row in found))
    both = (tmp_path / "a", tmp_path / "b")
    result = finetune(cli, model, ",".join(map(str, both)), tmp_path / "run").fine()
    assert "3 pairs are left out, because a side is empty" in result.err
    pairs = [word for file in both for word in ("--pairs", f"aa-bb={file}")]
    result = cli("pretrain", "transformer", *pairs, "--out", tmp_path / "run2", *TINY).fine()
    assert "3 pairs are left out, because a side is empty" in result.err


def test_an_unknown_language(cli: Cli, tmp_path: Path) -> None:
    file = write_rows(tmp_path / "pairs.tsv", rows("copy", 40, 0))
    words = ("pretrain", "transformer", "--pairs", f"aa-bb={file}", "--out", tmp_path / "run", *TINY)
    cli(*words, "--valid", f"aa-cc={file}").refused("aa-cc", "no such --pairs")
    cli("pretrain", "transformer", "--pairs", file, "--out", tmp_path / "run", *TINY).refused("en-ru=pairs.tsv")


def test_long_sources_are_counted(cli: Cli, model: Path, tmp_path: Path) -> None:
    short = rows("copy", 40, 0)
    found = [*short, (" ".join(["ba"] * 30), "be"), ("be", " ".join(["ba"] * 30))]
    file = write_rows(tmp_path / "train.tsv", found)
    valid = write_rows(tmp_path / "valid.tsv", short)
    result = finetune(cli, model, file, tmp_path / "run", "--valid", valid, "--set", "stages.main.length=16").fine()
    assert "1 of 42 sources have more than 16 tokens; their ends are not read" in result.err
    assert "1 of 42 pairs are left out: the answer has more than 15 tokens" in result.err
    result = cli("pretrain", "transformer", "--pairs", f"aa-bb={file}", "--out", tmp_path / "run2", *TINY).fine()
    assert "pairs are left out: a side has more than 15 tokens" in result.err


def test_other_mistakes(cli: Cli, model: Path, tmp_path: Path) -> None:
    good = write_rows(tmp_path / "good.tsv", rows("copy", 40, 0))
    out = tmp_path / "run"
    finetune(cli, model, tmp_path / "none.tsv", out).refused("none.tsv", "no such file")
    finetune(cli, model, good, out, "--source", "en").refused("has no column 'en' for --source")
    finetune(cli, model, write_rows(tmp_path / "few.tsv", rows("copy", 9, 0)), out).refused("has 9 pairs; 20 are")
    finetune(cli, model, good, out, "--epochs", 1).refused("--steps and --epochs")
    finetune(cli, model, good, out, "--layers", "last").refused("--layers", "does not go with --task seq2seq")
    finetune(cli, model, good, out, "--also", good).refused("write the prefix")
    (tmp_path / "three.csv").write_text("a,b,c\n" + "ba,be,bo\n" * 30)
    finetune(cli, model, tmp_path / "three.csv", out).refused("three.csv", "'a', 'b', 'c'", "--source and --target")
    words = ("finetune", model, "--task", "classify", "--train", good, "--out", out, "--beams", 4)
    cli(*words).refused("--beams", "goes with --task seq2seq only")
    finetune(cli, model, good, out).fine()  # nothing of the above stands in the way
