"""Looking at labelled data before an hour is spent on it: can it be learned from, how to hold some out, what is odd about it.

What is unusual about the split: examples with the same text go to the same side, always, so that a validation score is never
a memory test; and no class is ever held out whole.
"""

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from sesame.data.examples import Example
from sesame.errors import SesameError

_PLACE = re.compile(r"(.*?)(?::\d+|: (?:row|question) .*)", re.DOTALL)
_FEW = 5  # rows of a class are too few to learn it from, and to measure it by
_RUN = 5  # words in a row that two texts seldom share by chance
_OFTEN = 1 / 3  # of the rows: templates and phrases of habit alone are fewer (Banking77 has 0.23, SST-2's phrases 0.63)
_READ = 1_000_000  # words are looked through at most, which takes seconds


def check_training(examples: Sequence[Example], task: str) -> None:
    """Refuse data that nothing can be learned from."""
    if len(examples) < 2:
        file = f"{_file(examples[0])}: holds" if examples else "the training data hold"
        raise SesameError(f"{file} only {len(examples)} labelled rows to learn from; give at least 2, better hundreds")
    file = _file(examples[0])
    if task == "regress" and len({example.label for example in examples}) == 1:
        raise SesameError(f"{file}: all rows have the score {examples[0].label}; there is nothing to learn, add others")
    if task == "tag" and not any(set(example.label) - {"O"} for example in examples):
        raise SesameError(f"{file}: all words have the tag O; there is nothing to learn, choose another --label-column")
    if task != "classify":
        return
    if len({example.label for example in examples}) == 1:
        named = ", ".join(_labels(examples[0])) or "no label at all"
        raise SesameError(
            f"{file}: all rows have one class only, {named!r}; add rows of another, or choose another --label-column"
        )
    classes = {name for example in examples for name in _labels(example)}
    if len(classes) > max(1000, len(examples) / 2):
        raise SesameError(
            f"{file}: the label column looks like an id or a text: {len(classes):,} different labels in "
            f"{len(examples):,} rows; choose another with --label-column"
        )


def stratified(examples: Sequence[Example], share: float = 0.1, seed: int = 0) -> tuple[list[int], list[int]]:
    """Hold out about `share` of the examples: (rows to train on, rows to validate on), each in order.

    Names as labels are held out in proportion: what rounding takes from one class it gives to the next. The held-out list is
    empty if there is only one text, or one of each class.
    """
    groups: dict[object, list[int]] = defaultdict(list)
    for row, example in enumerate(examples):
        groups[_group(example)].append(row)
    strata: dict[str, list[list[int]]] = defaultdict(list)
    for rows in groups.values():
        label = examples[rows[0]].label
        strata[label if isinstance(label, str) else ""].append(rows)
    chance = random.Random(seed)
    owed, held = 0.0, []
    for name in sorted(strata):
        chance.shuffle(strata[name])
        owed += share * sum(map(len, strata[name]))
        for rows in strata[name][1:]:  # the first one stays in training
            if len(rows) / 2 <= owed:  # nearer to the goal with it than without
                held.append(rows)
                owed -= len(rows)
    valid = _without_whole_classes(examples, held)
    if not valid and share > 0:  # a few rows only: the first text that can be spared
        single = (_without_whole_classes(examples, [rows]) for name in sorted(strata) for rows in strata[name][1:])
        valid = next(filter(None, single), [])
    chosen = set(valid)
    return [row for row in range(len(examples)) if row not in chosen], sorted(valid)


def _group(example: Example) -> object:
    """What must not be on both sides. Questions about one context share its words, so they stay together."""
    is_question = isinstance(example.label, tuple) and not example.words and not _labels(example)
    if example.pair is not None and is_question:
        return example.text
    return example.text, example.pair, example.options


def _without_whole_classes(examples: Sequence[Example], held: list[list[int]]) -> list[int]:
    """Give back to training the groups without which it would lack a class (mixed groups, several labels, entities)."""

    def names_in(rows: Iterable[Example]) -> Counter[str]:
        return Counter(name for one in rows for name in (set(_classes(one, "tag")) if one.words else _labels(one)))

    left = names_in(examples)
    valid = []
    for rows in held:
        names = names_in(examples[row] for row in rows)
        if all(left[name] > count for name, count in names.items()):
            left -= names
            valid += rows
    return valid


def _labels(example: Example) -> tuple[str, ...]:
    """The class names of an example: one, several, or none where labels are something else."""
    if isinstance(example.label, str):
        return (example.label,)
    if isinstance(example.label, tuple) and not example.words:
        return tuple(name for name in example.label if isinstance(name, str))
    return ()


def _file(example: Example) -> str:
    found = _PLACE.fullmatch(example.place)
    return found[1] if found else example.place


# ---- what is odd ----------------------------------------------------------------------------------------------------


def describe(train: Sequence[Example], valid: Sequence[Example], test: Sequence[Example], task: str) -> list[str]:
    """What to know about the data before training, in sentences."""
    return [
        *_balance(train, task),
        *_duplicates(train),
        *_single(valid, task),
        *_overlap(train, valid, "validation"),
        *_overlap(train, test, "test"),
        *(_pieces(train, valid, "validation") if task != "qa" else ()),  # a context has many questions
        *(_pieces(train, test, "test") if task != "qa" else ()),
        *_unseen(train, valid, task, "validation"),
        *_unseen(train, test, task, "test"),
    ]


def _balance(train: Sequence[Example], task: str) -> Iterable[str]:
    rows = len(train)
    if not rows:
        return
    if task == "regress":
        scores = [float(example.label) for example in train]
        mean = sum(scores) / rows
        yield f"{rows:,} training rows with scores from {min(scores):g} to {max(scores):g}, on average {mean:.3g}"
    elif task == "qa":
        without = sum(not example.label for example in train)
        yield f"{rows:,} training questions, {_percent(without, rows)} of them without an answer"
    elif task == "choice":
        _, most = Counter(example.label for example in train).most_common(1)[0]
        yield f"{rows:,} training questions; always choosing the most frequent position is right in {_percent(most, rows)}"
    else:
        counts = Counter(name for example in train for name in set(_classes(example, task)))
        yield from _class_balance(
            counts, rows, ("entity type", "entity types") if task == "tag" else ("class", "classes")
        )


def _class_balance(counts: Counter[str], rows: int, names: tuple[str, str]) -> Iterable[str]:
    """`names` of what is counted: one of them, several."""
    what = names[len(counts) != 1]
    if not counts:
        yield f"{rows:,} training rows without any of the {what}"
        return
    ordered = sorted(counts, key=lambda name: (-counts[name], name))
    big, small = ordered[0], ordered[-1]
    yield (
        f'{rows:,} training rows, {len(counts):,} {what}; biggest "{big}" in {counts[big]:,} rows '
        f'({_percent(counts[big], rows)}), smallest "{small}" in {counts[small]:,} ({_percent(counts[small], rows)})'
    )
    if rare := [name for name in ordered if counts[name] < _FEW]:
        yield f"warning: {len(rare):,} of {len(counts):,} {names[1]} have fewer than {_FEW} training rows: {_some(rare)}"


def _classes(example: Example, task: str) -> tuple[str, ...]:
    if task == "tag":
        return tuple(tag.partition("-")[2] or tag for tag in example.label or () if tag != "O")
    return _labels(example)


def _duplicates(train: Sequence[Example]) -> Iterable[str]:
    seen: dict[object, list[Example]] = defaultdict(list)
    for example in train:
        seen[_folded(example)].append(example)
    repeated = [same for same in seen.values() if len(same) > 1]
    if repeated:
        rows = sum(len(same) - 1 for same in repeated)
        yield f"warning: {rows:,} of {len(train):,} training rows repeat an earlier text, first {repeated[0][1].place}"
    unlike = [same for same in repeated if len({example.label for example in same}) > 1]
    if unlike:
        first = next(example for example in unlike[0] if example.label != unlike[0][0].label)
        yield (
            f"warning: same text with different labels: {len(unlike):,} training texts, first {unlike[0][0].place} and "
            f"{first.place}"
        )


def alike(examples: Sequence[Example], task: str) -> bool:
    """Whether several rows are one text again and again, to which any model gives one answer; tags it gives to words."""
    return task != "tag" and len(examples) > 1 and len({(row.text, row.pair, row.options) for row in examples}) == 1


def _single(valid: Sequence[Example], task: str) -> Iterable[str]:
    if alike(valid, task):
        yield (
            f"warning: all {len(valid):,} validation rows have the same text, so no model can give them different answers; "
            "give others with --valid"
        )


def _overlap(train: Sequence[Example], other: Sequence[Example], name: str) -> Iterable[str]:
    known = {_folded(example) for example in train} if other else set()
    both = [example for example in other if _folded(example) in known]
    if both:
        yield (
            f"warning: {len(both):,} of {len(other):,} {name} rows ({_percent(len(both), len(other))}) have a text that is "
            f"also in training (case and spaces aside), first {both[0].place}; scores on them are too good"
        )


def _pieces(train: Sequence[Example], other: Sequence[Example], name: str) -> Iterable[str]:
    """Texts of which half or more stands in training texts: phrases of one sentence, parts of one document, templates."""
    train, other = _sample(train), _sample(other)
    runs = [(example, _runs(example)) for example in other]
    wanted = {run for _, found in runs for run in found}
    known: set[int] = set()
    for example in train if wanted else ():
        known |= wanted & _runs(example)
    whole = {_folded(example) for example in train} if known else set()  # those are told already
    shared = [example for example, found in runs if found and len(found & known) >= len(found) / 2]
    shared = [example for example in shared if _folded(example) not in whole]
    if len(shared) > _OFTEN * len(other):
        yield (
            f"warning: {len(shared):,} of {len(other):,} {name} rows ({_percent(len(shared), len(other))}) have a text that "
            f"stands half or more in training texts, first {shared[0].place}; scores on them are too good: part rows by "
            "where they come from, if you can"
        )


def _sample(examples: Sequence[Example]) -> Sequence[Example]:
    words = sum(example.text.count(" ") + (example.pair or "").count(" ") for example in examples)
    return examples[:: 1 + words // _READ]


def _runs(example: Example) -> set[int]:
    """All runs of words, as numbers: a set of strings would hold the training data several times over."""
    found = set()
    for text in (example.text, example.pair or ""):
        words = text.casefold().split()
        found |= {hash(tuple(words[at : at + _RUN])) for at in range(len(words) - _RUN + 1)}
    return found


def _unseen(train: Sequence[Example], other: Sequence[Example], task: str, name: str) -> Iterable[str]:
    if task not in ("classify", "tag"):
        return
    known = {label for example in train for label in _classes(example, task)}
    unseen = Counter(label for example in other for label in set(_classes(example, task)) - known)
    if unseen:
        rows = sum(not known.issuperset(_classes(example, task)) for example in other)
        yield (
            f"warning: {rows:,} of {len(other):,} {name} rows have labels that training does not: "
            f"{_some(sorted(unseen, key=lambda label: (-unseen[label], label)))}; they cannot be predicted"
        )


def _folded(example: Example) -> object:
    texts = (example.text, example.pair or "", *example.options)
    return tuple(" ".join(text.casefold().split()) for text in texts)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / max(1, whole):.1f} %"


def _some(names: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(f'"{name}"' for name in names[:most])
    return shown + (f" and {len(names) - most:,} more" if len(names) > most else "")
