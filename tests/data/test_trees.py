"""Trees come back as they went, from brackets and from sentences; what a model may say becomes a tree all the same."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sesame.data.trees import Bracket, Tree, bare, delinearize, linearize, parse_trees, read_trees
from sesame.errors import SesameError

JOHN = "(S (NP (NNP John)) (VP (VBZ sleeps)) (. .))"
TRACES = """
( (S
    (NP-SBJ-1 (DT The) (NN man) )
    (VP (VBD was)
      (VP (VBN seen)
        (NP (-NONE- *-1) )
        (PP-TMP=2 (IN at)
          (NP (-LRB- -LRB-) (CD 5) (-RRB- -RRB-) ))
        (SBAR (-NONE- 0) (S (-NONE- *T*-1) ))))
    (. .) ))
"""
NAMES = st.text("SNPV-=|$.,'`XТ", min_size=1, max_size=4)
SAID = ["(S", "(NP", "(VP", ")S", ")NP", ")VP", "(", ")", "XX", "XX", "XX"]
WORDS = st.text("aбz-.'%\\/01", min_size=1, max_size=4)


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """Any brackets over any words: spans that nest, from a random walk; several roots and none among them."""
    leaves = draw(st.lists(st.tuples(NAMES, WORDS), min_size=1, max_size=8))
    rows: list[Bracket] = []
    waiting: list[int] = []
    for at in range(len(leaves)):
        for label in draw(st.lists(NAMES, max_size=3)):
            waiting.append(len(rows))
            rows.append(Bracket(label, at, 0))
        for _ in range(draw(st.integers(0, len(waiting))) if at < len(leaves) - 1 else len(waiting)):
            row = waiting.pop()
            rows[row] = rows[row]._replace(end=at + 1)
    return Tree(tuple(word for _, word in leaves), tuple(tag for tag, _ in leaves), tuple(rows))


def test_a_tree_as_in_the_paper() -> None:
    (tree,) = parse_trees(JOHN)
    assert tree == Tree(
        ("John", "sleeps", "."),
        ("NNP", "VBZ", "."),
        (Bracket("S", 0, 3), Bracket("NP", 0, 1), Bracket("VP", 1, 2)),
    )
    assert linearize(tree) == "(S (NP XX )NP (VP XX )VP XX )S"
    assert linearize(tree, "words") == "(S (NP John )NP (VP sleeps )VP . )S"
    assert linearize(tree, "tags") == "(S (NP NNP )NP (VP VBZ )VP . )S"
    assert str(tree) == JOHN


def test_traces_and_functions() -> None:
    (tree,) = parse_trees(TRACES, "wsj")
    assert tree.place == "wsj:2"
    assert tree.words == ("The", "man", "was", "seen", "*-1", "at", "-LRB-", "5", "-RRB-", "0", "*T*-1", ".")
    assert [bracket.label for bracket in tree.brackets] == [
        "S",
        "NP-SBJ-1",
        "VP",
        "VP",
        "NP",
        "PP-TMP=2",
        "NP",
        "SBAR",
        "S",
    ]
    wanted = (
        "(S (NP (DT The) (NN man)) (VP (VBD was) (VP (VBN seen) (PP (IN at) "
        "(NP (-LRB- -LRB-) (CD 5) (-RRB- -RRB-))))) (. .))"
    )
    assert str(bare(tree)) == wanted
    assert bare(bare(tree)) == bare(tree)
    assert bare(tree, traces=True, functions=True) == tree
    assert [b.label for b in bare(tree, functions=True).brackets] == ["S", "NP-SBJ-1", "VP", "VP", "PP-TMP=2", "NP"]
    assert "*T*-1" in bare(tree, traces=True).words
    assert bare(parse_trees("(S (NP (-NONE- *)))")[0]) == Tree((), (), ())


@settings(max_examples=200, deadline=None)
@given(trees())
def test_there_and_back(tree: Tree) -> None:
    assert parse_trees(str(tree)) == [tree]
    assert parse_trees(str(tree).replace(" ", "\n  ")) == [tree]
    for leaves in ("XX", "words", "tags"):
        found = delinearize(linearize(tree, leaves), tree.words, tree.tags, leaves)
        assert (found.tree, found.repairs) == (tree, 0)
    assert delinearize(linearize(tree, "words"), tags=tree.tags).tree == tree
    assert delinearize(linearize(tree, "tags"), tree.words, leaves="tags").tree == tree


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(["(S", "(NP", "(VP", ")S", ")NP", ")VP", "(", ")", "XX", "XX", "XX"]), max_size=20),
    st.integers(0, 8),
)
def test_anything_becomes_a_tree_over_the_words(tokens: list[str], count: int) -> None:
    words = tuple(f"w{at}" for at in range(count))
    found = delinearize(" ".join(tokens), words)
    assert found.tree.words == words
    assert not words or parse_trees(str(found.tree)) == [found.tree]
    assert all(0 <= start < end <= count for _, start, end in found.tree.brackets)
    again = delinearize(linearize(found.tree), words)
    assert (again.tree, again.repairs) == (found.tree, 0)
    if not found.repairs and ")" not in tokens:  # there was nothing to mend
        assert linearize(found.tree) == " ".join(tokens)


@pytest.mark.parametrize(
    ("said", "tree", "repairs"),
    [
        ("(S (NP XX )NP (VP XX", "(S (NP (XX a)) (VP (XX b)))", {"closed": 2}),
        ("(S (NP (QP XX )NP XX )S", "(S (NP (QP (XX a))) (XX b))", {"closed": 1}),
        ("(S (NP XX )NP )VP XX )S )S", "(S (NP (XX a)) (XX b))", {"surplus": 2}),
        ("(S (NP XX )NP (ADVP )ADVP )S", "(S (NP (XX a)) (XX b))", {"empty": 1, "missing": 1}),
        ("(S (NP XX )NP )S", "(S (NP (XX a)) (XX b))", {"missing": 1}),
        ("(S (NP XX XX )NP (VP XX )VP XX )S", "(S (NP (XX a) (XX b)))", {"extra": 2, "empty": 1}),
        ("(NP XX )NP (VP XX )VP", "((NP (XX a)) (VP (XX b)))", {}),
        ("(NP XX )NP XX", "((NP (XX a)) (XX b))", {}),
        ("(S XX ) ( XX", "((S (XX a)) (XX b))", {"surplus": 1}),
        ("", "((XX a) (XX b))", {"missing": 2}),
        ("(S (NP", "((XX a) (XX b))", {"closed": 2, "empty": 2, "missing": 2}),
    ],
)
def test_mended(said: str, tree: str, repairs: dict[str, int]) -> None:
    found = delinearize(said, ["a", "b"])
    assert str(found.tree) == tree
    names = ("closed", "surplus", "empty", "missing", "extra")
    assert {name: getattr(found, name) for name in names if getattr(found, name)} == repairs
    assert found.repairs == sum(repairs.values())


def test_a_model_gone_astray_is_only_long() -> None:
    found = delinearize("(S " * 5_000 + "XX", ["a"])
    assert found.closed == len(found.tree.brackets) == 5_000
    assert parse_trees(str(found.tree)) == [found.tree]
    assert len(bare(found.tree).brackets) == 5_000


def test_round_brackets_in_words_are_written_as_in_the_treebank() -> None:
    tree = Tree(("(a)",), ("NN",), (Bracket("NP", 0, 1),))
    assert str(tree) == "(NP (NN -LRB-a-RRB-))"
    assert linearize(tree, "words") == "(NP -LRB-a-RRB- )NP"


def test_files(tmp_path: Path) -> None:
    folder = tmp_path / "wsj" / "00"
    folder.mkdir(parents=True)
    (folder / "b.mrg").write_text(JOHN + JOHN + "\n" + JOHN)
    (folder / "a.mrg").write_text(TRACES)
    (folder / "readme").write_text("no tree")
    found = list(read_trees([tmp_path / "wsj"]))
    assert [len(tree.words) for tree in found] == [12, 3, 3, 3]
    assert [tree.place for tree in found[1:]] == [f"{folder}/b.mrg:{line}" for line in (1, 1, 2)]
    lines = json.dumps({"file": "x", "tree": f"({JOHN})"}) + "\n\n" + json.dumps({"tree": TRACES}) + "\n"
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    assert list(read_trees([tmp_path / "a.jsonl.gz"])) == [found[1], found[0]]
    assert next(read_trees([str(tmp_path / "a.jsonl.gz")])).place == f"{tmp_path}/a.jsonl.gz:1"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("(S (NP (NN a))\n(VP (VB b))", ["a.txt:1:", "never closed"]),
        ("(S (NN a)))", ["a.txt:1:", "')'", "outside"]),
        ("\nword (S (NN a))", ["a.txt:2:", "'word'", "outside"]),
        ("(S (NP the man))", ["a.txt:1:", "'man'", "(NN man)"]),
        ("(S (NN a)\n b)", ["a.txt:2:", "'b'"]),
        ("(S (NN a (X b)))", ["a.txt:1:", "behind the word 'a'"]),
        ("(S (NP) (NN a))", ["a.txt:1:", "holds no word"]),
        ("()", ["a.txt:1:", "holds no word"]),
        ("(S ((NN a)))", ["a.txt:1:", "no label"]),
        ("\n\n", ["a.txt", "no tree inside"]),
    ],
)
def test_bad_files(tmp_path: Path, text: str, parts: list[str]) -> None:
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(SesameError) as caught:
        list(read_trees([tmp_path / "a.txt"]))
    assert all(part in str(caught.value) for part in parts), caught.value


def test_bad_places_and_options(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.mrg"):
        with pytest.raises(SesameError, match="there are no trees"):
            list(read_trees([path]))
    kinds = ("{", "is not JSON"), ("[]", "no field"), ('{"tree": 1}', "no field"), ('{"tree": " "}\n{}', "is empty")
    for line, what in kinds:
        (tmp_path / "a.jsonl").write_text(line)
        with pytest.raises(SesameError, match=f"a.jsonl:1: .*{what}"):
            list(read_trees([tmp_path / "a.jsonl"]))
    (tree,) = parse_trees(JOHN)
    with pytest.raises(SesameError, match="choose one of XX, words, tags"):
        linearize(tree, "both")  # type: ignore[arg-type]
    with pytest.raises(SesameError, match="3 words but 1 tags"):
        delinearize("XX", tree.words, ["NN"])
