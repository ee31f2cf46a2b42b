"""Labelled examples from whatever a user has: CSV, TSV, JSON lines, Parquet, CoNLL columns or the JSON of SQuAD.

    read_labelled("train.csv", "classify")         # columns are guessed by their names, and the guess is said
    read_labelled("train.csv", "classify", {"text": "body", "label": "topic"})
    read_labelled("train.txt", "tag"); read_labelled("train-v1.1.json", "qa")

The format follows the name of the file, packed (.gz .xz .zst .bz2) or not. Rows without a text are left out and counted; rows
without a label too, as long as they are fewer than one in ten. For prediction every row stays where it is.
"""

import math
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from sesame.data.choices import read_choices
from sesame.data.columns import ROLES, briefly, column_for, id_in, text_columns, text_in, unknown_column, unread
from sesame.data.conll import Sentence, read_conll, tagged
from sesame.data.examples import Answer, Example
from sesame.data.squad import Finder, given_answers, read_squad
from sesame.data.tables import IDS, TABLES, Table, fold, inner_suffix, is_number, listed, read_table
from sesame.errors import SesameError

TASKS = ("classify", "regress", "tag", "qa", "choice")
MOST_MISSING = 0.1  # of the rows may lack a label
LARGEST_SCORE = 1e36  # a model computes in 32 bits, which end at 3e38
_WORDS = listed("tokens words text sentence")
_TAGS = listed("ner_tags tags labels label ner tag")
_CONTEXTS = listed("context passage paragraph document text")
_QUESTIONS = listed("question query")
_ANSWERS = listed("answers answer label")


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
        return _tags(table, columns, labels)
    readers = {"qa": _qa, "choice": read_choices}
    if task in readers:
        examples, said, warnings = readers[task](table, columns, labels)
    else:
        examples, said, warnings = _texts(table, columns, labels, task, multi)
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


# ---- classify and regress -------------------------------------------------------------------------------------------


def _texts(
    table: Table, columns: Mapping[str, str], labels: bool, task: str, multi: str | None
) -> tuple[list[Example], str, list[str]]:
    text, pair, label = text_columns(table, columns, task, labels)
    if text is None:
        raise unknown_column(table, "text", "text")
    if label is None and labels:
        raise unknown_column(table, "label", "label")
    ids = column_for(table, columns, "id", IDS, {text, pair, label})
    unsure = label is not None and fold(label) == "gold_label"
    read: Callable[[Any, str, str], Any] = _score if task == "regress" else _names(multi, unsure)
    trusted = labels or "label" in columns  # a column that was only guessed must not stop a prediction
    examples = []
    for line, row in table.rows:
        place = table.place(line)
        first = text_in(row.get(text), place, text).strip()
        second = None if pair is None else text_in(row.get(pair), place, pair).strip()
        found = None
        if label is not None:
            try:
                found = read(row.get(label), place, label)
            except SesameError:
                if trusted:
                    raise
        examples.append(Example(place, first, second, found, id=id_in(row, ids)))
    if any(isinstance(one.label, tuple) for one in examples):
        examples = [replace(one, label=(one.label,)) if isinstance(one.label, str) else one for one in examples]
    chosen = {"text": text, "pair": pair, "label": label}
    said = ", ".join(f'{role} = "{name}"' for role, name in chosen.items() if name is not None)
    guessed = any(name is not None and role not in columns for role, name in chosen.items())
    said = ("" if table.header else "no header; ") + said + (" (guessed)" if guessed else "")
    if pair is None and "text" not in columns and (left := unread(table, {text, label})):
        said += f"; not read: {', '.join(map(repr, left))}"
    return examples, said, _alike(table.path, examples) if labels and task == "classify" else []


def _alike(path: Path, examples: list[Example]) -> list[str]:
    """A warning about labels that only their spelling makes different classes: "Yes" and "yes", "1" and "1.0"."""
    names = {name for one in examples for name in (one.label if isinstance(one.label, tuple) else [one.label]) if name}
    spellings: dict[str, list[str]] = {}
    for name in sorted(map(str, names)):
        folded = " ".join(unicodedata.normalize("NFKC", name).casefold().split())
        spellings.setdefault(str(float(folded)) if is_number(folded) else folded, []).append(name)
    several = [names for names in spellings.values() if len(names) > 1]
    if not several:
        return []
    first = ", ".join(f'"{name}"' for name in several[0][:5])
    more = f", and {len(several) - 1:,} more such groups" if len(several) > 1 else ""
    return [f"{path}: the labels {first}{more} are taken for different classes; write them alike if they mean the same"]


def _names(multi: str | None, unsure: bool = False) -> Callable[[Any, str, str], Any]:
    """`unsure`: a label "-" is none, as where the annotators of SNLI and MultiNLI did not agree."""

    def read(value: Any, place: str, column: str) -> str | tuple[str, ...] | None:
        if unsure and value == "-":
            return None
        if multi and isinstance(value, str):
            value = [part for part in value.split(multi) if part.strip()]
        if isinstance(value, list):
            names = [_name(one, place, column) for one in value]
            return tuple(dict.fromkeys(name for name in names if name is not None))
        return _name(value, place, column)

    return read


def _name(value: Any, place: str, column: str) -> str | None:
    if isinstance(value, str):
        return value.strip() or None
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, float | Decimal) and value % 1 == 0:
        return str(int(value))
    if isinstance(value, bool | int | float | Decimal):
        return str(value)
    raise SesameError(f"{place}: {column!r} holds {briefly(value)}, not a label; mend the row or choose another column")


def _score(value: Any, place: str, column: str) -> float | None:
    if value is None or value == "" or (isinstance(value, str) and value.isspace()):
        return None
    if isinstance(value, str | int | float | Decimal) and not isinstance(value, bool):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            number = math.nan
        if abs(number) <= LARGEST_SCORE:
            return number
        if math.isfinite(number):
            raise SesameError(
                f"{place}: {column!r} holds {briefly(value)}, too large a score for a model; divide all of them"
            )
    raise SesameError(
        f"{place}: {column!r} holds {briefly(value)}, not a finite number; write it like 3.5, or choose another column "
        "with --label-column"
    )


# ---- tag and qa -----------------------------------------------------------------------------------------------------


def _tags(table: Table, columns: Mapping[str, str], labels: bool) -> Labelled:
    words = column_for(table, columns, "text", _WORDS, set())
    if words is None:
        raise unknown_column(table, "words", "text")
    tags = column_for(table, columns, "label", _TAGS, {words})
    if tags is None and labels:
        raise unknown_column(table, "tags", "label")
    ids = column_for(table, columns, "id", IDS, {words, tags})
    named = words.casefold() in ("tokens", "words")  # then blanks part them, as in the file that was learnt from
    if tags is None and not named and all(isinstance(row.get(words), str) for _, row in table.rows):
        # Texts as people write them: read as lines are, what a word is there is the task's business.
        plain = [Example(table.place(line), row[words], id=id_in(row, ids)) for line, row in table.rows]
        return Labelled(plain, f"{table.path.name}: {len(plain):,} texts", [])
    sentences, names, numbers = [], [], True
    for line, row in table.rows:
        place = table.place(line)
        cells = ["" if word is None else str(word).strip() for word in _list(row.get(words), place, words)]
        one = Sentence(place, 0, cells, None)
        if tags is not None and (labels or row.get(tags) is not None):
            given = _list(row.get(tags), place, tags)
            numbers = numbers and all(isinstance(tag, int) for tag in given)
            one.tags = [str(tag) for tag in given]
            if len(one.tags) != len(one.words):
                raise SesameError(
                    f"{place}: there are {len(one.words)} words and {len(one.tags)} tags; give one tag for each word"
                )
        sentences.append(one)
        names.append(id_in(row, ids))
    by_place = {one.file: name for one, name in zip(sentences, names, strict=True)}
    found = tagged(sentences, table.path, labels, strict="label" in columns or labels, numbers=numbers)
    examples = [replace(one, id=by_place[one.place]) for one in found.examples]
    lost = len(sentences) - len(examples)
    warnings = [f"{table.path}: left out {lost:,} of {len(sentences):,} rows without words"] if lost else []
    return Labelled(examples, found.said, [*table.warnings, *found.warnings, *warnings])


def _list(value: Any, place: str, column: str) -> list[Any]:
    if isinstance(value, str):
        return value.split()
    if not isinstance(value, list):
        raise SesameError(
            f"{place}: {column!r} holds {briefly(value)}, neither a text nor a list; mend the row or choose another column"
        )
    return value


def _qa(table: Table, columns: Mapping[str, str], labels: bool) -> tuple[list[Example], str, list[str]]:
    question = column_for(table, columns, "pair", _QUESTIONS, set())
    context = column_for(table, columns, "text", _CONTEXTS, {question})
    answers = column_for(table, columns, "label", _ANSWERS, {question, context})
    for what, option, column in (("context", "text", context), ("question", "pair", question)):
        if column is None:
            raise unknown_column(table, what, option)
    if answers is None and labels:
        raise unknown_column(table, "answers", "label")
    ids = column_for(table, columns, "id", IDS, {question, context, answers})
    start = table.find(["answer_start", "start"])
    assert context is not None
    assert question is not None
    finder, examples = Finder(), []
    for line, row in table.rows:
        place = table.place(line)
        text = text_in(row.get(context), place, context)
        label: tuple[Answer, ...] | None = None
        given = row.get(answers) if answers is not None else None
        if isinstance(given, str) and start is not None:
            given = {"text": given, "start": _whole_number(row.get(start))}
        if str(row.get("is_impossible")).strip().casefold() in ("true", "1"):  # cells of a CSV are texts
            label = ()
        elif given is not None:
            label = finder.find(text, given_answers(given, place), place)
        asked = text_in(row.get(question), place, question)
        examples.append(Example(place, text, asked, label, id=id_in(row, ids)))
    said = f'text = "{context}", pair = "{question}"' + (f', label = "{answers}"' if answers else "")
    return examples, said, [f"{table.path}: {warning}" for warning in finder.warnings()]


def _whole_number(value: Any) -> Any:
    """A number as a CSV writes it, or a column of Parquet with gaps; None for a gap, and what is no number as it is."""
    if value is None or (isinstance(value, str) and not value.strip()) or value != value:
        return None
    if isinstance(value, str) and is_number(value):
        value = float(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value
