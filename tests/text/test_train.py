"""Training: the same each time, letters keep their marks, clear limits."""

import itertools
import random
import subprocess
import sys
import unicodedata
from typing import Any

import numpy as np
import pytest

from sesame.errors import SesameError
from sesame.text import Tokenizer, sample_texts, train_tokenizer
from sesame.text.train import _without_long_words

LINES = [
    f"{a} {b} {c}"
    for a in ("мой ёж", "твой йод", "Der schöne Öltank", "the quick fox", "naïve café")
    for b in ("пьёт чай", "зелёный май", "fährt früh", "jumped over", "costs 1,000")
    for c in ("каждый день", "学校很大", "über Nacht", "and ran away", "ещё раз!")
]
KINDS: list[Any] = ["wordpiece", "bpe", "unigram"]

# Random order of hash tables differs from process to process, so each run gets one of its own.
SCRIPT = """
import sys
from sesame.text import train_tokenizer
lines = [line for line in sys.stdin.read().split("\\n")]
for kind in ("wordpiece", "bpe", "unigram"):
    print(train_tokenizer(lines, kind, 420).fingerprint())
"""


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.token(id) for id in tokenizer.encode(text).ids]


def test_equal_text_gives_equal_tokenizers() -> None:
    text = "\n".join(LINES)
    runs = {
        subprocess.run([sys.executable, "-c", SCRIPT], input=text, capture_output=True, text=True, check=True).stdout
        for _ in range(3)
    }
    assert len(runs) == 1
    here = [train_tokenizer(text.split("\n"), kind, 420).fingerprint() for kind in KINDS]
    assert here == runs.pop().split()


@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
@pytest.mark.parametrize("word", ["май", "ёж", "schöne"])
def test_marks_stay_composed_or_not(kind: Any, word: str) -> None:
    tokenizer = train_tokenizer(LINES, kind, 420, lowercase=True)
    apart = unicodedata.normalize("NFD", word)
    assert apart != word
    composed = pieces(tokenizer, word)
    assert pieces(tokenizer, apart) == composed
    assert "".join(composed).replace("##", "").replace("▁", "") == word
    assert pieces(tokenizer, word.upper()) == composed


@pytest.mark.parametrize("kind", KINDS)
def test_accents_go_only_on_request(kind: Any) -> None:
    tokenizer = train_tokenizer(LINES, kind, 420, lowercase=True, strip_accents=True)
    for marked, bare in (("май", "маи"), ("Öl", "ol"), ("ёж", "еж")):
        assert tokenizer.encode(marked).ids == tokenizer.encode(bare).ids
    kept = train_tokenizer(LINES, kind, 420)
    assert kept.encode("май").ids != kept.encode("маи").ids
    assert kept.encode("Öl").ids != kept.encode("öl").ids


def test_bpe_leaves_text_as_it_is() -> None:
    tokenizer = train_tokenizer(LINES, "bpe", 420)
    for text in ("май", "май", "  two\tspaces\n", "ＷＩＤＥ ﬁ"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_chinese_characters_are_words_of_wordpiece() -> None:
    tokenizer = train_tokenizer(LINES, "wordpiece", 420)
    assert pieces(tokenizer, "学校大") == ["学", "校", "大"]
    assert "##校" not in tokenizer.tokens()


def test_a_rich_script_does_not_fill_the_vocabulary() -> None:
    han = "".join(chr(0x4E00 + i) for i in range(3000))
    tokenizer = train_tokenizer([han, *LINES * 10, "学校" * 500], "wordpiece", 300)
    assert len(tokenizer) <= 300
    assert {"学", "校"} <= set(tokenizer.tokens())
    assert any(len(token.removeprefix("##")) > 2 for token in tokenizer.tokens()[5:])


@pytest.mark.parametrize("kind", KINDS)
def test_little_text_gives_fewer_tokens(kind: Any) -> None:
    tokenizer = train_tokenizer(["aa ab ba"] * 3, kind, 5000)
    assert len(tokenizer) < 300
    assert tokenizer.id("unk") not in tokenizer.encode("ab aa").ids


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_trained_says_so(kind: Any) -> None:
    with pytest.raises(SesameError, match="no text to train"):
        train_tokenizer([], kind, 1000)
    with pytest.raises(SesameError, match="no text to train"):
        train_tokenizer(["  ", "\n"], kind, 1000)
    with pytest.raises(SesameError, match="ask for"):
        train_tokenizer(LINES, kind, 10)
    with pytest.raises(SesameError, match="unknown kind"):
        train_tokenizer(LINES, "words", 1000)  # type: ignore[arg-type]


def test_no_template_on_request() -> None:
    tokenizer = train_tokenizer(LINES, "bpe", 420, template="none")
    assert tokenizer.encode("май", special=True) == tokenizer.encode("май")
    assert tokenizer.input_names() == ["input_ids", "attention_mask"]


def test_broken_characters_do_not_stop_training() -> None:
    assert len(train_tokenizer([*LINES, "half \ud800 a pair"], "wordpiece", 420)) > 100


def test_the_sample_is_even_and_bounded() -> None:
    texts = [f"{number:04d}" for number in range(1000)]
    assert sample_texts(texts, cap=4000) == texts
    sample = sample_texts(iter(texts), cap=400)
    assert 50 <= len(sample) <= 100
    gaps = {int(b) - int(a) for a, b in itertools.pairwise(sample)}
    assert len(gaps) == 1
    assert int(sample[-1]) > 980
    assert sample_texts(["x" * 100], cap=10) == ["x" * 100]
    assert sample_texts([], cap=10) == []


def test_clauses_without_spaces_are_no_unknown_words() -> None:
    """Thai writes whole clauses without a space: words of hundreds of letters."""
    syllables = ["สวัส", "ดี", "ครับ", "วันนี้", "อากาศ", "มาก", "ไทย"]
    luck = np.random.default_rng(0)
    clauses = ["".join(luck.choice(syllables, size=size)) for size in range(5, 120)]
    tokenizer = train_tokenizer([" ".join(clauses)] * 3, "wordpiece", 400)
    assert max(map(len, clauses)) > 300
    assert tokenizer.id("unk") not in [id for clause in clauses for id in tokenizer.encode(clause).ids]
    long = "ก" * 100_000
    assert tokenizer.encode(long).ids == [tokenizer.id("unk")]  # and garbage still is one


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_a_word_of_many_letters_does_not_keep_the_trainer_for_hours(kind: Any) -> None:
    draw = random.Random(0)
    genome = "".join(draw.choices("acgt", k=200_000))
    assert len(train_tokenizer([genome], kind, 400)) == 400  # a fraction of a second; uncut, half a minute


def test_parts_of_a_long_word_are_the_text() -> None:
    text = "short " + "x" * 2500 + " " + "y" * 1000 + " end"
    parts = list(_without_long_words(text))
    assert "".join(parts) == text
    assert [len(part) for part in parts] == [1006, 1000, 1505]
