"""Packing "orders": two consecutive stretches of one document, half of them swapped."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sesame import chance
from sesame.data.pack import Packer
from sesame.data.packers import packer_of
from sesame.data.parts import Part
from sesame.errors import SesameError
from tests.data.test_pack import SPECIALS, corpus, draw, shapes


def packed(part: Part, length: int, short: float = 0.1) -> Packer:
    return packer_of(part, "orders", length, SPECIALS, short=short, words=True)


def owners(part: Part) -> dict[int, int]:
    """The document of each word; `corpus` uses every word once."""
    bounds = np.asarray(part.store.sentences)[part.documents]
    return {int(id): n for n, (a, b) in enumerate(bounds) for id in part.store.tokens[a:b]}


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(shape=shapes, length=st.integers(8, 40))
def test_sides_are_neighbours_in_one_document(
    tmp_path_factory: pytest.TempPathFactory, shape: list[list[int]], length: int
) -> None:
    part = corpus([[2, *document] for document in shape], tmp_path_factory.mktemp("orders"))
    batch = draw(packed(part, length))
    owner = owners(part)
    assert batch.segments is not None
    for row in range(batch.size):
        size = int(batch.lengths[row])
        ids = batch.ids[row].tolist()
        middle = ids.index(SPECIALS.sep)
        a, b = ids[1:middle], ids[middle + 1 : size - 1]
        assert ids[:size].count(SPECIALS.sep) == 2
        assert ids[0] == SPECIALS.cls
        assert size <= length
        assert len({owner[id] for id in (*a, *b)}) == 1
        first, second = (b, a) if int(batch.targets["sop"].labels[row]) else (a, b)
        text = [*first, *second]
        assert text == sorted(text)  # words count up in a document
        assert first == list(range(first[0], first[-1] + 1))
        if size < length:
            assert second[0] == first[-1] + 1  # nothing was trimmed: one goes on where the other ends
        kinds = batch.segments[row].tolist()  # by the place in the row, not by the place in the text
        assert kinds == [0] * (middle + 1) + [1] * (size - middle - 1) + [0] * (len(ids) - size)


def test_half_are_swapped_whatever_their_length(tmp_path: Path) -> None:
    packer = packed(corpus([[6] * 35 for _ in range(15)], tmp_path), 40)
    labels, lengths, cuts = [], [], []
    for epoch in range(8):
        batch = draw(packer, epoch)
        labels += batch.targets["sop"].labels.tolist()
        lengths += batch.lengths.tolist()
        cuts += [ids.index(SPECIALS.sep) for ids in batch.ids.tolist()]
    assert 0.45 < np.mean(labels) < 0.55
    assert np.mean(np.array(lengths) == 40) > 0.7
    swapped = np.array(labels) == 1
    assert abs(np.mean(np.array(cuts)[swapped]) - np.mean(np.array(cuts)[~swapped])) < 3  # the place tells nothing


def test_one_document_and_lone_sentences_will_do(tmp_path: Path) -> None:
    assert draw(packed(corpus([[5, 5, 5]], tmp_path / "one"), 16)).size == 1
    lone = draw(packed(corpus([[9], [1], [4]], tmp_path / "lone"), 16, short=0.0))
    assert lone.size == 2  # a single token has no order
    assert sorted(lone.lengths.tolist()) == [4 + 3, 9 + 3]
    with pytest.raises(SesameError, match="no document has two tokens whose order could be asked for"):
        packed(corpus([[1], [1]], tmp_path / "none"), 16)


def test_drawing_depends_on_row_and_key_alone(tmp_path: Path) -> None:
    packer = packed(corpus([[6] * 12 for _ in range(10)], tmp_path), 24)
    numbers = np.arange(len(packer))
    keys = chance.keys(5, numbers)
    together = packer.draw(numbers, keys)
    for row in (0, 3, len(numbers) - 1):
        alone = packer.draw(numbers[row : row + 1], keys[row : row + 1])
        assert torch.equal(alone.ids[0], together.ids[row, : int(together.lengths[row])])
        assert torch.equal(alone.targets["sop"].labels[0], together.targets["sop"].labels[row])
