"""The whole story in minutes: text that is already on the machine, a small BERT, and sentences that it never saw.

documentation of the installed packages -> documentation.txt, heldout.txt -> bert/ -> a table of filled masks
                                         -> labels.jsonl ... -> which library? (`demo_labels.py`)
"""

import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sesame.data.docstrings import harvest
from sesame.data.readers import read_documents
from sesame.data.sentences import split_sentences
from sesame.errors import SesameError
from sesame.files import write_whole
from sesame.progress import bar, say
from sesame.text import Tokenizer

TEXT_BYTES = 20_000_000  # more than a few minutes can read
HELD_OUT = 25  # one module in so many is kept aside
SHOWN = 12
ASKED = 200
COMMON = 100  # a word must stand so often in the training text to be asked for
SIZE = "tiny"
# BERT's numbers are for weeks. In two minutes on a CPU a model sees a million tokens, so: short rows, small batches, a
# higher rate, fresh masks, no dropout, no second objective, and rotary positions, which need not be learnt first.
SETTINGS = (
    "table=counts",
    "tokenizer.size=8192",
    "backbone.order=pre",
    "backbone.positions=rotary",
    "backbone.segments=0",
    "backbone.dropout=0.0",
    "backbone.attention_dropout=0.0",
    "objectives.nsp=false",
    "objectives.mlm.static=0",
    "stages.long.share=0",
    "stages.short.packing=sentences",
    "stages.short.length=32",
    "stages.short.batch=32",
    "optimizer.rate=1e-3",
    "optimizer.beta2=0.98",
    "schedule.warmup=0.05",
)

_WORD = re.compile(r"[A-Za-z]+")


@dataclass(frozen=True)
class Question:
    """A held-out sentence with one word hidden."""

    text: str
    answer: str  # the token that stood there


def run_demo(out: Path, budget: float) -> None:
    """Collect text, pre-train for `budget` seconds, and show what was learnt."""
    text, held = out / "documentation.txt", out / "heldout.txt"
    if not (text.is_file() and held.is_file() and (out / "test.jsonl").is_file()):
        write_documentation(text, held)
    from sesame.demo_labels import classify
    from sesame.opening import load
    from sesame.pretraining.run import pretrain
    from sesame.pretraining.wishes import Wishes

    final = pretrain(
        Wishes(
            "bert", text=[str(text)], out=out / "bert", size=SIZE, budget=budget, settings=SETTINGS, valid=[str(held)]
        )
    )
    model = load(final)
    counts = count_words(text)
    asked = list(questions(held, model.tokenizer, counts))
    if not asked:
        raise SesameError(f"{held}: has no sentence to ask about; remove the folder {out} and run the demo again")
    mask = model.tokenizer.roles["mask"]
    answers = model.fill([question.text.replace("[MASK]", mask) for question in asked], top=3)
    guesses = [list(zip(found[0].tokens, found[0].probabilities, strict=True)) for found in answers]
    _show(asked, guesses, counts, out)
    classify(out, final)
    say("or your own text: sesame pretrain bert --size mini --text YOUR.txt --budget 20m --out runs/mine")


def write_documentation(text: Path, held: Path) -> None:
    """One paragraph a line, a blank line between documents; some modules go to `held` instead."""
    from sesame.demo_labels import row_of, write_labels

    parts: dict[Path, list[str]] = {text: [], held: []}
    rows = []
    with bar("collecting documentation", TEXT_BYTES, "B") as shown:
        for (_, module), group in groupby(harvest(TEXT_BYTES), key=lambda entry: (entry.library, entry.module)):
            entries = list(group)
            apart = zlib.crc32(module.encode()) % HELD_OUT == 0
            document = "\n".join(entry.text for entry in entries)
            parts[held if apart else text].append(document)
            rows += [row for entry in entries if (row := row_of(entry, apart)) is not None]
            shown.advance(len(document.encode("utf-8", "replace")))
    if not all(parts.values()):
        raise SesameError(
            "too little documentation is installed here for a demo; run `sesame pretrain` on your own text"
        )
    write_labels(rows, text.parent)
    for path in (held, text):
        write_whole(path, "\n\n".join(parts[path]) + "\n")
    size = text.stat().st_size / 1e6
    say(f"{text}: {size:.1f} MB of documentation from {len(parts[text]):,} Python modules; {len(parts[held])} held out")


def count_words(text: Path, sample: int = 8_000_000) -> Counter[str]:
    """Words of the training text, from its first megabytes."""
    counts: Counter[str] = Counter()
    size = 0
    for document in read_documents([text]):
        counts.update(_WORD.findall(document.text.lower()))
        size += len(document.text)
        if size > sample:
            break
    return counts


def questions(held: Path, tokenizer: Tokenizer, counts: Counter[str]) -> Iterator[Question]:
    """At most `ASKED` sentences of 8 to 25 words, one from each document, always the same ones."""
    least = min(COMMON, counts.total() // 2000)
    asked = 0
    for document in read_documents([held]):
        fitting = [s for s in split_sentences(document.text) if 8 <= s.count(" ") + 1 <= 25 and s[-1] in ".!?"]
        if not fitting:
            continue
        sentence = fitting[zlib.crc32(document.text.encode("utf-8", "replace")) % len(fitting)]
        common = [
            word for word in _WORD.finditer(sentence) if counts[word[0].lower()] > least and _apart(sentence, word)
        ]
        if not common:
            continue
        word = common[zlib.crc32(sentence.encode("utf-8", "replace")) % len(common)]
        pieces = tokenizer.encode(word[0], literal=True).ids
        if len(pieces) != 1:
            continue
        yield Question(sentence[: word.start()] + "[MASK]" + sentence[word.end() :], tokenizer.token(pieces[0]))
        asked += 1
        if asked == ASKED:
            return


def _apart(sentence: str, word: re.Match[str]) -> bool:
    """Not a part of a name such as `my_list` or `os.path`."""
    before, after = sentence[: word.start()][-1:], sentence[word.end() :]
    return before in ("", " ", "(") and re.match(r"[,;:)]?(?:\s|$)|[.!?]$", after) is not None


def _show(asked: list[Question], guesses: list[list[tuple[str, float]]], counts: Counter[str], out: Path) -> None:
    right = [bool(found) and found[0][0] == question.answer for question, found in zip(asked, guesses, strict=True)]
    usual = counts.most_common(1)[0][0]
    plain = sum(question.answer == usual for question in asked) / len(asked)
    # Piped into a file there is no screen to fit into.
    console = Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=160)
    table = Table("", "a sentence from documentation that the model never saw", "hidden", "its guesses")
    for question, found, hit in list(zip(asked, guesses, right, strict=True))[:SHOWN]:
        best = "  ".join(f"{token} {chance:.0%}" for token, chance in found)
        table.add_row("✓" if hit else "", escape(question.text), escape(question.answer), escape(best))
    console.print(table)
    console.print(
        f"right at the first guess: {sum(right) / len(right):.0%} of {len(asked)} hidden words "
        f"(always saying “{usual}”: {plain:.0%})"
    )
    console.print(escape(f'try sesame fill {out / "bert"} "This function returns the [MASK] of the list."'))
