"""Words remembered must give what the tokenizer gives for whole sentences, for every kind of tokenizer."""

import json
import subprocess
import sys

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from sesame.data import encode
from sesame.data.encode import DocumentEncoder, token_dtype, word_splitter
from sesame.data.sentences import split_sentences
from sesame.text import Tokenizer

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LINES = [
    "The ferry left at noon, and nobody waved. It's late; don't wait!",
    "Пароход ушёл в полдень, и никто не махал. Ещё бы: «Стой!» — крикнул он.",
    "船中午离开了。没有人挥手，海鸥跟在后面。김용일 (Kim Yong-Il)",
    "naïve café, 3.5 % of 1,000 [SEP] tokens; x_y a/b \t tab",
]


def make(kind: str) -> Tokenizer:
    if kind.startswith("wordpiece"):
        backend = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
        bert = normalizers.BertNormalizer(lowercase="lower" in kind, handle_chinese_chars="wide" not in kind)
        backend.normalizer = normalizers.Sequence([normalizers.NFC(), bert])
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer: object = trainers.WordPieceTrainer(vocab_size=300, special_tokens=SPECIALS, show_progress=False)
    elif kind.startswith("bytes"):
        backend = tokenizers.Tokenizer(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=kind == "bytes-prefix")
        backend.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=400, special_tokens=SPECIALS, initial_alphabet=alphabet, show_progress=False
        )
    else:
        backend = tokenizers.Tokenizer(models.Unigram())
        spaces = normalizers.Replace(tokenizers.Regex(" {2,}"), " ")
        backend.normalizer = normalizers.Sequence([normalizers.NFKC(), spaces])
        scheme = {"unigram": "always", "unigram-first": "first", "unigram-never": "never"}[kind]
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
        trainer = trainers.UnigramTrainer(
            vocab_size=200, special_tokens=SPECIALS, unk_token="[UNK]", show_progress=False
        )
    backend.train_from_iterator(LINES * 5, trainer)
    return Tokenizer(backend, {"pad": "[PAD]", "unk": "[UNK]"})


KINDS = ["wordpiece", "wordpiece-lower", "wordpiece-wide", "bytes", "bytes-prefix", "unigram", "unigram-first"]
MADE: dict[str, Tokenizer] = {}


@pytest.fixture(params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return MADE.setdefault(request.param, make(request.param))


def naive(tokenizer: Tokenizer, sentence: str) -> tuple[list[int], list[int]]:
    pieces = tokenizer.encode(sentence, literal=True)
    starts = [int(i == 0 or pieces.words[i] != pieces.words[i - 1]) for i in range(len(pieces.ids))]
    return pieces.ids, starts


def check(tokenizer: Tokenizer, texts: list[str], encoder: DocumentEncoder) -> None:
    found = encoder.encode(texts)
    per_document = [[naive(tokenizer, sentence) for sentence in split_sentences(text)] for text in texts]
    sentences = [sentence for document in per_document for sentence in document if sentence[0]]
    assert found.tokens.tolist() == [id for ids, _ in sentences for id in ids]
    assert found.word_starts.tolist() == [start for _, starts in sentences for start in starts]
    assert found.sentence_lengths.tolist() == [len(ids) for ids, _ in sentences]
    assert found.document_lengths.tolist() == [sum(bool(ids) for ids, _ in document) for document in per_document]
    assert found.dropped_sentences == sum(map(len, per_document)) - len(sentences)


def test_equals_the_tokenizer_itself(tokenizer: Tokenizer) -> None:
    encoder = DocumentEncoder(tokenizer)
    assert encoder.split is not None
    for _ in range(2):  # with words unknown, then known
        check(tokenizer, [*LINES, "", "\u200b", " ".join(LINES)], encoder)
    assert len(encoder.known) > 20


# What could tell words joined from words apart: marks, invisible and compatibility characters, spaces of all sorts.
ODD = [
    "\u0301",
    "\u200b",
    "\u00ad",
    "\u00a0",
    "  ",
    " ",
    "\t",
    "´",
    "ﷺ",
    "▁",
    "ﬁ",
    "\u0600",
    "…",
    "İ",
    "Σ",
    "ς",
    "'s",
    "中",
    "가",
]
PIECES = [
    *ODD,
    "[SEP]",
    "word",
    "Слово",
    ",",
    ".",
    "-",
    "x" * 60,
    "1",
    "\ufdd0",
    "\U00020000",
    "\uf900",
    "\u302a",
    "豈",
]


@pytest.mark.slow
@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=4)), max_size=12).map("".join))
@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_tokenizer_on_any_text(kind: str, text: str) -> None:
    tokenizer = MADE.setdefault(kind, make(kind))
    check(tokenizer, [text, text], DocumentEncoder(tokenizer))


def test_forgetting_changes_nothing(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "MOST_WORDS", 5)
    monkeypatch.setattr(encode, "TOGETHER", 3)
    encoder = DocumentEncoder(tokenizer)
    for line in [*LINES, *LINES]:
        check(tokenizer, [line], encoder)


def test_control_tokens_in_text_stay_text(tokenizer: Tokenizer) -> None:
    found = DocumentEncoder(tokenizer).encode(["[CLS] a [SEP] [MASK]"])
    assert not {2, 3, 4} & set(found.tokens.tolist())


def test_no_documents() -> None:
    found = DocumentEncoder(MADE.setdefault("bytes", make("bytes"))).encode([])
    assert found.tokens.size == found.sentence_lengths.size == found.document_lengths.size == 0


def test_tokenizers_that_look_across_words_get_whole_sentences() -> None:
    tokenizer = make("unigram-never")
    assert DocumentEncoder(tokenizer).split is None
    check(tokenizer, LINES, DocumentEncoder(tokenizer))
    state = json.loads(make("wordpiece").backend.to_str())
    assert word_splitter(state) is not None
    added = {"id": 9, "content": "New York", "special": False}
    assert word_splitter({**state, "added_tokens": [added]}) is None
    assert word_splitter({**state, "normalizer": {"type": "Prepend", "prepend": "x"}}) is None
    assert word_splitter({**state, "pre_tokenizer": None}) is None
    assert word_splitter({**state, "model": {**state["model"], "dropout": 0.1}}) is None


MARKED = ["see New York and the [E1] word, <m> word[E1]word", "New word", "the York"]


@pytest.mark.parametrize("kind", ["wordpiece-lower", "bytes", "unigram"])
def test_special_tokens_that_texts_hold_are_found_in_whole_sentences(kind: str) -> None:
    """A mark takes the space beside it, or has one inside; the word behind it is no longer the word that it is elsewhere."""
    plain = make(kind)
    mark = tokenizers.AddedToken("<m>", special=True, normalized=False, lstrip=True, rstrip=True)
    plain.backend.add_special_tokens(["[E1]", "New York", mark])
    tokenizer = plain.changed(further=("[E1]", "New York", "<m>"))
    places = {tokenizer.backend.token_to_id(token) for token in tokenizer.further}
    assert places <= set(tokenizer.encode(MARKED[0], literal=True).ids)
    encoder = DocumentEncoder(tokenizer)
    check(tokenizer, [*MARKED, *LINES], encoder)


def test_dtype_fits_the_vocabulary() -> None:
    assert token_dtype(65536) == np.uint16
    assert token_dtype(65537) == np.uint32


def test_workers_do_not_load_torch() -> None:
    code = "import sys, sesame.data.workers; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
