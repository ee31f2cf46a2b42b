"""Documents as they were written: the store's tokens are those of the whole text, white space and all."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sesame.data.build import build_store
from sesame.data.encode import DocumentEncoder
from sesame.text import Tokenizer
from sesame.text.train import train_tokenizer

TEXTS = [
    "One sentence. Another one!  Two spaces before this.\nA new line\n\n\tA tab. \n  Indented. The end",
    "Он пришёл. Она ушла.\nДа?\n\n\nНет!",
    "你好。再见！好",
    "  spaces around  \n",
    "a\nb\nc. D. e",
]
BYTES = train_tokenizer(TEXTS * 3, "bpe", 330)
WORDS = train_tokenizer(TEXTS * 3, "wordpiece", 120)


def tokens(tokenizer: Tokenizer, text: str, verbatim: bool = True) -> list[int]:
    found: list[int] = DocumentEncoder(tokenizer, verbatim=verbatim).encode([text]).tokens.tolist()
    return found


@pytest.mark.parametrize("text", TEXTS)
def test_the_whole_text_comes_back(text: str) -> None:
    assert tokens(BYTES, text) == BYTES.encode(text.strip(), literal=True).ids
    assert BYTES.decode(tokens(BYTES, text)) == text.strip()
    if len(text.strip().splitlines()) > 1:
        assert tokens(BYTES, text, verbatim=False) != tokens(BYTES, text)


@given(st.text(alphabet="aB.! \n\t'1é。", max_size=40))
@settings(max_examples=300, deadline=None)
def test_any_text_comes_back(text: str) -> None:
    assert tokens(BYTES, text) == BYTES.encode(text.strip(), literal=True).ids


@pytest.mark.parametrize("text", TEXTS)
def test_where_no_piece_holds_white_space_nothing_changes(text: str) -> None:
    assert tokens(WORDS, text) == tokens(WORDS, text, verbatim=False)


@pytest.mark.parametrize("text", TEXTS)
def test_texts_with_marks_come_back(text: str) -> None:
    """Special tokens that texts may hold change how sentences are encoded, not where their white space goes."""
    marked = train_tokenizer(TEXTS * 3, "bpe", 330)
    marked.backend.add_special_tokens(["Another one"])
    marked = marked.changed(further=("Another one",))
    assert tokens(marked, text) == marked.encode(text.strip(), literal=True).ids


def test_a_store_is_made_for_each_way(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("One. Two.\nThree.\n\nFour. Five.\n", encoding="utf-8")
    plain = build_store([tmp_path / "text.txt"], BYTES, tmp_path)
    for workers in (1, 2):
        cache = tmp_path / str(workers)
        cache.mkdir()
        whole = build_store([tmp_path / "text.txt"], BYTES, cache, verbatim=True, workers=workers)
        assert BYTES.decode(np.asarray(whole.tokens).tolist()) == "One. Two.\nThree.Four. Five."
        assert len(whole.sentences) == len(plain.sentences)
    assert BYTES.decode(np.asarray(plain.tokens).tolist()) == "One.Two.Three.Four.Five."
