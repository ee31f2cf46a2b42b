"""What a stage's masks hide whole: pieces, words, phrases or entities; found once for a store and kept beside it.

Paper: Sun et al. 2019, "ERNIE", https://arxiv.org/abs/1904.09223, section 3.2: basic units, then phrases, then entities.
The file is an array like the store's `word_starts`: 1 where a unit starts. Its name is a hash of all that decides it (the
store's name, which is one of text and tokenizer; the limits of `units.py`; the entities' pieces), so it is never stale, and
it is mapped into memory.

- words: the store's; in scripts that put no spaces between words (Chinese, Japanese, Thai ...) each piece counts as one:
  there SentencePiece takes a clause for a word.
- phrases: words that stand together more often than by chance.
- entities: the places of the user's entities, and phrases everywhere else.

What is unusual: an entity is encoded as it would be inside a text: at the start, behind a space, behind a bracket, and in
scripts without spaces behind a letter; a tokenizer may give other pieces each time.
"""

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from sesame.data import units
from sesame.data.build import alone
from sesame.data.entity_files import read_entities
from sesame.data.store import Store
from sesame.data.units import Starts, entity_starts, phrase_starts
from sesame.errors import SesameError
from sesame.files import whole_file
from sesame.progress import say
from sesame.text import Tokenizer

Kind = Literal["", "pieces", "words", "phrases", "entities"]  # "": as the objective wants it
FORMAT = 1  # raise it when units are found in another way
_SPACELESS = re.compile(
    "[\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Tibetan, Burmese, Khmer
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"  # kana, ideographs
)
_BEFORE = ("", "a ", "(")  # what may stand before an entity; the pieces at its end depend on nothing behind it


class Hiding(Protocol):
    """What of a recipe's stage matters here."""

    @property
    def units(self) -> Kind: ...


def wanted_entities(path: str | None, stages: Mapping[str, Hiding]) -> tuple[str, ...]:
    """The entities of a file for the stages that hide them; without a file these hide phrases, which is said."""
    hide = [name for name, stage in stages.items() if stage.units == "entities"]
    if path and not hide:
        raise SesameError(
            f'--entities {path}: no stage of this recipe hides entities; take the recipe "ernie", '
            f"or add --set stages.{list(stages)[-1]}.units=entities"
        )
    if hide and not path:
        say(f"no list of entities was given (--entities FILE): stage {' and '.join(hide)} hides phrases")
    return tuple(read_entities(path)) if path else ()


def hidden_whole(stage: Hiding, needs_words: bool) -> Kind:
    """What a stage's masks hide whole; where it leaves that to an objective that wants words, those."""
    return "words" if stage.units == "" and needs_words else stage.units


def fingerprint(entities: Sequence[str]) -> str:
    """Says which entities a run was trained with."""
    return hashlib.blake2b("\n".join(sorted(entities)).encode(), digest_size=12).hexdigest()


@dataclass(frozen=True)
class Units:
    """Finds the units of stores that were made with this tokenizer."""

    tokenizer: Tokenizer
    entities: tuple[str, ...] = ()

    def starts(self, store: Store, kind: Kind) -> Starts | None:
        """Where units start in a store; None: the store's own words, or for pieces none at all."""
        if kind == "entities" and not self.entities:
            kind = "phrases"
        if kind in ("", "pieces"):
            return None
        if kind == "words" and not self.spaceless.any():
            return store.word_starts
        named = [FORMAT, units.THRESHOLD, units.LEAST, units.ROUNDS, units.SAMPLE, kind]
        sequences = self.sequences if kind == "entities" else []
        digest = hashlib.blake2b(json.dumps([named, sequences]).encode(), digest_size=8).hexdigest()
        file = store.path.with_name(f"{store.path.name}-{kind}-{digest}.bin")
        if not _whole(file, store):
            with alone(file):
                if not _whole(file, store):
                    self._write(file, store, kind, sequences)
        found = np.memmap(file, np.dtype("u1"), "r", shape=(len(store.tokens),))
        if kind == "entities" and all(len(pieces) > 1 for pieces in sequences):  # one piece is hidden whole anyway
            base = self.starts(store, "phrases")
            if base is not None and _equal(found, base):
                _tell_nothing(str(store.files[0]))
        return found

    @cached_property
    def sequences(self) -> list[list[int]]:
        """The entities as pieces, in every form that a text may show."""
        forms = [(before, entity) for entity in self.entities for before in (*_BEFORE, *self._inside(entity))]
        texts = [before + entity for before, entity in forms]
        unknown = self.tokenizer.id("unk") if self.tokenizer.has("unk") else None  # would stand for any other word too
        found: dict[tuple[int, ...], None] = {}
        for (before, _), pieces in zip(forms, self.tokenizer.encode_batch(texts, literal=True), strict=True):
            own = [end > len(before) for _, end in pieces.offsets]
            first = own.index(True) if True in own else len(own)
            # A piece that covers the bracket too is not the entity's; a space before it may be.
            if (
                unknown not in pieces.ids[first:]
                and first < len(own)
                and pieces.offsets[first][0] >= len(before.rstrip())
            ):
                found[tuple(pieces.ids[first:])] = None
        return [list(sequence) for sequence in found]

    def _inside(self, entity: str) -> list[str]:
        """What may stand right before an entity within a clause: WordPiece takes a clause for a word, and marks all pieces
        of it but the first."""
        return self._letters if _SPACELESS.match(entity) else []

    @cached_property
    def _letters(self) -> list[str]:
        """A letter that is a piece, Latin ones and digits first, for these make no pieces with others."""
        return sorted(token for token in self.tokenizer.tokens() if len(token) == 1 and token.isalnum())[:1]

    def _write(self, file: Path, store: Store, kind: Kind, sequences: list[list[int]]) -> None:
        began = time.monotonic()
        words = found = self._words(store)
        before = int(store.word_starts.sum() if kind == "words" else words.sum())
        if kind in ("phrases", "entities"):
            base = self.starts(store, "phrases") if kind == "entities" else None
            found = phrase_starts(store, self._pieces(_has_letter), words) if base is None else np.array(base)
        if kind == "entities":
            before = int(found.sum())
            edges = _opened(store, words, self._pieces(lambda piece: not _has_letter(piece)))  # "York)" ends with York
            found = entity_starts(store, edges, sequences, found)
        with whole_file(file) as handle:
            handle.write(found.tobytes())
        seconds = max(time.monotonic() - began, 1e-3)
        say(
            f"{kind}: {before:,} units became {int(found.sum()):,} in {seconds:.1f} s "
            f"({store.meta['bytes'] / 1e6 / seconds:.1f} MB/s of text)"
        )

    def _words(self, store: Store) -> Starts:
        return _opened(store, store.word_starts, self.spaceless)

    @cached_property
    def spaceless(self) -> npt.NDArray[np.bool_]:
        """The pieces in scripts that put no spaces between words. (V,)"""
        return self._pieces(lambda piece: _SPACELESS.search(piece) is not None)

    def _pieces(self, wanted: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
        """The pieces that are so; control tokens never are. (V,)"""
        found = np.zeros(len(self.tokenizer), dtype=bool)
        special = set(self.tokenizer.ids().values())
        for id, token in enumerate(self.tokenizer.tokens()):
            found[id] = token != "" and id not in special and wanted(self.tokenizer.shown(id))
        return found


@cache  # told once, though every stage asks
def _tell_nothing(text: str) -> None:
    """A list that is written in another way than the text, or is none, changes nothing."""
    say(
        f"warning: {text}: the list of entities changes nothing there: none of them stands in the text as it is written, or "
        "all are phrases anyway"
    )


def _equal(one: Starts, other: Starts) -> bool:
    """Where units start in the same places; two that differ do so early."""
    parts = (slice(begin, begin + units.CHUNK) for begin in range(0, len(one), units.CHUNK))
    return all(np.array_equal(one[part], other[part]) for part in parts)


def _opened(store: Store, starts: Starts, single: npt.NDArray[np.bool_]) -> Starts:
    """The same starts, and one before and behind each of the pieces that stand alone."""
    found = np.array(starts, dtype=np.uint8)
    for begin in range(0, len(found), units.CHUNK):
        here = single[store.tokens[begin : begin + units.CHUNK]]
        found[begin : begin + len(here)] |= here
        found[begin + 1 : begin + 1 + len(here)] |= here[: len(found) - begin - 1]
    return found


def _has_letter(piece: str) -> bool:
    return any(map(str.isalnum, piece))


def named_units(store: Store, starts: Starts, words: Starts, tokenizer: Tokenizer) -> Iterable[tuple[str, int]]:
    """The units of more than one word and how often they stand in the text, the most frequent first."""
    first = np.flatnonzero(starts)
    inner = np.add.reduceat(np.asarray(words, dtype=np.int64), first) if len(first) else first
    ends = np.append(first[1:], len(starts))
    counts: dict[tuple[int, ...], int] = {}
    for begin, end in zip(first[inner > 1].tolist(), ends[inner > 1].tolist(), strict=True):
        unit = tuple(store.tokens[begin:end].tolist())
        counts[unit] = counts.get(unit, 0) + 1
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ((tokenizer.decode(unit).strip(), count) for unit, count in ordered)


def _whole(file: Path, store: Store) -> bool:
    return file.is_file() and file.stat().st_size == len(store.tokens)
