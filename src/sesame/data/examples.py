"""A labelled example: what a task learns from and answers about.

One shape serves all tasks; what `label` holds is the task's business:

| task | text | pair | label |
|---|---|---|---|
| classify | the text | the second text | a name, or with several labels a tuple of names |
| regress | the text | the second text | a number |
| tag | the words joined by spaces | | a tuple with one tag for each of `words` |
| qa | the context | the question | a tuple of `Answer`; empty: there is none |
| choice | the stem | | the number of the right one of `options` |
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
    """A span of the context that answers a question: its text and where it starts, in characters."""

    text: str
    start: int


@dataclass(frozen=True)
class Example:
    place: str  # "file:line", for complaints
    text: str
    pair: str | None = None
    label: Any = None  # None: not labelled
    words: tuple[tuple[int, int], ...] = ()  # tag: the characters of each word in `text`
    options: tuple[str, ...] = ()  # choice
    id: str = ""  # as the file names it; predictions carry it
