"""Tagged words: CoNLL columns, and the schemes in which entities are written.

A word a line, its columns separated by tabs or spaces, a blank line between sentences; the word is the first column and the
tag the last. An entity of type X over three words, and one over a single word behind it:

| scheme | tags | |
|---|---|---|
| IOB1 | I-X I-X I-X B-X | B only where an entity of the same type stands right before |
| IOB2 | B-X I-X I-X B-X | each entity starts with B |
| BIOES | B-X I-X E-X S-X | the end and the single word have letters of their own |
| BILOU | B-X I-X L-X U-X | the same with other letters |

All become IOB2 by one rule, that of conlleval: a word starts an entity if its letter is B, S or U, if the word before has
another type or none, or if the word before ended an entity (E, S, L, U). So tags that break
their scheme are mended, not lost.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice, pairwise
from pathlib import Path

from sesame.data.examples import Example
from sesame.data.streams import whole_lines
from sesame.errors import SesameError

_TAG = re.compile(r"([BIESLU])-(.+)")
_SPACES = re.compile(r"[ \t]+")
_LOOKED = 1000  # lines that tell columns from sentences


@dataclass
class Sentence:
    """Words and their tags; `line` is the first word's one, 0 where `file` already is the whole place."""

    file: str
    line: int
    words: list[str] = field(default_factory=list)
    tags: list[str] | None = field(default_factory=list)

    def place(self, word: int = 0) -> str:
        return f"{self.file}:{self.line + word}" if self.line else self.file


@dataclass(frozen=True)
class Tagged:
    examples: list[Example]
    said: str
    warnings: list[str]


def to_iob2(tags: Sequence[str]) -> list[str]:
    """The tags of one sentence, in whatever scheme, as IOB2."""
    converted, before_letter, before_kind = [], "O", ""
    for tag in tags:
        letter, kind = _split(tag)
        starts = letter in "BSU" or kind != before_kind or before_letter in "ESLU"
        converted.append("O" if letter == "O" else f"{'B' if starts else 'I'}-{kind}")
        before_letter, before_kind = letter, kind
    return converted


@lru_cache(maxsize=1 << 16)
def _split(tag: str) -> tuple[str, str]:
    """("B", "PER") for "B-PER", ("O", "") for "O"."""
    if tag == "O":
        return "O", ""
    found = _TAG.fullmatch(tag)
    if not found:
        raise SesameError(
            f"the tag {tag!r} is neither O nor B-, I-, E-, S-, L- or U- with a type behind it; write it like B-PER, or "
            "choose the column of the tags with --label-column"
        )
    return found[1], found[2]


def is_tag(tag: str) -> bool:
    return tag == "O" or _TAG.fullmatch(tag) is not None


def has_tags(path: Path) -> bool:
    """Whether a plain text, by its first lines, has a tag at the end of each, as columns do and sentences do not."""
    lines = (_SPACES.split(line.strip()) for _, line in islice(whole_lines(path), _LOOKED) if line.strip())
    rows = [cells for cells in lines if cells[0] != "-DOCSTART-" and not cells[0].startswith("#")]
    last = [cells[-1] for cells in rows if len(cells) > 1]
    return "O" in last and len(last) == len(rows) and all(map(is_tag, last))


# ---- files ----------------------------------------------------------------------------------------------------------


def read_conll(path: Path, columns: Mapping[str, str], labels: bool) -> Tagged:
    """Read a file; `columns` may give the numbers (from 1) of the word's ("text") and the tag's ("label") column.

    A first column that only counts the words of each sentence, as GermEval's does, is not theirs: the second one is.
    """
    word, tag = (_column(path, columns, role) for role in ("text", "label"))
    sentences = list(_sentences(path, word or 1, tag))
    if not sentences:
        raise SesameError(f"{path}: there are no words inside; give a file with a word and its tag on each line")
    counted = word is None and all(map(_is_counted, sentences))
    if counted:
        behind = list(_sentences(path, 2, tag))
        counted = not all(is_tag(word) for one in behind for word in one.words)
        sentences = behind if counted else sentences
    found = tagged(sentences, path, labels, strict=labels or tag is not None)
    return replace(found, said=f"{found.said}; words in column 2, the first one counts them") if counted else found


def _is_counted(one: Sentence) -> bool:
    return one.tags is not None and one.words == [str(number) for number in range(1, len(one.words) + 1)]


def _column(path: Path, columns: Mapping[str, str], role: str) -> int | None:
    given = columns.get(role)
    if given is None:
        return None
    if not given.isdecimal() or int(given) < 1:
        raise SesameError(f"{path}: columns of words have no names; give the number of one, as in --{role}-column 2")
    return int(given)


def _sentences(path: Path, word: int, tag: int | None) -> Iterator[Sentence]:
    width, held = 0, Sentence(str(path), 0)
    for number, line in whole_lines(path):
        line = line.strip(" \t") if "\t" not in line else line.rstrip(" \t")
        cells = line.split("\t") if "\t" in line else _SPACES.split(line)
        if not line or cells[0] == "-DOCSTART-":
            if held.words:
                yield held
            held = Sentence(str(path), 0)
            continue
        if not held.words and _is_comment(cells, width, tag):
            continue
        width = width or len(cells)
        if len(cells) != width:
            raise _wrong_width(path, number, len(cells), width)
        if max(word, tag or 1) > width:
            raise SesameError(f"{path}:{number}: there is no column {max(word, tag or 1)}; choose one up to {width}")
        held.line = held.line or number
        held.words.append(cells[word - 1].strip())
        if held.tags is not None:
            held.tags.append(cells[(tag or width) - 1].strip())
        if width == 1:
            held.tags = None
    if held.words:
        yield held


def _is_comment(cells: list[str], width: int, tag: int | None) -> bool:
    """A line that starts with # is a comment unless it looks like the other lines: it may tag the word "#"."""
    if not cells[0].startswith("#") or (width and len(cells) != width):
        return cells[0].startswith("#")
    return width != 1 and not is_tag(cells[min(tag or len(cells), len(cells)) - 1])


def _wrong_width(path: Path, line: int, cells: int, width: int) -> SesameError:
    return SesameError(
        f"{path}:{line}: the line has {cells} {'column' if cells == 1 else 'columns'} where the first one has {width}; "
        "mend the line, or put a blank line between sentences"
    )


# ---- schemes --------------------------------------------------------------------------------------------------------


def tagged(sentences: list[Sentence], path: Path, labels: bool, strict: bool = True, numbers: bool = False) -> Tagged:
    """Examples with IOB2 tags.

    Not `strict`: a column that does not hold tags is taken for something else. `numbers`: tags without a name, and so
    without a scheme, are kept as they are.
    """
    if (
        not labels
        and not strict
        and not numbers
        and not all(is_tag(tag) for one in sentences for tag in set(one.tags or ()))
    ):
        for one in sentences:
            one.tags = None
    untagged = next((one for one in sentences if one.tags is None), None)
    if untagged is not None and labels:
        raise SesameError(f"{untagged.place()}: the words have no tags; put the tag of each word in the last column")
    words = sum(len(one.words) for one in sentences)
    said = f"{path.name}: {len(sentences):,} sentences, {words:,} words"
    warnings = []
    if untagged is None and numbers:
        said += "; tags are numbers without names, kept as they are"
    elif untagged is None:
        scheme = _scheme(sentences, path)
        said += f"; tags are {scheme.name}" + ("" if scheme.name == "IOB2" else ", read as IOB2")
        if scheme.broken:
            warnings.append(
                f"{path}: {scheme.broken:,} of {words:,} tags did not follow {scheme.name} and were mended (an entity "
                f"that cannot go on starts anew), first at {scheme.first}"
            )
    examples = [to_example(one, numbers) for one in sentences]
    learnt = [example for example in examples if example.words]  # a prediction has an answer for each, also for none
    return Tagged(learnt if labels else examples, said, warnings + _blank_words(sentences, path))


def to_example(one: Sentence, numbers: bool = False) -> Example:
    """Words joined by spaces. A word of white space alone has no characters to point at and is left out with its tag."""
    spans, start = [], 0
    kept = [number for number, word in enumerate(one.words) if word.strip()]
    for number in kept:
        spans.append((start, start + len(one.words[number])))
        start = spans[-1][1] + 1
    text = " ".join(one.words[number] for number in kept)
    if one.tags is None:
        return Example(one.place(), text, words=tuple(spans))
    tags = [one.tags[number] for number in kept]
    return Example(one.place(), text, label=tuple(tags if numbers else to_iob2(tags)), words=tuple(spans))


def _blank_words(sentences: list[Sentence], path: Path) -> list[str]:
    blank = [one.place(number) for one in sentences for number, word in enumerate(one.words) if not word.strip()]
    return [f"{path}: left out {len(blank):,} words of white space alone, first at {blank[0]}"] if blank else []


@dataclass(frozen=True)
class _Scheme:
    name: str
    broken: int
    first: str


def _scheme(sentences: list[Sentence], path: Path) -> _Scheme:
    """The scheme that the whole file fits best, and how many tags break it."""
    letters: set[str] = set()
    broken: dict[str, list[str]] = {"IOB1": [], "IOB2": [], "ends": []}
    for one in sentences:
        pairs = [_split_at(one, number, tag) for number, tag in enumerate(one.tags or ())]
        letters.update(letter for letter, _ in pairs)
        outside = ("O", "")
        for number, (before, now) in enumerate(pairwise([outside, *pairs, outside])):
            for scheme in _breaks(before, now):
                broken[scheme].append(one.place(min(number, len(pairs) - 1)))
    if letters & set("ES") and letters & set("LU"):
        raise SesameError(f"{path}: holds tags of BIOES and of BILOU; write all of them in one of the two")
    if letters & set("ESLU"):
        name, places = ("BIOES" if letters & set("ES") else "BILOU"), broken["ends"]
    elif len(broken["IOB2"]) and len(broken["IOB1"]) < len(broken["IOB2"]):
        name, places = "IOB1", []  # a B too many is not wrong, it says the same
    else:
        name, places = "IOB2", broken["IOB2"]
    return _Scheme(name, len(places), places[0] if places else "")


def _split_at(one: Sentence, number: int, tag: str) -> tuple[str, str]:
    try:
        return _split(tag)
    except SesameError as error:
        raise SesameError(f"{one.place(number)}: {error}") from None


def _breaks(before: tuple[str, str], now: tuple[str, str]) -> Iterable[str]:
    """The schemes that do not allow the tag `now` behind `before`."""
    same = before[1] == now[1] and now[0] != "O"
    if now[0] == "I" and not same:
        yield "IOB2"
    if now[0] == "B" and not same:
        yield "IOB1"
    goes_on = before[0] in "BI"  # B and I must be continued, and only they can be
    continues = now[0] in "IEL"
    if goes_on != continues or (continues and not same):
        yield "ends"
