"""What a program hands over to be answered: texts, pairs of texts or examples. What is none of them is told by its number."""

from collections.abc import Iterable, Sequence

from sesame.data.examples import Example
from sesame.errors import SesameError
from sesame.tasks.base import Task


def example_of(task: Task, given: str | tuple[str, str] | Example, number: int) -> Example:
    if isinstance(given, Example):
        return given
    place = f"text {number}"
    if isinstance(given, str):
        return Example(place, given)
    asks = task.config.kind == "qa"
    parts = tuple(given) if isinstance(given, Iterable) and not isinstance(given, dict | set) else ()
    first, second = parts if len(parts) == 2 else (None, None)
    if not isinstance(first, str) or not isinstance(second, str if asks else str | None):
        raise SesameError(f"{place} is {_briefly(given)}, neither a text nor a pair of texts; mend it or leave it out")
    return Example(place, second, first) if asks else Example(place, first, second)


def texts_of(given: str | Sequence[str]) -> list[str]:
    """A list of texts; what is none, such as a gap in a data frame, is told by its number."""
    texts = [given] if isinstance(given, str) else list(given)
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise SesameError(f"text {number} is {_briefly(text)}, not a text; mend it or leave it out")
    return texts


def _briefly(value: object) -> str:
    return repr(value)[:60]
