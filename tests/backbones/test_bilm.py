"""The biLM: its formula, who sees whom, words of several tokens, padding, states to go on from."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sesame.backbones import BACKBONES, BiLM, BiLMConfig, State, build_backbone
from sesame.backbones.bilm import TwoWays
from sesame.backbones.flops import flops_per_token, kept_per_token
from sesame.backbones.work import Work
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.text import Tokenizer
from sesame.text.characters import spell
from sesame.text.train import train_tokenizer

SMALL: dict[str, Any] = {"width": 12, "cell": 10, "letter_width": 5, "filters": ((1, 3), (3, 4)), "dropout": 0.0}
TEXTS = ["the dog sees the cat .", "the cat sees a dog .", "a dog and a cat", "the hedgehogs"]
LINES = ["the doggy sees the xylophone", "a cat", "ёжик sees the dog and a cat ."]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(TEXTS * 3, "word", 285)


def model(tokenizer: Tokenizer, seed: int = 0, **settings: Any) -> BiLM:
    torch.manual_seed(seed)
    found = BiLM(BiLMConfig(len(tokenizer), **SMALL | settings)).double().eval()
    for parameter in found.parameters():
        nn.init.normal_(parameter, std=0.6)  # so that clips are met and biases count
    found.spell(tokenizer)
    return found


def batch_of(tokenizer: Tokenizer, lines: list[str]) -> Batch:
    rows = [tokenizer.encode(line, special=True).ids for line in lines]
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.full((len(rows), int(lengths.max())), tokenizer.id("pad"))
    for row, found in zip(ids, rows, strict=True):
        row[: len(found)] = torch.tensor(found)
    return Batch(ids, lengths)


def first_tokens(tokenizer: Tokenizer, line: str) -> list[int]:
    words = tokenizer.encode(line, special=True).words
    return [at for at, word in enumerate(words) if word is None or words[at - 1] != word]


def by_hand(found: BiLM, x: Tensor) -> list[Tensor]:
    """One row of word vectors, step by step, each direction by itself. Shape: (W, P) -> depth + 1 times (W, 2 P)."""
    c, sides = found.config, []
    for side in ("ahead", "back"):
        read, layers = (x if side == "ahead" else x.flip(0)), []
        for number, block in enumerate(found.blocks):
            assert isinstance(block, TwoWays)
            cell = getattr(block, side).layers[0].cell
            h, memory, states = torch.zeros(c.width // 2).double(), torch.zeros(c.cell).double(), []
            for word in read:
                gates = cell.weight_ih_l0 @ word + cell.bias_ih_l0 + cell.weight_hh_l0 @ h + cell.bias_hh_l0
                i, f, g, o = gates.split(c.cell)
                memory = (f.sigmoid() * memory + i.sigmoid() * g.tanh()).clamp(-c.clip, c.clip)
                h = (cell.weight_hr_l0 @ (o.sigmoid() * memory.tanh())).clamp(-c.clip, c.clip)
                states.append(h)
            read = torch.stack(states) + (read if number else 0.0)
            layers.append(read if side == "ahead" else read.flip(0))
        sides.append(layers)
    return [torch.cat([x, x], -1), *(torch.cat(pair, -1) for pair in zip(*sides, strict=True))]


@pytest.mark.parametrize("seed", range(3))
def test_it_is_its_formula_on_the_letters_of_words(seed: int, tokenizer: Tokenizer) -> None:
    found = model(tokenizer, seed, clip=0.7)
    encoded = found(batch_of(tokenizer, LINES))
    assert found.letters is not None
    for row, line in enumerate(LINES):
        wanted = by_hand(found, found.letters(torch.from_numpy(spell(line.split()))))
        at = first_tokens(tokenizer, line)
        assert len(at) == len(line.split()) + 2
        for layer, state in zip(wanted, encoded.layers, strict=True):
            torch.testing.assert_close(state[row, at], layer, rtol=1e-10, atol=1e-10)


def test_clips_are_met(tokenizer: Tokenizer) -> None:
    batch = batch_of(tokenizer, LINES)
    clipped, free = model(tokenizer, clip=0.7)(batch), model(tokenizer, clip=0.0)(batch)
    assert not torch.allclose(clipped.last, free.last)
    torch.testing.assert_close(clipped.layers[0], free.layers[0])


def test_tokens_of_a_word_have_its_state(tokenizer: Tokenizer) -> None:
    encoded = model(tokenizer)(batch_of(tokenizer, ["xylophone"]))
    inside = encoded.last[0, 1:-1]
    assert len(inside) > 3
    torch.testing.assert_close(inside, inside[:1].expand_as(inside))


@pytest.mark.parametrize("reads", ["characters", "tokens"])
def test_neither_direction_looks_at_the_other_side(reads: str, tokenizer: Tokenizer) -> None:
    found = model(tokenizer, reads=reads)
    one, other = (batch_of(tokenizer, [line]) for line in ("the dog sees a cat", "the dog and a cat"))
    a, b = found(one), found(other)
    half = found.width // 2
    for layer, (x, y) in enumerate(zip(a.layers, b.layers, strict=True)):
        torch.testing.assert_close(x[0, :3, :half], y[0, :3, :half], rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(x[0, 4:, half:], y[0, 4:, half:], rtol=1e-13, atol=1e-13)
        if layer:  # and each does know what it has read
            assert not torch.allclose(x[0, 4:, :half], y[0, 4:, :half])
            assert not torch.allclose(x[0, :3, half:], y[0, :3, half:])


@pytest.mark.parametrize("reads", ["characters", "tokens"])
def test_padding_and_neighbors_change_nothing(reads: str, tokenizer: Tokenizer) -> None:
    found = model(tokenizer, reads=reads)
    together = found(batch_of(tokenizer, LINES))
    for row, line in enumerate(LINES):
        alone = found(batch_of(tokenizer, [line]))
        for x, y in zip(alone.layers, together.layers, strict=True):
            torch.testing.assert_close(x[0], y[row, : x.shape[1]], rtol=1e-12, atol=1e-12)


def test_what_no_shape_may_tell_is_the_same(tokenizer: Tokenizer) -> None:
    """A GPU has as many words as places: the rows of words that are not there must not count."""
    found, batch = model(tokenizer), batch_of(tokenizer, LINES)
    assert found.spelled is not None
    words = found.spelled.words(batch.ids, batch.lengths)
    wide = replace(words, most=batch.ids.shape[1])
    assert wide.most > words.most
    tight, loose = (found.spelled.spell(batch.ids, batch.lengths, each) for each in (words, wide))
    for row, count in enumerate(words.lengths.tolist()):
        assert torch.equal(tight[row, :count], loose[row, :count])
        assert torch.equal(tight[row, :count], torch.from_numpy(spell(LINES[row].split())))


@pytest.mark.parametrize("reads", ["characters", "tokens"])
def test_a_mean_counts_words_and_not_their_tokens(reads: str, tokenizer: Tokenizer) -> None:
    """ "xylophone" has nine tokens that all have its state."""
    encoded = model(tokenizer, reads=reads)(batch_of(tokenizer, LINES))
    assert len(tokenizer.encode("xylophone").ids) > 5
    found = encoded.mean(encoded.last)
    for row, line in enumerate(LINES):
        at = first_tokens(tokenizer, line) if reads == "characters" else list(range(int(encoded.batch.lengths[row])))
        torch.testing.assert_close(found[row], encoded.last[row, at].mean(0), rtol=1e-12, atol=1e-12)


def test_a_row_that_is_cut_within_a_word_begins_with_the_rest(tokenizer: Tokenizer) -> None:
    found, ids = model(tokenizer), tokenizer.encode("xylophone cat").ids
    assert found.spelled is not None
    cut = torch.tensor([[tokenizer.id("cls"), *ids[5:], tokenizer.id("sep")]])
    words = found.spelled.words(cut, torch.tensor([cut.shape[1]]))
    letters = found.spelled.spell(cut, torch.tensor([cut.shape[1]]), words)
    assert torch.equal(letters[0], torch.from_numpy(spell(["phone", "cat"])))


@pytest.mark.parametrize("seed", range(2))
def test_states_go_on(seed: int, tokenizer: Tokenizer) -> None:
    """Forward, two parts with the state between them are one pass; backward the same from the other end."""
    found, half = model(tokenizer, seed), SMALL["width"] // 2
    letters = torch.from_numpy(spell(["the", "dog", "sees", "a", "cat", "and", "the", "hedgehog"], False))[None]
    count = letters.shape[1]
    whole = found.from_letters(letters, torch.tensor([count]), State())
    for side, parts in ((slice(None, half), ((0, 3), (3, count))), (slice(half, None), ((5, count), (0, 5)))):
        state: State | None = State()
        for start, end in parts:
            encoded = found.from_letters(letters[:, start:end], torch.tensor([end - start]), state)
            state = encoded.state
            wanted = whole.last[:, start:end, side]
            torch.testing.assert_close(encoded.last[..., side], wanted, rtol=1e-12, atol=1e-12)


def test_a_padded_row_hands_on_the_state_of_its_end(tokenizer: Tokenizer) -> None:
    found = model(tokenizer)
    together = found(batch_of(tokenizer, LINES), state=State()).state
    alone = found(batch_of(tokenizer, LINES[1:2]), state=State()).state
    assert together is not None
    assert alone is not None
    for x, y in zip(together.layers, alone.layers, strict=True):
        torch.testing.assert_close(x[1:2], y, rtol=1e-12, atol=1e-12)


def test_only_and_dropout_and_groups(tokenizer: Tokenizer) -> None:
    found, batch = model(tokenizer, dropout=0.5), batch_of(tokenizer, LINES)
    at = torch.tensor([[0, 3], [1, 2], [4, 4]])
    whole, part = found(batch), found(batch, at)
    torch.testing.assert_close(part.last, torch.stack([whole.last[row, at[row]] for row in range(3)]))
    found.train()
    assert not torch.allclose(found(batch).last, whole.last)
    found.drop(0.0)
    torch.testing.assert_close(found(batch).last, whole.last)
    owned = [p for group in found.groups() for p in group.parameters()]
    assert {id(p) for p in owned} == {id(p) for p in found.parameters()}
    assert len(found.groups()) == 3


def test_mistakes_are_told() -> None:
    assert BACKBONES["bilm"] == (BiLM, BiLMConfig)
    for wrong in (
        {"width": 7},
        {"cell": 6},
        {"depth": 0},
        {"filters": ()},
        {"filters": ((60, 3),)},
        {"filters": ((3, 0),)},
        {"depth": 20_000_000_000},
        {"dropout": 1.0},
        {"clip": -1.0},
    ):
        with pytest.raises(SesameError, match="backbone"):
            BiLMConfig(20, **SMALL | wrong)
    mute = build_backbone(BiLMConfig(20, **SMALL))
    with pytest.raises(SesameError, match="without a tokenizer"):
        mute(Batch(torch.tensor([[1, 2]]), torch.tensor([2])))
    with pytest.raises(SesameError, match="no token table"):
        mute.token_table()


def test_flops_are_those_of_its_matrices() -> None:
    """Against products counted by PyTorch."""
    from torch.utils.flop_counter import FlopCounterMode

    config = BiLMConfig(64, **SMALL | {"reads": "tokens", "clip": 1.0})
    found = BiLM(config).train()
    ids = torch.randint(0, 64, (2, 9))
    with FlopCounterMode(display=False) as counter:
        found(Batch(ids, torch.tensor([9, 9]), full=True)).last.sum().backward()
    assert counter.get_total_flops() == pytest.approx(flops_per_token(config, Work(9)) * ids.numel(), rel=0.12)
    assert kept_per_token(config, Work(9, 1.0)) > 0
    assert flops_per_token(BiLMConfig(64, **SMALL), Work(9)) > flops_per_token(config, Work(9))
