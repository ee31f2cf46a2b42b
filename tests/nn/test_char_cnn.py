"""Letters to vectors: the published ids, and the network against its formula written out word by word."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from sesame.data.encode import DocumentEncoder
from sesame.errors import SesameError
from sesame.nn.char_cnn import CharCNN, Highway
from sesame.text.characters import BEGINS, PADDING, spell, spelling_of
from sesame.text.train import train_tokenizer

FILTERS = ((1, 3), (2, 4), (4, 5))
TEXTS = ["the dog sees the cat.", "The ёжик sees the dog.", "the dog, the cat."]


def by_hand(net: CharCNN, word: Tensor) -> Tensor:
    """One word, place by place."""
    rows = net.letters.weight[word]
    found = []
    for layer in net.filters:
        assert isinstance(layer, torch.nn.Conv1d)
        assert layer.bias is not None
        wide = layer.kernel_size[0]
        windows = [rows[at : at + wide] for at in range(len(rows) - wide + 1)]
        sums = torch.stack([torch.einsum("fek,ke->f", layer.weight, window) + layer.bias for window in windows])
        found.append(getattr(torch, net.activation)(sums).amax(0))
    x = torch.cat(found)
    for highway in net.highways:
        assert isinstance(highway, Highway)
        gate = torch.sigmoid(F.linear(x, highway.gate.weight, highway.gate.bias))
        new = torch.relu(F.linear(x, highway.transform.weight, highway.transform.bias))
        x = gate * new + (1 - gate) * x
    return F.linear(x, net.project.weight, net.project.bias)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_it_is_its_formula_over_all_fifty_places(seed: int, activation: str) -> None:
    torch.manual_seed(seed)
    net = CharCNN(6, 5, FILTERS, 2, activation).double()  # type: ignore[arg-type]
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    words = torch.from_numpy(spell(["a", "dog", "ёжик", "x" * 60, "consequently"]))
    wanted = torch.stack([by_hand(net, word) for word in words])
    torch.testing.assert_close(net(words), wanted, rtol=1e-12, atol=1e-12)


def test_a_word_keeps_its_vector_beside_longer_ones() -> None:
    torch.manual_seed(0)
    net = CharCNN(6, 5, FILTERS).double()
    alone, beside = spell(["a"], False), spell(["a", "b" * 40], False)
    torch.testing.assert_close(net(torch.from_numpy(alone))[0], net(torch.from_numpy(beside))[0], rtol=0, atol=1e-14)


def test_many_words_are_read_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """65,536 words, as a GPU is given them for a score, would be 3 thousand million numbers behind one kind of filter."""
    torch.manual_seed(0)
    net = CharCNN(6, 5, FILTERS).double()
    words = torch.from_numpy(spell(["a", "dog", "ёжик", "x" * 60, "consequently", "is", "here"], False))
    wanted, most = net(words), 0

    def note(module: torch.nn.Module, given: tuple[Tensor], found: Tensor) -> None:
        nonlocal most
        most = max(most, len(found))

    net.filters[0].register_forward_hook(note)
    monkeypatch.setattr("sesame.nn.char_cnn.AT_ONCE", 3)
    torch.testing.assert_close(net(words), wanted, rtol=0, atol=1e-14)
    assert most == 3
    assert net(words[:0]).shape == (0, 6)


def test_published_ids() -> None:
    found = spell(["hé", "y" * 100])
    assert found.shape == (4, 50)
    assert found[0, :4].tolist() == [259, 257, 260, 261]
    assert found[1, :7].tolist() == [259, ord("h") + 1, 0xC3 + 1, 0xA9 + 1, 260, 261, 261]
    assert found[2].tolist() == [259, *[ord("y") + 1] * 48, 260]
    assert found[3, :4].tolist() == [259, 258, 260, 261]
    assert PADDING == 261


@pytest.mark.parametrize("kind", ["word", "wordpiece"])
def test_the_letters_of_a_words_tokens_are_the_words(kind: str) -> None:
    tokenizer = train_tokenizer(TEXTS * 3, kind, 300)  # type: ignore[arg-type]
    spelling = spelling_of(tokenizer)
    text = "the dogs see The ёжика." if kind == "word" else "the cats see the dog."
    encoding = tokenizer.encode(text, special=True)
    assert len(encoding.ids) > len(set(encoding.words))  # some word has several tokens
    assert [bool(spelling.starts[id] == BEGINS) for id in encoding.ids[1:-1]] == [
        place == 1 or encoding.words[place] != encoding.words[place - 1] for place in range(1, len(encoding.ids) - 1)
    ]
    letters = [letter for id in encoding.ids for letter in spelling.letters[id] if letter]
    assert (letters[0], letters[-1]) == (257, 258)
    assert bytes(letter - 1 for letter in letters[1:-1]) == text.replace(" ", "").encode()


def test_word_ids_follow_frequency_and_nothing_is_unknown() -> None:
    tokenizer = train_tokenizer(TEXTS * 3, "word", 300)
    assert tokenizer.tokens()[5:7] == ["Ġthe", "Ġ."]  # 5 and 3 times in each
    assert tokenizer.id("unk") not in tokenizer.encode("漢字 \x07 ñandú").ids
    assert tokenizer.decode(tokenizer.encode("The ёжика runs").ids) == " The ёжика runs"


def test_only_spaces_part_words_of_text_that_was_tokenized() -> None:
    tokenizer = train_tokenizer(["the U.S. <unk> ca n't", "the U.S. did n't"] * 2, "spaced", 300)
    assert [tokenizer.token(id) for id in tokenizer.encode("the U.S. <unk> n't").ids] == [
        "Ġthe",
        "ĠU.S.",
        "Ġ<unk>",
        "Ġn't",
    ]
    letters = spelling_of(tokenizer).letters[tokenizer.encode("U.S.").ids[0]]
    assert bytes(letter - 1 for letter in letters if letter) == b"U.S."


@pytest.mark.parametrize("kind", ["word", "spaced"])
def test_a_store_holds_what_the_tokenizer_gives(kind: str) -> None:
    tokenizer = train_tokenizer(TEXTS * 3, kind, 300)  # type: ignore[arg-type]
    encoder = DocumentEncoder(tokenizer)
    assert encoder.split is not None  # word by word
    for text in (*TEXTS, "The dogs, ёж!  don't", "漢字 (the) cat's"):
        assert encoder.encode([text]).tokens.tolist() == tokenizer.encode(" ".join(text.split())).ids


def test_a_tokenizer_that_hides_where_words_begin_is_refused() -> None:
    with pytest.raises(SesameError, match=r'tokenizer.kind = "word"'):
        spelling_of(train_tokenizer(TEXTS * 3, "bpe", 270))
