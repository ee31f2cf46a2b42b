"""Words as letters: ELMo's character ids (Peters et al. 2018, https://arxiv.org/abs/1802.05365), exactly as published.

A word is 50 numbers: begin of word, its UTF-8 bytes (the first 48), end of word, padding. The beginning and the end of a
sentence are words of one letter, which no text contains:

    byte b -> b + 1;   <S> 257   </S> 258   begin of word 259   end of word 260   padding 261;   0: no word at all

What is unusual here: a model reads token ids, and letters are looked up. A `Spelling` says which letters a token stands for
and whether it begins a word, so that the letters of a word are those of its tokens put together: a word outside of the
vocabulary, which a tokenizer gives in several tokens, keeps all its letters. `text/words.py` makes the tokenizer for it, but
any WordPiece will do.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import pre_tokenizers

from sesame.errors import SesameError
from sesame.text.tokenizer import Tokenizer

LETTERS = 50  # of a word, with its two marks
MOST = LETTERS - 2
SENTENCE_BEGIN, SENTENCE_END, WORD_BEGIN, WORD_END, PADDING = range(257, 262)
CHARACTERS = 262  # rows of a table; no letter points at the first
GOES_ON, BEGINS, ALONE = range(3)
WORD_START = "Ġ"  # a byte-level space
INNER = "##"


@dataclass(frozen=True)
class Spelling:
    """The letters of every token, and where words begin."""

    letters: NDArray[np.int16]  # (V, 48), 0 behind the last
    starts: NDArray[np.int8]  # (V,): GOES_ON, BEGINS a word, or ALONE: a word by itself, which no token goes on with


def spell(words: Sequence[str], sentence: bool = True) -> NDArray[np.int64]:
    """The character ids of words as they are written, between the marks of a sentence. Shape: (N + 2, 50)."""
    spelled = [[byte + 1 for byte in word.encode("utf-8", "ignore")[:MOST]] for word in words]
    if sentence:
        spelled = [[SENTENCE_BEGIN], *spelled, [SENTENCE_END]]
    found = np.full((len(spelled), LETTERS), PADDING, dtype=np.int64)
    for row, letters in zip(found, spelled, strict=True):
        row[: len(letters) + 2] = [WORD_BEGIN, *letters, WORD_END]
    return found


def written_as(tokenizer: Tokenizer) -> Callable[[str], tuple[bytes, bool]]:
    """What says of a token, as the vocabulary has it, how it is written and whether it begins a word."""
    if type(tokenizer.backend.model).__name__ != "WordPiece":
        raise SesameError(
            f'{tokenizer.name}: its tokens do not say where a word begins; train one with tokenizer.kind = "word"'
        )
    return _byte_letters if type(tokenizer.backend.decoder).__name__ == "ByteLevel" else _plain_letters


def spelling_of(tokenizer: Tokenizer) -> Spelling:
    """How the tokens of a tokenizer are written; those with a role have no letters, but the two around a sentence."""
    read = written_as(tokenizer)
    tokens = tokenizer.tokens()
    marks = {tokenizer.roles[role]: mark for role, mark in MARKS.items() if tokenizer.has(role)}
    silent = set(tokenizer.roles.values()) - set(marks)
    letters = np.zeros((len(tokens), MOST), dtype=np.int16)
    starts = np.full(len(tokens), ALONE, dtype=np.int8)
    for id, token in enumerate(tokens):
        if token in marks:
            letters[id, 0] = marks[token]
        elif token not in silent:
            written, begins = read(token)
            starts[id] = BEGINS if begins else GOES_ON
            spelled = [byte + 1 for byte in written[:MOST]]
            letters[id, : len(spelled)] = spelled
    return Spelling(letters, starts)


MARKS = {"cls": SENTENCE_BEGIN, "sep": SENTENCE_END}


def _plain_letters(token: str) -> tuple[bytes, bool]:
    inner = token.startswith(INNER) and token != INNER
    return token.removeprefix(INNER if inner else "").encode("utf-8", "ignore"), not inner


def _byte_letters(token: str) -> tuple[bytes, bool]:
    word = token.removeprefix(WORD_START)
    return bytes(BYTES[letter] for letter in word if letter in BYTES), word != token


def _bytes() -> dict[str, int]:
    """Which byte a letter of byte-level tokens stands for, asked of the library: every byte of UTF-8 is in these texts."""
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    found: dict[str, int] = {}
    for text in ("".join(map(chr, range(0x800))), "".join(map(chr, range(0x800, 0xD800, 64))), *_HIGH):
        [(shown, _)] = level.pre_tokenize_str(text)
        found.update(zip(shown, text.encode(), strict=True))
    return found


_HIGH = ("".join(map(chr, range(0xE000, 0xFFFF, 64))), "".join(map(chr, range(0x10000, 0x10FFFF, 4096))))
BYTES = _bytes()
