"""Dialogues: turns stay turns, roles stay with them, and every label is true."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sesame import chance
from sesame.data.batch import IGNORE, Batch
from sesame.data.build import build_store
from sesame.data.dialogue_pack import DialoguePacker
from sesame.data.dialogues import read_turns
from sesame.data.pack import Specials
from sesame.data.parts import Part, hold_out
from sesame.data.readers import read_documents
from sesame.data.store import Store
from sesame.errors import SesameError
from tests.languages import word_tokenizer

WORDS = [f"x{i}" for i in range(3000)]
TOKENIZER = word_tokenizer(WORDS)
SPECIALS = Specials(TOKENIZER.id("cls"), TOKENIZER.id("sep"), TOKENIZER.id("pad"))


def write(dialogues: list[Any], file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps({"turns": turns}) + "\n" for turns in dialogues), encoding="utf-8")
    return file


def stored(dialogues: list[Any], folder: Path, workers: int = 1) -> Store:
    file = write(dialogues, folder / "chats.jsonl")
    return build_store([file], TOKENIZER, folder / "cache", field="turns", workers=workers, turns=True)


def counting(shape: list[list[int]]) -> list[list[str]]:
    """Turns of so many words; no word occurs twice, so that each tells its turn."""
    number, found = 0, []
    for dialogue in shape:
        found.append([])
        for size in dialogue:
            found[-1].append(" ".join(WORDS[number : number + size]))
            number += size
    return found


def draw(packer: DialoguePacker, epoch: int = 0) -> Batch:
    rows = np.arange(len(packer))
    return packer.draw(rows, chance.keys(chance.key(epoch), rows))


def whole(store: Store) -> Part:
    return hold_out(store, 0, 0.0)[0]


@pytest.mark.parametrize(
    ("turns", "roles"),
    [
        (["a", "b", "c"], [0, 1, 0]),
        ([("user", "a"), ("assistant", "b"), ("assistant", "c")], [0, 1, 1]),
        (
            [("Agent", "a"), ("customer", "b"), ("customer", "c")],
            [1, 0, 0],
        ),  # the agent begins, and answers all the same
        ([("Ann", "a"), ("Bob", "b"), ("Ann", "c"), ("Eve", "d")], [0, 1, 0, 1]),
        ([("user", "a"), ("Bob", "b")], [0, 1]),
        (["a", " \n ", "c"], [0, 0]),  # nothing said: left out, but it was the other one's turn
    ],
)
def test_roles(turns: list[Any], roles: list[int]) -> None:
    given = [turn if isinstance(turn, str) else {"role": turn[0], "text": turn[1]} for turn in turns]
    assert list(read_turns(given, "here")[1]) == roles
    named = [turn if isinstance(turn, str) else {"role": turn[0], "content": turn[1]} for turn in turns]
    assert list(read_turns(named, "here")[1]) == roles


def test_turns_are_one_line_and_dialogues_are_documents(tmp_path: Path) -> None:
    file = write([["one.  Two!\nThree?", "four \ud83d"], ["five"], ["", " "]], tmp_path / "a.jsonl")
    found = list(read_documents([file], "turns"))
    assert [document.text for document in found] == ["one. Two! Three?\nfour \ufffd", "five"]
    assert [document.line for document in found] == [1, 2]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_turn_is_a_sentence_and_roles_stay_with_it(tmp_path: Path, workers: int) -> None:
    """Stops do not cut a turn; one that gives no token takes its role along."""
    chats = [["x1 x2. x3 ! x4", "\u200b", "x5"], [{"role": "agent", "text": "x6"}, {"role": "user", "text": "x7 x8"}]]
    tokenizer = TOKENIZER
    store = stored(chats, tmp_path, workers)
    sizes = np.diff(store.sentences).tolist()
    kept = [size for size in (5, len(tokenizer.encode("\u200b").ids), 1, 1, 2) if size]
    assert sizes == kept
    assert store.roles is not None
    assert store.roles.tolist() == ([0, 1, 0, 1, 0] if len(kept) == 5 else [0, 0, 1, 0])
    assert store.source(1).endswith("chats.jsonl:2")


shapes = st.lists(st.lists(st.integers(1, 25), min_size=1, max_size=6), min_size=2, max_size=10).filter(
    lambda shape: any(len(dialogue) > 1 for dialogue in shape)
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(shape=shapes, length=st.integers(12, 60), epoch=st.integers(0, 5))
def test_every_label_is_true(
    tmp_path_factory: pytest.TempPathFactory, shape: list[list[int]], length: int, epoch: int
) -> None:
    store = stored(counting(shape), tmp_path_factory.mktemp("dialogues"))
    packer = DialoguePacker(whole(store), length, SPECIALS, words=True)
    batch = draw(packer, epoch)
    owner, role = {}, {}
    offsets, bounds = store.sentences, store.documents
    for dialogue, (low, high) in enumerate(itertools.pairwise(bounds)):
        for turn in range(low, high):
            for id in store.tokens[offsets[turn] : offsets[turn + 1]].tolist():
                owner[id] = (dialogue, turn)
                role[id] = (turn - low) % 2
    assert batch.segments is not None
    assert batch.words is not None
    for row in range(batch.size):
        size = int(batch.lengths[row])
        ids, segments = batch.ids[row].tolist(), batch.segments[row].tolist()
        assert size <= length
        assert ids[0] == SPECIALS.cls
        assert ids[size - 1] == SPECIALS.sep
        assert ids[size:] == [SPECIALS.pad] * (len(ids) - size)
        assert not any(segments[size:])
        assert segments[0] == 0
        turns, start = [], 1
        for end in [place for place in range(size) if ids[place] == SPECIALS.sep]:
            turns.append(ids[start:end])
            assert segments[start : end + 1] == [role[ids[start]]] * (end - start + 1)
            assert len({owner[id] for id in ids[start:end]}) == 1  # one turn, not two
            start = end + 1
        label = int(batch.targets["dialogue"].labels[row])
        assert (label == IGNORE) == (len(turns) == 1)
        own = packer.rows[row, 2]
        foreign = [turn for turn in turns if owner[turn[0]][0] != own]
        assert len(foreign) == (1 if label == 1 else 0)
        real = [turn for turn in turns if owner[turn[0]][0] == own]
        assert sorted(real) == real  # in their order
    assert bool((batch.words[batch.ids == SPECIALS.sep] == 0).all())


def test_half_are_false_at_any_turn_and_real_text_is_all_there(tmp_path: Path) -> None:
    luck = np.random.default_rng(0)
    shape = [luck.integers(2, 9, luck.integers(2, 9)).tolist() for _ in range(80)]
    packer = DialoguePacker(whole(stored(counting(shape), tmp_path)), 40, SPECIALS)
    labels, places, lengths = [], [], []
    for epoch in range(12):
        batch = draw(packer, epoch)
        found = batch.targets["dialogue"].labels
        labels += found[found != IGNORE].tolist()
        lengths += batch.lengths[found != IGNORE].tolist()
        turns, false = packer._replaced(*packer.rows[:, :2].T, chance.keys(chance.key(epoch), np.arange(len(packer))))
        count = packer.rows[:, 1] - packer.rows[:, 0]
        plain = np.concatenate([np.arange(a, b) for a, b, _ in packer.rows])
        changed = np.flatnonzero(turns != plain) - np.repeat(np.cumsum(count) - count, count)[turns != plain]
        places += (changed / (count[false] - 1)).tolist()
        assert len(changed) == false.sum()
    assert len(labels) > 1000
    assert 0.44 < np.mean(labels) < 0.53
    assert 0.4 < np.mean(places) < 0.6  # first, last and all between
    sizes = np.array(lengths)
    assert abs(sizes[np.array(labels) == 1].mean() / sizes[np.array(labels) == 0].mean() - 1) < 0.12
    assert packer.rows[:, 1].tolist()[-1] == len(packer.offsets) - 1
    assert (packer.rows[1:, 0] == packer.rows[:-1, 1]).all()  # no turn is lost


def test_equal_turns_are_no_lie(tmp_path: Path) -> None:
    """Everybody says the same: nothing false can be made, so nothing is called false."""
    chats = [["x1 x2", "x3"] for _ in range(30)]
    batch = draw(DialoguePacker(whole(stored(chats, tmp_path)), 16, SPECIALS))
    assert batch.targets["dialogue"].labels.tolist() == [0] * 30


def test_examples_depend_on_row_and_key_alone(tmp_path: Path) -> None:
    packer = DialoguePacker(whole(stored(counting([[4, 5, 6]] * 20), tmp_path)), 24, SPECIALS, fixed=True)
    rows = np.arange(len(packer))
    keys = chance.keys(3, rows)
    together = packer.draw(rows, keys)
    for row in (0, 7, 19):
        alone = packer.draw(rows[row : row + 1], keys[row : row + 1])
        assert torch.equal(alone.ids[0], together.ids[row])
        assert torch.equal(alone.segments[0], together.segments[row])  # type: ignore[index]
        assert alone.targets["dialogue"].labels[0] == together.targets["dialogue"].labels[row]


def test_a_turn_longer_than_the_sequence_goes_on(tmp_path: Path) -> None:
    packer = DialoguePacker(whole(stored(counting([[3, 50], [4, 4]]), tmp_path)), 20, SPECIALS)
    assert packer.roles.tolist() == [0, 1, 1, 1, 0, 1]
    assert int(draw(packer).lengths.max()) <= 20
    assert packer.source(len(packer) - 1).endswith(":2")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"turns": [{"role": "user"}]}', r"chats.jsonl:1: turn 1 is .*write a text or"),
        ('{"turns": ["a", 3]}', "turn 2 is 3"),
        ('{"turns": [{"role": 1, "text": "a"}]}', "turn 1 is"),
        ('{"turns": "a text"}', r"chats.jsonl:1: is no dialogue; write .jsonl lines like"),
        ('{"text": "a text"}', "has no field 'turns'"),
        ('{"turns": ["x1"]}', "no dialogue has two turns"),
        ('{"turns": []}', "there is no text inside"),
    ],
)
def test_bad_dialogues(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "chats.jsonl"
    file.write_text(line + "\n")
    with pytest.raises(SesameError, match=message):
        build_store([file], TOKENIZER, tmp_path / "cache", field="turns", turns=True)


def test_other_text_is_no_dialogue(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x1 x2\n")
    with pytest.raises(SesameError, match=r"a.txt:1: is no dialogue"):
        build_store([tmp_path / "a.txt"], TOKENIZER, tmp_path / "cache", field="turns", turns=True)
    plain = build_store([tmp_path / "a.txt"], TOKENIZER, tmp_path / "cache")
    with pytest.raises(SesameError, match="was not read as dialogues"):
        DialoguePacker(whole(plain), 20, SPECIALS)
    with pytest.raises(SesameError, match="one dialogue only"):
        DialoguePacker(whole(stored([["x1", "x2"]], tmp_path / "one")), 20, SPECIALS)
