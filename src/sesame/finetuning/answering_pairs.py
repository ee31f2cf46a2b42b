"""The pairs of texts that a fine-tuning to answers learns from: read, parted, mixed with those of other tasks.

Several tasks are learnt as T5 learns them: each says in its source what it is (a prefix, or as in decaNLP a question: see
`data/questions.py`), and how often each is drawn follows `data/mixing.py`. Here a pass reads every pair of every task at
least once; those of tasks that are drawn more often than their size would give come again.
"""

import hashlib
import json
from pathlib import Path

import numpy as np

from sesame import chance
from sesame.data.mixing import mixing_rates
from sesame.data.questions import is_template
from sesame.errors import SesameError
from sesame.evaluate.spoken import Sides, read_sides
from sesame.files import write_whole
from sesame.finetuning.answering_wishes import Wishes, task_of
from sesame.progress import say

SIDES = ("source", "target")  # the "languages" of the pairs
FEWEST = 20  # pairs to learn from
HELD, MOST_HELD = 0.1, 1000  # share and number of the pairs that are kept aside where no validation data are given


def read_pairs_of(w: Wishes) -> dict[str, Sides]:
    """train, valid and perhaps test."""
    parts = {
        part: read_sides(data, w.source, w.target, w.prefix)
        for part, data in (("train", w.train), ("valid", w.valid), ("test", w.test))
        if data is not None
    }
    if len(parts["train"]) < FEWEST:
        raise SesameError(f"{w.train}: has {len(parts['train'])} pairs; {FEWEST} are the fewest to learn from")
    if "valid" not in parts:
        parts["train"], parts["valid"] = split_pairs(parts["train"], w.seed)
        say(f"{len(parts['valid']):,} pairs of {w.train} are kept aside to choose by")
    others: dict[str, Sides] = {}
    for prefix, file in map(task_of, w.also):
        if prefix in others:
            raise SesameError(f"--also {prefix}={file}: another task begins like this; give each its own prefix")
        asked = (prefix, None, "") if is_template(prefix) else (None, None, prefix)
        others[prefix] = read_sides(file, *asked)
    if others:
        parts["train"] = mix_tasks({"": parts["train"], **others}, w)
    return {part: parts[part] for part in ("train", "valid", "test") if part in parts}


def write_pairs(folder: Path, parts: dict[str, Sides]) -> None:
    """As pre-training reads them."""
    folder.mkdir(exist_ok=True)
    for part in ("train", "valid"):
        rows = zip(parts[part].sources, parts[part].answers, strict=True)
        lines = [json.dumps(dict(zip(SIDES, row, strict=True)), ensure_ascii=False) for row in rows]
        write_whole(folder / f"{part}.jsonl", "\n".join(lines) + "\n")


def sum_of(sides: Sides) -> str:
    """What the run is bound to: the texts, wherever they stand."""
    texts = {"sources": sides.sources, "answers": sides.answers}
    return hashlib.blake2b(json.dumps(texts).encode(), digest_size=16).hexdigest()


def split_pairs(sides: Sides, seed: int) -> tuple[Sides, Sides]:
    """Training and validation; equal sources are on one side."""
    numbers = {source: number for number, source in enumerate(dict.fromkeys(sides.sources))}
    luck = chance.keys(chance.key(seed, chance.stream("answering.split")), np.arange(len(numbers)))
    held = set(np.argsort(luck)[: max(1, min(MOST_HELD, round(HELD * len(numbers))))].tolist())
    rows = [numbers[source] in held for source in sides.sources]
    if all(rows):
        raise SesameError("all sources are the same, so none can be kept aside; give --valid")
    train, valid = ([row for row, out in enumerate(rows) if out == wanted] for wanted in (False, True))
    return sides.take(train), sides.take(valid)


def mix_tasks(tasks: dict[str, Sides], wishes: Wishes) -> Sides:
    """One pass over all tasks, each as often as its rate says and whole at least once."""
    sizes = {name: len(sides) for name, sides in tasks.items()}
    rates = mixing_rates(sizes, wishes.temperature, wishes.cap)
    whole = max(size / rates[name] for name, size in sizes.items())
    found = Sides()
    for number, (name, sides) in enumerate(tasks.items()):
        wanted = round(whole * rates[name])
        luck = chance.keys(chance.key(wishes.seed, chance.stream("answering.mix"), number), np.arange(len(sides)))
        order = np.argsort(luck)
        drawn = sides.take([int(order[at % len(sides)]) for at in range(wanted)])
        found.sources += drawn.sources
        found.answers += drawn.answers
        found.places += drawn.places
        shown = name or wishes.prefix or "the first task"
        say(f"{shown!r}: {len(sides):,} pairs, {rates[name]:.1%} of what is drawn")
    return found
