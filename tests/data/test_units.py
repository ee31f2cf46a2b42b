"""Units: planted phrases are found and nothing else; entities are those that a plain search finds."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sesame.data import units
from sesame.data.store import Store
from sesame.data.units import entity_starts, phrase_starts
from tests.languages import store_of, word_tokenizer

PLAIN = [f"w{i}" for i in range(60)]
PIECES = ["ne", "##w", "york", "ice", "cream", "cone", "shop", ",", "k", "##a", "##b"]
TOKENIZER = word_tokenizer([*PLAIN, *PIECES])
LETTERS = np.array([token not in (",", "[UNK]") for token in TOKENIZER.tokens()])


def _units(store: Store, starts: np.ndarray) -> list[list[str]]:
    """The units of more than one word, as pieces."""
    first = np.flatnonzero(starts)
    found = []
    for begin, end in zip(first, [*first[1:], len(starts)], strict=True):
        if np.asarray(store.word_starts[begin + 1 : end]).any():
            found.append([TOKENIZER.token(int(id)) for id in store.tokens[begin:end]])
    return found


def _text(planted: list[str], sentences: int = 400) -> str:
    luck = np.random.default_rng(0)
    lines = []
    for number in range(sentences):
        words = [*luck.choice(PLAIN, 8)]
        words[3:3] = [planted[number % len(planted)]]
        lines.append(" ".join(words))
    return "\n".join(lines) + "\n"


def test_planted_phrases_are_found_whole_and_nothing_else(tmp_path: Path) -> None:
    planted = ["new york", "ice cream cone shop"]
    store = store_of(_text(planted), TOKENIZER, tmp_path)
    found = _units(store, phrase_starts(store, LETTERS))
    assert sorted({" ".join(unit) for unit in found}) == ["ice cream cone shop", "ne ##w york"]
    assert len(found) == 400


def test_phrases_end_with_their_sentence_and_at_signs(tmp_path: Path) -> None:
    luck = np.random.default_rng(0)
    lines = []
    for _ in range(300):  # "new" ends a sentence and "york" starts the next; "ice , cream" has a sign inside
        lines.append(" ".join([*luck.choice(PLAIN, 4), "ice", ",", "cream", *luck.choice(PLAIN, 4), "new"]))
        lines.append(" ".join(["york", *luck.choice(PLAIN, 6)]))
    store = store_of("\n".join(lines) + "\n", TOKENIZER, tmp_path)
    assert _units(store, phrase_starts(store, LETTERS)) == []
    joined = {" ".join(unit) for unit in _units(store, phrase_starts(store, np.ones_like(LETTERS)))}
    assert joined == {"ice , cream"}


def test_chunks_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_of(_text(["new york", "ice cream cone shop"]), TOKENIZER, tmp_path)
    entities = [TOKENIZER.encode("ice cream", special=False).ids]
    whole = phrase_starts(store, LETTERS), entity_starts(store, store.word_starts, entities)
    monkeypatch.setattr(units, "CHUNK", 57)
    parts = phrase_starts(store, LETTERS), entity_starts(store, store.word_starts, entities)
    assert all(np.array_equal(a, b) for a, b in zip(whole, parts, strict=True))
    assert int(whole[1].sum()) == int(store.word_starts.sum()) - 200


words = st.sampled_from(["k", "ka", "kb", "kab", "york", "ice"])


@settings(max_examples=40, deadline=None)
@given(
    lines=st.lists(st.lists(words, min_size=1, max_size=7), min_size=1, max_size=5),
    wanted=st.lists(st.lists(words, min_size=1, max_size=3), min_size=1, max_size=4),
)
def test_entities_are_those_of_a_plain_search(
    tmp_path_factory: pytest.TempPathFactory, lines: list[list[str]], wanted: list[list[str]]
) -> None:
    store = store_of("\n".join(" ".join(line) for line in lines) + "\n", TOKENIZER, tmp_path_factory.mktemp("units"))
    entities = [TOKENIZER.encode(" ".join(entity), special=False).ids for entity in wanted]
    found = entity_starts(store, store.word_starts, entities)
    assert np.array_equal(found, _plain_search(store, entities))


def _plain_search(store: Store, entities: list[list[int]]) -> np.ndarray:
    starts, tokens = np.array(store.word_starts), np.asarray(store.tokens).tolist()
    taken = [False] * len(tokens)
    for size in sorted({len(entity) for entity in entities if len(entity) > 1}, reverse=True):
        for at in range(len(tokens) - size + 1):
            end = at + size
            inside = any(low <= at and end <= high for low, high in pairwise(store.sentences))
            whole = store.word_starts[at] and (end == len(tokens) or store.word_starts[end] or end in store.sentences)
            if inside and whole and tokens[at:end] in entities and not any(taken[at:end]):
                taken[at:end] = [True] * size
                starts[at + 1 : end] = 0
    return starts
