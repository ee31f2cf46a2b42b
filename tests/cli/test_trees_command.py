"""`sesame trees`: sentences and their trees as pairs, which come back as they were."""

import json
from pathlib import Path

import pytest

from sesame.data.trees import bare, delinearize, parse_trees
from sesame.evaluate.spoken import read_sides, score_answers
from tests.cli.calling import Cli

TREES = """( (S (NP-SBJ (NNP John)) (VP (VBZ sleeps)) (. .)) )
( (S (NP-SBJ-1 (-NONE- *)) (VP (VB Go)
     (ADVP (RB home) (-NONE- *T*-2)))) )
( (X (-NONE- *)) )
"""


def test_trees_become_pairs_and_come_back(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.mrg").write_text(TREES)
    out = tmp_path / "pairs.jsonl"
    said = cli("trees", tmp_path / "a.mrg", "--out", out).fine()
    assert "2 sentences and their trees; 1 without a word were left out" in said.err
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert rows[0] == {"source": "John sleeps .", "target": "(S (NP XX )NP (VP XX )VP XX )S"}
    assert rows[1]["source"] == "Go home"
    for row, tree in zip(rows, parse_trees(TREES), strict=False):
        assert delinearize(row["target"], row["source"].split()).tree.brackets == bare(tree).brackets
    sides = read_sides(str(out))
    assert sides.sources == ["John sleeps .", "Go home"]
    assert score_answers(sides.answers, sides.answers, trees=True).values["brackets"] == 1.0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--leaves", "words"], "(S (NP John )NP (VP sleeps )VP . )S"),
        (["--leaves", "tags"], "(S (NP NNP )NP (VP VBZ )VP . )S"),
        (["--functions"], "(S (NP-SBJ XX )NP-SBJ (VP XX )VP XX )S"),
    ],
)
def test_what_stands_in_a_tree(options: list[str], expected: str, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.mrg").write_text(TREES.splitlines()[0])
    cli("trees", tmp_path / "a.mrg", "--out", tmp_path / "out.jsonl", *options).fine()
    assert json.loads((tmp_path / "out.jsonl").read_text())["target"] == expected


@pytest.mark.parametrize(
    ("text", "options", "word"),
    [("", [], "no tree"), ("(S (NP", [], "a.mrg:1"), (TREES, ["--leaves", "leaf"], "choose one of XX")],
)
def test_bad_trees(text: str, options: list[str], word: str, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.mrg").write_text(text)
    cli("trees", tmp_path / "a.mrg", "--out", tmp_path / "out.jsonl", *options).refused(word)
    assert not (tmp_path / "out.jsonl").exists()


def test_pairs_have_the_name_of_what_they_are(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.mrg").write_text(TREES)
    for name in ("pairs.tsv", "pairs.jsonl.gz"):
        cli("trees", tmp_path / "a.mrg", "--out", tmp_path / name).refused("must end in .jsonl")
