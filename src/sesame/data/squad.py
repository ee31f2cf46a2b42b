"""Questions and answers in the JSON of SQuAD, 1.1 and 2.0.

    {"data": [{"paragraphs": [{"context": ..., "qas": [{"id": ..., "question": ..., "is_impossible": ...,
                                                        "answers": [{"text": ..., "answer_start": ...}]}]}]}]}

What is unusual: an answer that is not in its context where the file says (offsets counted in bytes, a context that was
cleaned later) is looked up and moved to its nearest occurrence; one that is nowhere in the context cannot be learned and is
left out. Both are counted.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sesame.data.examples import Answer, Example
from sesame.data.streams import text_blocks
from sesame.data.tables import without_lone_surrogates
from sesame.errors import SesameError

Given = Sequence[tuple[str, int | None]]  # answers as a file gives them: text and start, if it says one


@dataclass
class Finder:
    """Puts answers where they are in their contexts, and counts what had to be mended."""

    moved: int = 0
    lost: int = 0
    first_moved: str = ""
    first_lost: str = ""

    def find(self, context: str, given: Given, place: str) -> tuple[Answer, ...] | None:
        """The answers that are in the context; None if there should be some and none is."""
        found = []
        for text, start in given:
            at = nearest(context, text, start)
            if at is None:
                self.lost += 1
                self.first_lost = self.first_lost or place
                continue
            if start is not None and at != start and context[start : start + len(text)] != text:
                self.moved += 1
                self.first_moved = self.first_moved or place
            found.append(Answer(context[at : at + len(text.strip())], at))
        return tuple(found) if found or not given else None

    def warnings(self) -> list[str]:
        said = []
        if self.moved:
            said.append(f"moved to where they are in the context: {self.moved:,} answers, first at {self.first_moved}")
        if self.lost:
            said.append(f"left out because not in the context: {self.lost:,} answers, first at {self.first_lost}")
        return said


def nearest(context: str, text: str, start: int | None) -> int | None:
    """Where `text`, without white space around it, is in `context`, as near to `start` as can be."""
    bare = text.strip()
    if not bare:
        return None
    if start is None:
        at = context.find(bare)
        return None if at < 0 else at
    start = max(0, start + len(text) - len(text.lstrip()))
    if context.startswith(bare, start):
        return start
    behind = context.find(bare, start)
    before = context.rfind(bare, 0, start + len(bare) - 1)
    found = [at for at in (before, behind) if at >= 0]
    return min(found, key=lambda at: abs(at - start)) if found else None


def read_squad(path: Path) -> tuple[list[Example], list[str]]:
    """Every question of a file, with None for a label where it has no `answers`, or none that is in the context."""
    finder = Finder()
    examples = []
    for number, (where, context, question) in enumerate(_questions(path), 1):
        id = str(question.get("id", number))
        place = f"{path}: question {id}"
        asked = _text(question, "question", where)
        label: tuple[Answer, ...] | None = None
        if question.get("is_impossible") is True:
            label = ()
        elif question.get("answers") is not None:
            label = finder.find(context, given_answers(question["answers"], place), place)
        examples.append(Example(place, context, asked, label, id=id))
    return examples, [f"{path}: {warning}" for warning in finder.warnings()]


def _questions(path: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Each question with its context and its place in the file, as in data[3].paragraphs[0].qas[1]."""
    for article, where in _items(_load(path), "data", str(path)):
        for paragraph, inner in _items(article, "paragraphs", where):
            context = _text(paragraph, "context", inner)
            for question, innermost in _items(paragraph, "qas", inner):
                yield innermost, context, question


def _load(path: Path) -> dict[str, Any]:
    text = "".join(text_blocks(path))
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            raise SesameError(
                f"{path}:{error.lineno}: holds more than one JSON value; call JSON lines .jsonl"
            ) from None
        raise SesameError(f"{path}:{error.lineno}: is not JSON ({error.msg}); mend it or copy it again") from None
    except (ValueError, RecursionError) as error:
        raise SesameError(f"{path}: is not JSON ({error}); mend it or copy it again") from None
    if not isinstance(value, dict):
        raise SesameError(f'{path}: is not the JSON of SQuAD, {{"data": [...]}}; call a file of JSON lines .jsonl')
    mended = without_lone_surrogates(value) if "\\u" in text else value
    return dict(mended)


def _items(value: dict[str, Any], name: str, where: str) -> Iterator[tuple[dict[str, Any], str]]:
    items = value.get(name)
    if not isinstance(items, list):
        raise SesameError(f"{where}: has no list {name!r}, as the JSON of SQuAD must; add it")
    inside = where + ("." if "[" in where else ": ") + name
    for number, item in enumerate(items):
        if not isinstance(item, dict):
            raise SesameError(f"{inside}[{number}]: is not a JSON object; mend or remove it")
        yield item, f"{inside}[{number}]"


def _text(value: dict[str, Any], name: str, where: str) -> str:
    text = value.get(name)
    if not isinstance(text, str):
        raise SesameError(f"{where}: has no text {name!r}, as the JSON of SQuAD must; add it")
    return text


def given_answers(value: Any, place: str) -> Given:
    """Answers in any of the shapes they come in.

    A list of {"text", "answer_start" or "start"}, or of texts; {"text": [...], "answer_start": [...]}; a single text.
    """
    if isinstance(value, dict) and isinstance(value.get("text"), list):
        texts, starts = value["text"], value.get("answer_start", value.get("start"))
        starts = [None] * len(texts) if starts is None else starts
        if not isinstance(starts, list) or len(starts) != len(texts):
            raise SesameError(f"{place}: the answers do not have one start for each text; mend or remove the row")
        return [_answer(text, start, place) for text, start in zip(texts, starts, strict=True)]
    if isinstance(value, str | dict):
        value = [value]
    if not isinstance(value, list):
        raise SesameError(
            f'{place}: the answers are not a list of {{"text": ..., "start": ...}}; mend or remove the row'
        )
    return [
        _answer(one.get("text"), one.get("answer_start", one.get("start")), place)
        if isinstance(one, dict)
        else _answer(one, None, place)
        for one in value
    ]


def _answer(text: Any, start: Any, place: str) -> tuple[str, int | None]:
    if not isinstance(text, str) or not (start is None or type(start) is int):
        shown = json.dumps([text, start], default=str)[:60]
        raise SesameError(f"{place}: an answer needs a text and a whole number as its start, not {shown}; mend it")
    return text, start
