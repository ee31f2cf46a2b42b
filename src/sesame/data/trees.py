"""Parse trees: read from brackets, written as a sentence that a translator can learn, mended when they come back.

Paper: Vinyals, Kaiser, Koo, Petrov, Sutskever & Hinton 2015, "Grammar as a Foreign Language" (https://arxiv.org/abs/1412.7449).
Idea: a tree is a sentence of another language. Brackets become words, each closing one with its label, and all words of
the sentence become XX, so that the output vocabulary is small and the model needs not copy:

    (S (NP (NNP John)) (VP (VBZ sleeps)) (. .))   ->   (S (NP XX )NP (VP XX )VP XX )S

`delinearize` goes back, with the words in hand, and makes a tree of anything that a model may say; on what `linearize` wrote
it is the exact inverse.

Penn Treebank brackets are read as they come: a tree over many lines, many trees a line, the outer bracket without a label
(it is dropped), traces `(-NONE- *T*-1)`, functions and indices `NP-SBJ-1`. `bare` takes traces and functions away, which is
what parsers learn and what evalb compares.

Unusual: a tree is flat, its words and its brackets as spans over them, outermost first. No function here calls itself, so
the thousand brackets in a row of a model that went astray do no harm; several roots, or none, are no special case.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Literal, NamedTuple

from sesame.data.streams import whole_lines
from sesame.data.tables import inner_suffix
from sesame.errors import SesameError

TRACE = "-NONE-"
ANY = "XX"  # stands for a word, or for a tag that is not known
Leaves = Literal["XX", "words", "tags"]
_TOKENS = re.compile(r"[()]|[^\s()]+")


class Bracket(NamedTuple):
    """A constituent over the words start, ..., end - 1; never empty."""

    label: str
    start: int
    end: int


@dataclass(frozen=True)
class Tree:
    """A tree over words; `brackets` in the order in which they open, so that outer ones come before inner ones."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    brackets: tuple[Bracket, ...]
    place: str = field(default="", compare=False)  # "file:line", for complaints

    def __str__(self) -> str:
        """Penn Treebank brackets on one line, in an outer bracket if there is not one root over all."""
        parts = _walk(self, [f"({tag} {_plain(word)})" for tag, word in zip(self.tags, self.words, strict=True)], ")")
        text = " ".join(parts).replace(" )", ")")
        rooted = bool(self.brackets) and self.brackets[0][1:] == (0, len(self.words))
        return text if rooted else f"({text})"


def bare(tree: Tree, traces: bool = False, functions: bool = False) -> Tree:
    """Without traces, and the brackets that held nothing else, and without functions: NP-SBJ=2 is NP."""
    keep = [traces or tag != TRACE for tag in tree.tags]
    at = list(accumulate(keep, initial=0))
    moved = (
        Bracket(label if functions else without_function(label), at[start], at[end])
        for label, start, end in tree.brackets
    )
    return replace(
        tree,
        words=tuple(word for word, kept in zip(tree.words, keep, strict=True) if kept),
        tags=tuple(tag for tag, kept in zip(tree.tags, keep, strict=True) if kept),
        brackets=tuple(bracket for bracket in moved if bracket.start < bracket.end),
    )


def without_function(label: str) -> str:
    """ "NP-SBJ-1" -> "NP"; labels that start with a hyphen, as -NONE- and -LRB-, stay."""
    return re.split("[-=]", label, maxsplit=1)[0] or label


# ---- as a sentence --------------------------------------------------------------------------------------------------


def linearize(tree: Tree, leaves: Leaves = "XX") -> str:
    """The tree as words of the target language; each word of the sentence as XX, as itself, or as its tag."""
    shown = {"XX": [ANY] * len(tree.words), "words": [_plain(word) for word in tree.words], "tags": list(tree.tags)}
    if leaves not in shown:
        raise SesameError(f"leaves are {leaves!r}; choose one of {', '.join(shown)}")
    return " ".join(_walk(tree, shown[leaves], None))


@dataclass(frozen=True)
class Mended:
    """A tree, and what had to be done to make it one."""

    tree: Tree
    closed: int = 0  # brackets that nobody closed, or that an outer one closed
    surplus: int = 0  # closing brackets without an open one, dropped
    empty: int = 0  # brackets without a word, dropped
    missing: int = 0  # words that the output forgot, put behind the others
    extra: int = 0  # words that the sentence does not have, dropped

    @property
    def repairs(self) -> int:
        return self.closed + self.surplus + self.empty + self.missing + self.extra


def delinearize(
    text: str, words: Sequence[str] | None = None, tags: Sequence[str] | None = None, leaves: Leaves = "XX"
) -> Mended:
    """The tree that `text` means, over `words` (None: the leaves of `text` are the words) and `tags` (None: XX).

    A closing bracket closes the innermost open one of its label and all inside of that; without one it is dropped. What is
    open at the end is closed. Too many leaves are cut off; words that are missing hang at the end of the first bracket, if
    that spans the whole output, as a full stop does. Brackets without words are dropped.
    """
    rows, found, closed, surplus = _parsed(text.split())
    if words is None:
        words = found
    if tags is None:
        tags = found[: len(words)] if leaves == "tags" else []
        tags = [*tags, *[ANY] * (len(words) - len(tags))]
    if len(tags) != len(words):
        raise SesameError(f"{len(words)} words but {len(tags)} tags; give one tag for each word")
    said, wanted = len(found), len(words)
    ends = [wanted if row == 0 and (start, end) == (0, said) else end for row, (_, start, end) in enumerate(rows)]
    spans = [Bracket(row.label, row.start, min(end, wanted)) for row, end in zip(rows, ends, strict=True)]
    brackets = tuple(span for span in spans if span.start < span.end)
    tree = Tree(tuple(words), tuple(tags), brackets if said else ())
    dropped = len(rows) - len(tree.brackets)
    return Mended(tree, closed, surplus, dropped, max(wanted - said, 0), max(said - wanted, 0))


def _parsed(tokens: Iterable[str]) -> tuple[list[Bracket], list[str], int, int]:
    """Brackets in the order in which they open, leaves, how many were not closed, how many closings were dropped."""
    rows: list[Bracket] = []
    waiting: list[int] = []  # rows that are open
    leaves: list[str] = []
    closed = surplus = 0
    for token in tokens:
        if token.startswith("(") and len(token) > 1:
            waiting.append(len(rows))
            rows.append(Bracket(token[1:], len(leaves), -1))
        elif token.startswith(("(", ")")):
            fits = [at for at, row in enumerate(waiting) if token == ")" or rows[row].label == token[1:]]
            if not fits or token == "(":
                surplus += 1
                continue
            closed += len(waiting) - 1 - fits[-1]
            for row in waiting[fits[-1] :]:
                rows[row] = rows[row]._replace(end=len(leaves))
            del waiting[fits[-1] :]
        else:
            leaves.append(token)
    for row in waiting:
        rows[row] = rows[row]._replace(end=len(leaves))
    return rows, leaves, closed + len(waiting), surplus


def _walk(tree: Tree, leaves: Sequence[str], closing: str | None) -> Iterator[str]:
    """Opening brackets, leaves and closing brackets from left to right."""
    ahead, waiting = 0, list[Bracket]()
    for at, leaf in enumerate(leaves):
        while ahead < len(tree.brackets) and tree.brackets[ahead].start == at:
            waiting.append(tree.brackets[ahead])
            ahead += 1
            yield f"({waiting[-1].label}"
        yield leaf
        while waiting and waiting[-1].end == at + 1:
            label = waiting.pop().label
            yield f"){label}" if closing is None else closing


def _plain(word: str) -> str:
    """Round brackets inside of a word as the treebank writes them."""
    return word.replace("(", "-LRB-").replace(")", "-RRB-")


# ---- files ----------------------------------------------------------------------------------------------------------


def read_trees(paths: Sequence[str | Path]) -> Iterator[Tree]:
    """Trees of files in order: brackets (.mrg, .txt ...), JSON lines with a field "tree"; of a folder its .mrg files."""
    for path in map(Path, paths):
        files = sorted(path.rglob("*.mrg")) if path.is_dir() else [path]
        if not files or not all(file.is_file() for file in files):
            raise SesameError(f"{path}: there are no trees; name a file of bracketed trees, or a folder of .mrg files")
        for file in files:
            count = 0
            for tree in _file(file):
                count += 1
                yield tree
            if not count:
                raise SesameError(f"{file}: there is no tree inside; give trees like (S (NP (NNP John)) ...)")


def parse_trees(text: str, place: str = "text") -> list[Tree]:
    """The bracketed trees of a text."""
    return list(_trees((f"{place}:{number}", line) for number, line in enumerate(text.split("\n"), 1)))


def _file(file: Path) -> Iterator[Tree]:
    if inner_suffix(file) not in (".jsonl", ".ndjson", ".json"):
        yield from _trees((f"{file}:{number}", line) for number, line in whole_lines(file))
        return
    for number, line in whole_lines(file):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise SesameError(f"{file}:{number}: is not JSON ({error}); mend or remove the line") from None
        if not isinstance(row, dict) or not isinstance(row.get("tree"), str):
            raise SesameError(f'{file}:{number}: has no field "tree" with a bracketed tree; add it to the line')
        if not row["tree"].strip():
            raise SesameError(
                f'{file}:{number}: its field "tree" is empty; remove the line, or give it a bracketed tree'
            )
        yield from _trees([(f"{file}:{number}", row["tree"])])


@dataclass
class _Open:
    """A bracket that is being read."""

    start: int
    row: int = -1  # of its brackets, once it holds one
    label: str | None = None
    word: str | None = None


def _trees(lines: Iterable[tuple[str, str]]) -> Iterator[Tree]:
    words, tags, rows, waiting, began = list[str](), list[str](), list[Bracket](), list[_Open](), ""
    for place, line in lines:
        for token in _TOKENS.findall(line):
            if token == "(":
                if waiting:
                    _hold(waiting, rows, place)
                began = began if waiting else place
                waiting.append(_Open(len(words)))
            elif not waiting:
                raise SesameError(f"{place}: {token!r} stands outside of all trees; remove it or mend the brackets")
            elif token != ")":
                _name(waiting[-1], token, place)
            else:
                done = waiting.pop()
                if done.row >= 0:
                    rows[done.row] = Bracket(done.label or "", done.start, len(words))
                elif done.label is not None and done.word is not None:
                    tags.append(done.label)
                    words.append(done.word)
                else:
                    raise SesameError(f"{place}: a bracket holds no word; remove it, or give it a label and a word")
                if not waiting:
                    yield Tree(tuple(words), tuple(tags), tuple(row for row in rows if row.label), began)
                    words, tags, rows = [], [], []
    if waiting:
        raise SesameError(f"{began}: the tree that starts here is never closed; close its brackets")


def _hold(waiting: list[_Open], rows: list[Bracket], place: str) -> None:
    """The last open bracket holds one more, so it is a constituent."""
    outer = waiting[-1]
    if outer.word is not None:
        raise SesameError(f"{place}: a bracket stands behind the word {outer.word!r}; give each word its own bracket")
    if outer.label is None and len(waiting) > 1:
        raise SesameError(f"{place}: a bracket inside of a tree has no label; only the outermost one may have none")
    if outer.row < 0:
        outer.row = len(rows)
        rows.append(Bracket("", 0, 0))


def _name(inner: _Open, token: str, place: str) -> None:
    """The first name inside of a bracket is its label, the second one its word."""
    if inner.row >= 0 or inner.word is not None:
        raise SesameError(f"{place}: the word {token!r} has no tag; give each word its own bracket, as in (NN {token})")
    if inner.label is None:
        inner.label = token
    else:
        inner.word = token
