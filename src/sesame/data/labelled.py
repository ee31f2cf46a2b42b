"""Labelled examples from whatever a user has: CSV, TSV, JSON lines, Parquet, CoNLL columns or the JSON of SQuAD.

    read_labelled("train.csv", "classify")         # columns are guessed by their names, and the guess is said
    read_labelled("train.csv", "classify", {"text": "body", "label": "topic"})
    read_labelled("train.txt", "tag"); read_labelled("train-v1.1.json", "qa")

The format follows the name of the file, packed (.gz .xz .zst .bz2) or not. Rows without a text are left out and counted; rows
without a label too, as long as they are fewer than one in ten. For prediction every row stays where it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sesame.data.choices import read_choices
from sesame.data.columns import ROLES
from sesame.data.conll import read_conll
from sesame.data.examples import Example
from sesame.data.labelled_questions import read_question_rows
from sesame.data.labelled_texts import read_text_rows
from sesame.data.labelled_words import read_word_rows
from sesame.data.squad import read_squad
from sesame.data.tables import TABLES, inner_suffix, read_table
from sesame.errors import SesameError

TASKS = ("classify", "regress", "tag", "qa", "choice")
MOST_MISSING = 0.1  # of the rows may lack a label


@dataclass(frozen=True)
class Labelled:
    """Examples, one line about how they were read, and counted warnings, each one sentence."""

    examples: list[Example]
    said: str
    warnings: list[str]


def read_labelled(
    path: str | Path,
    task: str,
    columns: Mapping[str, str] | None = None,
    *,
    labels: bool = True,
    multi: str | None = None,
) -> Labelled:
    """Read the examples of one file for a task: classify, regress, tag, qa or choice.

    `columns` says which column is the "text", "pair", "label" or "id", where the user has said so. Without `labels`, for
    prediction, labels are read if they are there. `multi` is what separates several labels in one cell, as in "a|b".
    """
    path, columns = Path(path), dict(columns or {})
    _check(path, task, columns)
    suffix = inner_suffix(path)
    if task == "tag" and suffix not in set(TABLES) - {".tsv", ".tab"}:
        found = read_conll(path, columns, labels)
        return Labelled(found.examples, found.said, found.warnings)
    if task == "qa" and suffix == ".json":
        if columns:
            raise SesameError(f"{path}: the JSON of SQuAD has no columns to choose; leave out --{min(columns)}-column")
        examples, warnings = read_squad(path)
        return _whole(path, examples, f"{path.name}: {len(examples):,} questions", warnings, labels, "questions")
    table = read_table(path, [*columns.values()], whole=not labels)
    if task == "tag":
        found = read_word_rows(table, columns, labels)
        return Labelled(found.examples, found.said, found.warnings)
    readers = {"qa": read_question_rows, "choice": read_choices}
    if task in readers:
        examples, said, warnings = readers[task](table, columns, labels)
    else:
        examples, said, warnings = read_text_rows(table, columns, labels, task, multi)
    hint = (
        ", or say with --multi what separates labels if none is an answer too"
        if task == "classify" and not multi
        else ""
    )
    warnings = [*table.warnings, *warnings]
    return _whole(path, examples, f"{path.name}: {len(examples):,} rows; {said}", warnings, labels, "rows", hint)


def _check(path: Path, task: str, columns: Mapping[str, str]) -> None:
    if task not in TASKS:
        raise SesameError(f"there is no task {task!r}; choose one of {', '.join(TASKS)}")
    for role in columns:
        if role not in ROLES:
            raise SesameError(f"there is no column for {role!r}; choose among {', '.join(ROLES)}")
    if path.is_dir():
        raise SesameError(f"{path}: is a folder; name one file with labelled rows")
    if not path.exists():
        raise SesameError(f"{path}: no such file; check the name")
    if path.is_file() and path.stat().st_size == 0:
        raise SesameError(f"{path}: is empty; give a file with rows")


def _whole(
    path: Path, examples: list[Example], said: str, warnings: list[str], labels: bool, unit: str, hint: str = ""
) -> Labelled:
    """Leave out, and count, what cannot be learnt from."""
    texts = [one for one in examples if has_text(one)]
    if not labels and texts:
        return Labelled(examples, said, warnings)
    if lost := len(examples) - len(texts):
        first = next(one.place for one in examples if not has_text(one))
        warnings.append(f"{path}: left out {lost:,} of {len(examples):,} {unit} with an empty text, first at {first}")
    kept = [one for one in texts if one.label is not None]
    if missing := len(texts) - len(kept):
        first = next(one.place for one in texts if one.label is None)
        if missing >= MOST_MISSING * len(texts):
            raise SesameError(
                f"{first}: {missing:,} of {len(texts):,} {unit} have no answer, or none that stands in its context, first "
                "here; mend the answers or their contexts"
                if unit == "questions"
                else f"{first}: {missing:,} of {len(texts):,} {unit} have no label, the first one here; label them or "
                f"take them out, or choose another column with --label-column{hint}"
            )
        warnings.append(f"{path}: left out {missing:,} of {len(texts):,} {unit} without a label, first at {first}")
    if not kept:
        raise SesameError(f"{path}: there is no text in any of its {unit}; choose another column with --text-column")
    return Labelled(kept, said, warnings)


def has_text(one: Example) -> bool:
    """Whether there is something to read, on both sides of a pair."""
    return bool(one.text.strip()) and (one.pair is None or bool(one.pair.strip()))
