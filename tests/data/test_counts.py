"""The token table from counts."""

from pathlib import Path

import numpy as np

from sesame.data.counts import count_table
from sesame.data.parts import hold_out
from tests.languages import store_of, word_tokenizer

FRUIT, TOOLS = ["apple", "pear", "plum"], ["hammer", "saw", "drill"]
TOKENIZER = word_tokenizer([*FRUIT, *TOOLS, "eat", "sweet", "break", "iron", "never"])


def text() -> str:
    """Fruit stands with sweet and eat, tools with iron and break; no two of a kind ever meet in a document."""
    chance = np.random.default_rng(0)
    lines = []
    for _ in range(400):
        kind, near = (FRUIT, ["eat", "sweet"]) if chance.random() < 0.5 else (TOOLS, ["break", "iron"])
        lines.append(
            " ".join([near[int(chance.integers(2))], kind[int(chance.integers(3))], near[int(chance.integers(2))]])
        )
    return "\n\n".join(lines) + "\n"


def test_words_with_the_same_neighbours_are_alike(tmp_path: Path) -> None:
    part = hold_out(store_of(text(), TOKENIZER, tmp_path), 0, 0.0)[0]
    table = count_table(part, len(TOKENIZER), 4, 0.05)
    assert table.shape == (len(TOKENIZER), 4)

    def vector(word: str) -> np.ndarray:
        (id,) = TOKENIZER.encode(word).ids
        return table[id] / np.linalg.norm(table[id])

    for fruit in FRUIT[1:]:
        assert vector("apple") @ vector(fruit) > 0.9
    for tool in TOOLS:
        assert vector("apple") @ vector(tool) < 0.2
    (never,) = TOKENIZER.encode("never").ids
    assert not table[never].any()
    seen = table[table.any(1)]
    assert np.isclose(seen.std(), 0.05, rtol=0.1)
    assert np.array_equal(table, count_table(part, len(TOKENIZER), 4, 0.05))


def test_a_text_of_single_tokens_has_no_neighbours(tmp_path: Path) -> None:
    part = hold_out(store_of("apple\n\nsaw\n", TOKENIZER, tmp_path), 0, 0.0)[0]
    assert not count_table(part, len(TOKENIZER), 4, 0.05).any()
