"""Documents to token ids: what each worker of a store's building does.

What is unusual: words are remembered. Text repeats itself, and for the tokenizers that people train, the pieces of a
sentence are the pieces of its space-separated words put together. So each word goes through the tokenizer once, a
sentence becomes a join of remembered bytes, and the whole is several times faster than asking the tokenizer for every
sentence. `word_splitter` says for which tokenizers this is exact; for others, and for sentences with any word out of
the ordinary (double spaces, invisible characters, words longer than any word), the tokenizer sees the sentence whole.
"""

import json
import re
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sesame.data.sentences import sentence_spans, split_sentences

LONGEST_WORD = 48  # characters; beyond it lies text without spaces, which does not repeat
MOST_WORDS = 300_000  # about 60 MB
TOGETHER = 256  # new words that the tokenizer gets as one text, because each text has a cost of its own


class Pieces(Protocol):
    @property
    def ids(self) -> list[int]: ...

    @property
    def offsets(self) -> list[tuple[int, int]]: ...

    @property
    def words(self) -> list[int | None]: ...


class TextEncoder(Protocol):
    """The part of `sesame.text.Tokenizer` that is needed here."""

    backend: Any

    @property
    def marks(self) -> frozenset[str]: ...

    @property
    def own_answers(self) -> "TextEncoder | None": ...

    def __len__(self) -> int: ...

    def encode_batch(self, texts: list[str], *, literal: bool) -> Sequence[Pieces]: ...


class EncodedDocuments(NamedTuple):
    tokens: NDArray[Any]  # (T,) ids, in the dtype of the store
    word_starts: NDArray[np.uint8]  # (T,)
    sentence_lengths: NDArray[np.int64]  # tokens in each sentence, none empty
    document_lengths: NDArray[np.int64]  # sentences in each document, 0 for a document without tokens
    dropped_sentences: int
    kept: NDArray[np.bool_]  # of all sentences, those with tokens


def token_dtype(vocabulary: int) -> np.dtype[Any]:
    return np.dtype("<u2") if vocabulary <= 1 << 16 else np.dtype("<u4")


class DocumentEncoder:
    def __init__(self, tokenizer: TextEncoder, lines: bool = False, verbatim: bool = False) -> None:
        """`lines`: a line is a sentence, whatever stops it has: a side of a translation, somebody's turn in a dialogue.
        Every second line is an answer, which the tokenizer may cut by pieces of its own.

        `verbatim`: the white space between sentences belongs to the one behind it, so that a document's tokens are those
        of its text as it was written. Byte-level tokenizers have pieces for it; for others this changes nothing.
        """
        self.tokenizer, self.lines = tokenizer, lines
        self.dtype = token_dtype(len(tokenizer))
        self.split = word_splitter(json.loads(tokenizer.backend.to_str()))
        self.glue = "" if self.split is _with_spaces else " "
        self.verbatim = verbatim and self.split is _with_spaces
        if self.verbatim:
            self.split = _as_written
        if tokenizer.marks:  # what stands around one, or inside of it, is not what it is elsewhere
            self.split = None
        other = tokenizer.own_answers if lines else None
        self.answers = None if other is None else DocumentEncoder(other)
        # A piece is kept as id * 2 + (1 if it starts a word) in four bytes.
        self.known: dict[str, bytes] = {}

    def encode(self, texts: Iterable[str]) -> EncodedDocuments:
        """Split documents into sentences and encode these; the result depends on nothing but the texts."""
        documents = list(map(self._sentences, texts))
        codes = self._codes(list(chain.from_iterable(documents)))
        if self.answers is not None:
            codes = self._both_sides(documents, codes, self.answers)
        lengths = np.fromiter(map(len, codes), np.int64, len(codes)) // 4
        filled = np.concatenate([[0], np.cumsum(lengths > 0)])
        ends = np.cumsum([0, *map(len, documents)])
        packed = np.frombuffer(b"".join(codes), np.uint32)
        return EncodedDocuments(
            tokens=(packed >> 1).astype(self.dtype),
            word_starts=(packed & 1).astype(np.uint8),
            sentence_lengths=lengths[lengths > 0],
            document_lengths=np.diff(filled[ends]),
            dropped_sentences=int((lengths == 0).sum()),
            kept=lengths > 0,
        )

    def _sentences(self, text: str) -> list[str]:
        if self.lines:
            return text.split("\n")
        if not self.verbatim:
            return split_sentences(text)
        spans = sentence_spans(text)
        return [
            text[start:end] for start, end in pairwise([start for start, _ in spans[:1]] + [end for _, end in spans])
        ]

    @staticmethod
    def _both_sides(documents: list[list[str]], codes: list[bytes], answers: "DocumentEncoder") -> list[bytes]:
        """Every second line as `answers` cuts it."""
        numbers = chain.from_iterable(range(len(lines)) for lines in documents)
        second = [place for place, number in enumerate(numbers) if number % 2]
        lines = list(chain.from_iterable(documents))
        found = codes.copy()
        for place, code in zip(second, answers._codes([lines[place] for place in second]), strict=True):
            found[place] = code
        return found

    def _codes(self, sentences: list[str]) -> list[bytes]:
        if self.split is None:
            return self._ask(sentences)
        words = list(map(self.split, sentences))
        self._learn(set().union(*words))
        codes, whole = [], []
        known = self.known.__getitem__
        for place, parts in enumerate(words):
            try:
                codes.append(b"".join(map(known, parts)))
            except KeyError:
                codes.append(b"")
                whole.append(place)
        for place, code in zip(whole, self._ask([sentences[place] for place in whole]), strict=True):
            codes[place] = code
        return codes

    def _learn(self, words: set[str]) -> None:
        if len(self.known) > MOST_WORDS:
            self.known.clear()
        if self.verbatim and "\n" not in self.known:
            self.known["\n"] = self._ask(["\n"])[0]
        new = [word for word in words.difference(self.known) if _plain(word)]
        if not self.glue:  # without a space before it, a word can only be the first of a text
            first = [word for word in new if word[0] != " "]
            self.known.update(zip(first, self._ask(first), strict=True))
            new = [word for word in new if word[0] == " "]
        parts = [new[start : start + TOGETHER] for start in range(0, len(new), TOGETHER)]
        texts = [self.glue.join(part) for part in parts]
        for part, pieces in zip(parts, self.tokenizer.encode_batch(texts, literal=True), strict=True):
            self.known.update(zip(part, _cut(part, pieces, len(self.glue)), strict=True))

    def _ask(self, texts: list[str]) -> list[bytes]:
        """Let the tokenizer itself encode `texts`."""
        return [_code(pieces.ids, pieces.words) for pieces in self.tokenizer.encode_batch(texts, literal=True)]


def _cut(words: list[str], pieces: Pieces, gap: int) -> Iterator[bytes]:
    """The code of each of `words`, which were encoded as one text with `gap` characters between them."""
    ends = np.cumsum([len(word) + gap for word in words])
    starts = np.fromiter((start for start, _ in pieces.offsets), np.int64, len(pieces.offsets))
    # Where a piece begins tells its word; a piece may begin at the space before, so that counts to the word behind it.
    bounds = 4 * np.searchsorted(starts, ends - gap)
    code = _code(pieces.ids, pieces.words)
    start = 0
    for end in bounds.tolist():
        yield code[start:end]
        start = end


def _code(ids: list[int], words: list[int | None]) -> bytes:
    if len(ids) == 1:
        return array("I", [2 * ids[0] + 1]).tobytes()
    starts = [True, *(a != b or a is None for a, b in zip(words[1:], words, strict=False))]
    return array("I", [2 * id + start for id, start in zip(ids, starts, strict=False)]).tobytes()


def _plain(word: str) -> bool:
    """A word that no normalization can join with its neighbours, empty or split at white space."""
    word = word.removeprefix(" ")
    if not word or len(word) > LONGEST_WORD:
        return False
    if word.isascii():
        return word.isprintable() and " " not in word
    parts = unicodedata.normalize("NFKD", word)
    kinds = [unicodedata.category(part)[0] for part in parts]
    return kinds[0] != "M" and set(kinds) <= set("LNPSM") and "▁" not in word


def _at_spaces(sentence: str) -> list[str]:
    return sentence.split(" ")


def _with_spaces(sentence: str) -> list[str]:
    """Each word but the first keeps the space before it."""
    return sentence.replace(" ", "\n ").split("\n")


def _as_written(sentence: str) -> list[str]:
    """The same for a sentence behind white space: a space belongs to the word after it, the end of a line is a word."""
    if sentence[0] == "\n":
        return ["\n", *_with_spaces(sentence[1:])]
    words = _with_spaces(sentence)
    return words[1:] if sentence[0] == " " else words


# What BertNormalizer takes for an ideograph and puts spaces around.
_IDEOGRAPHS = (
    r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    r"\U00020000-\U0002a6df\U0002a700-\U0002b81f\U0002b920-\U0002ceaf\U0002f800-\U0002fa1f"
)
_IDEOGRAPH = re.compile(f"[{_IDEOGRAPHS}]")
_AROUND_IDEOGRAPHS = re.compile(f"[{_IDEOGRAPHS}]|[^ {_IDEOGRAPHS}]+")


def _at_ideographs(sentence: str) -> list[str]:
    if sentence.isascii() or not _IDEOGRAPH.search(sentence):
        return sentence.split(" ")
    return _AROUND_IDEOGRAPHS.findall(sentence)


_CHARACTER_WISE = ("BertNormalizer", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Precompiled", "Strip")


def word_splitter(backend: dict[str, Any]) -> Callable[[str], list[str]] | None:
    """How to cut a sentence into words whose pieces, put together, are the sentence's; None where this cannot be done.

    `backend` is the content of a tokenizer.json. WordPiece and SentencePiece words stand for themselves; in byte-level
    BPE the space belongs to the word behind it.
    """
    # Added tokens are searched for before words are looked at; only the special ones are never found in literal text,
    # but for those that `DocumentEncoder` asks about.
    added = backend["added_tokens"]
    if any(not token["special"] or len(token["content"]) == 1 for token in added) or backend["model"].get("dropout"):
        return None
    normalizers = _flat(backend["normalizer"], "normalizers")
    if not all(map(_keeps_words_apart, normalizers)):
        return None
    steps = _flat(backend["pre_tokenizer"], "pretokenizers")
    names = [step["type"] for step in steps]
    if names in (["BertPreTokenizer"], ["Whitespace"], ["WhitespaceSplit"]):
        return _at_ideographs if any(step.get("handle_chinese_chars") for step in normalizers) else _at_spaces
    if names == ["ByteLevel"] and steps[0]["use_regex"]:
        return _at_spaces if steps[0]["add_prefix_space"] else _with_spaces
    if names in (["BertPreTokenizer", "ByteLevel"], ["WhitespaceSplit", "ByteLevel"]):  # `text/words.py`
        return _at_spaces if steps[1]["add_prefix_space"] and not steps[1]["use_regex"] else None
    if names in (["Metaspace"], ["WhitespaceSplit", "Metaspace"]) and steps[-1].get("split", True):
        schemes = ("always", "first") if len(names) == 1 else ("always",)
        return _at_spaces if steps[-1].get("prepend_scheme") in schemes else None
    return None


def _flat(step: dict[str, Any] | None, inside: str) -> list[dict[str, Any]]:
    if step is None:
        return []
    if step["type"] == "Sequence":
        return [leaf for child in step[inside] for leaf in _flat(child, inside)]
    return [step]


def _keeps_words_apart(step: dict[str, Any]) -> bool:
    if step["type"] == "Replace":
        pattern, content = step["pattern"], step["content"]
        if pattern == {"Regex": " {2,}"}:  # plain sentences have no double spaces
            return True
        return "String" in pattern and pattern["String"].strip() != "" and " " not in pattern["String"] + content
    return step["type"] in _CHARACTER_WISE
