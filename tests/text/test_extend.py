"""Vocabulary extension: which words are chosen, and that nothing else changes."""

from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, models, pre_tokenizers

from sesame.errors import SesameError
from sesame.text import Encoding, Tokenizer, extend, train_tokenizer
from sesame.text.extend import choose_words, extend_tokenizer

LINES = [
    "The cat sat on the mat, and the dog sat on the log.",
    "Мой старый ёж ещё пьёт чай; май и йод — мои слова.",
    "Schöne Größe: über die Brücke gehen wir möglichst früh.",
    "हिन्दी में किताब और पानी",
    "numbers 1,000 and 2,000 (and more) - e-mail: a@b.c",
    # Every letter at the start of a word and inside of one.
    " ".join(c * 2 for c in "abcdefghijklmnopqrstuvwxyzMYELOMAабвгдеёжзийклмнопрстуфхцчшщъыьэюяविद्यालय0123456789"),
] * 20
KINDS = ("wordpiece", "bpe", "unigram")
NEW = ["nephrotic", "nephro", "ёжиков", "Schönheit", "myeloma"]
Pair = tuple[Tokenizer, Tokenizer, list[list[int]]]


@pytest.fixture(scope="module")
def trained() -> dict[str, Tokenizer]:
    found = {kind: train_tokenizer(LINES, kind, 600) for kind in KINDS}
    for tokenizer in found.values():
        tokenizer.sides = {"padding_side": "left"}
    return found


@pytest.fixture(scope="module")
def extended(trained: dict[str, Tokenizer]) -> dict[str, Pair]:
    return {kind: (old, *extend_tokenizer(old, NEW)) for kind, old in trained.items()}


def expand(ids: list[int], old: Tokenizer, pieces: list[list[int]]) -> list[int]:
    """New ids replaced by what they stood for."""
    return [part for id in ids for part in (pieces[id - len(old)] if id >= len(old) else [id])]


@pytest.mark.parametrize("kind", KINDS)
def test_old_ids_and_roles_stay(extended: dict[str, Pair], kind: str) -> None:
    old, new, pieces = extended[kind]
    assert new.tokens()[: len(old)] == old.tokens()
    assert len(new) == len(old) + len(pieces) == len(old) + len(NEW) * (2 if kind == "bpe" else 1)
    assert (new.roles, new.ids(), new.input_names()) == (old.roles, old.ids(), old.input_names())
    assert new.sides == {"padding_side": "left"}
    assert all(len(ids) > 1 and max(ids) < len(old) for ids in pieces)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("word", NEW)
def test_a_new_word_is_one_piece_with_its_place(extended: dict[str, Pair], kind: str, word: str) -> None:
    old, new, pieces = extended[kind]
    text = f"the {word} and {word}"
    found = new.encode(text)
    fresh = [(id, text[slice(*span)]) for id, span in zip(found.ids, found.offsets, strict=True) if id >= len(old)]
    assert [surface for _, surface in fresh] == [word, word]
    assert expand(found.ids, old, pieces) == old.encode(text).ids
    assert new.decode(found.ids) == old.decode(old.encode(text).ids) == text
    assert found.words == sorted(found.words, key=lambda word: word or 0)
    assert new.encode(text, literal=True) == found


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
@pytest.mark.parametrize("text", ["myeloma", "(myeloma)", "the\nmyeloma, myeloma.", "«myeloma»"])
def test_a_word_is_one_piece_wherever_it_stands(extended: dict[str, Pair], kind: str, text: str) -> None:
    old, new, pieces = extended[kind]
    ids = new.encode(text).ids
    assert len([id for id in ids if id >= len(old)]) == text.count("myeloma")
    assert expand(ids, old, pieces) == old.encode(text).ids


def test_unigram_joins_only_what_starts_a_word(extended: dict[str, Pair]) -> None:
    old, new, _ = extended["unigram"]
    assert len(old) <= max(new.encode("myeloma, cat").ids)
    assert new.encode("(myeloma xmyeloma").ids == old.encode("(myeloma xmyeloma").ids


def test_unigram_keeps_the_cuts_of_longer_words() -> None:
    """abc = ▁a + bc is better than ▁a + b + c, so the new ab stays out of it; abd = ▁a + b + d becomes ▁ab + d."""
    pieces = [("<unk>", -9.0), ("▁a", -2.0), ("b", -3.0), ("c", -3.0), ("d", -3.0), ("bc", -5.5)]
    backend = tokenizers.Tokenizer(models.Unigram(pieces, 0, False))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    old = Tokenizer(backend, {"unk": "<unk>"})
    new, stood_for = extend_tokenizer(old, ["ab"])
    assert stood_for == [[1, 2]]
    assert [new.token(id) for id in new.encode("ab abc abd").ids] == ["▁ab", "▁a", "bc", "▁ab", "d"]


@pytest.mark.parametrize("kind", KINDS)
def test_inside_of_a_word_nothing_fires(extended: dict[str, Pair], kind: str) -> None:
    old, new, _ = extended[kind]
    assert new.encode("xmyeloma anephro").ids == old.encode("xmyeloma anephro").ids
    begins = new.encode("the myelomas").ids
    assert (max(begins) >= len(old)) == (kind != "bpe")


PARTS = st.sampled_from([*NEW, "cat", "the", "Größe", "чай", "हिन्दी", "nephron", "ёжик", "myelom", ",", "(", "-", "'s"])
TEXTS = st.lists(PARTS | st.text(max_size=4), max_size=12).flatmap(
    lambda parts: st.sampled_from(["", " ", "  ", "\n"]).map(lambda glue: glue.join(parts))
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_new_ids_stand_for_exactly_their_old_pieces(extended: dict[str, Pair], text: str) -> None:
    """For BPE in all texts; for the others where no longer word begins with a new one."""
    for kind in KINDS:
        old, new, pieces = extended[kind]
        before, after = old.encode(text, literal=True), new.encode(text, literal=True)
        check_offsets(after, text)
        begun = any(
            surface != word and surface.startswith(word)
            for _, surface in extend._split(old.backend, text)
            for word in NEW
        )
        if kind == "bpe" or not begun:
            assert expand(after.ids, old, pieces) == before.ids
            assert new.decode(after.ids) == old.decode(before.ids)
        if kind == "bpe":
            assert new.decode(after.ids) == text


def check_offsets(encoding: Encoding, text: str) -> None:
    previous = (0, 0)
    for start, end in encoding.offsets:
        assert previous[0] <= start <= end <= len(text)
        assert end >= previous[1]
        previous = (start, end)


LETTERS = st.text("abcdeфы", min_size=1, max_size=7)


@settings(max_examples=40, deadline=None)
@given(st.sets(LETTERS, min_size=1, max_size=12))
def test_any_words_become_one_piece_each(trained: dict[str, Tokenizer], words: set[str]) -> None:
    """Also words that begin or make up each other."""
    for kind in KINDS:
        new, pieces = extend_tokenizer(trained[kind], sorted(words))
        for word in words:
            assert len(new.encode(f" {word}").ids) == 1, kind
        assert len(new) == len(trained[kind]) + len(pieces)


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_opens_what_we_save(extended: dict[str, Pair], kind: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    _, new, _ = extended[kind]
    new.save(tmp_path)
    texts = [*LINES[:5], *NEW, "the nephrotic, (myeloma) myelomas [MASK] Schönheit.", "ёжиков ёжиковский"]
    ids = [e.ids for e in new.encode_batch(texts, special=True)]
    auto = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert auto(texts)["input_ids"] == ids
    assert len(auto) == len(new)
    again = Tokenizer.load(tmp_path)
    assert [e.ids for e in again.encode_batch(texts, special=True)] == ids
    assert again.fingerprint() == new.fingerprint()


@pytest.mark.parametrize("kind", KINDS)
def test_known_words_are_skipped(extended: dict[str, Pair], kind: str) -> None:
    old, new, _ = extended[kind]
    again, pieces = extend_tokenizer(new, [*NEW, "myeloma"])
    assert pieces == []
    assert again.fingerprint() == new.fingerprint()
    _, pieces = extend_tokenizer(old, ["myeloma", "myeloma"])
    assert len(pieces) == (2 if kind == "bpe" else 1)


@pytest.mark.parametrize("kind", KINDS)
def test_added_tokens_keep_their_ids(trained: dict[str, Tokenizer], kind: str, tmp_path: Path) -> None:
    backend = tokenizers.Tokenizer.from_str(trained[kind].backend.to_str())
    backend.add_special_tokens([AddedToken("<ent>", special=True, normalized=False)])
    backend.add_tokens([AddedToken("Covid", normalized=True)])
    old = Tokenizer(backend, trained[kind].roles)
    new, pieces = extend_tokenizer(old, ["myeloma", "Covid"])
    assert new.tokens()[: len(old)] == old.tokens()
    text = "the <ent> Covid cat"
    assert new.encode(text) == old.encode(text)
    assert new.encode(text, literal=True) == old.encode(text, literal=True)
    assert expand(new.encode("a myeloma <ent>").ids, old, pieces) == old.encode("a myeloma <ent>").ids
    new.save(tmp_path)
    assert Tokenizer.load(tmp_path).encode("<ent> Covid myeloma").ids == new.encode("<ent> Covid myeloma").ids


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("word", ["two words", "", "  "])
def test_what_is_no_word_is_an_error(trained: dict[str, Tokenizer], kind: str, word: str) -> None:
    with pytest.raises(SesameError, match="is not one word"):
        extend_tokenizer(trained[kind], [word])


def test_a_word_too_long_for_wordpiece_is_an_error(trained: dict[str, Tokenizer]) -> None:
    with pytest.raises(SesameError, match="stays split"):
        extend_tokenizer(trained["wordpiece"], ["a" * 1001])


def test_an_uncased_tokenizer_gets_the_word_in_its_own_form() -> None:
    old = train_tokenizer(LINES, "wordpiece", 400, lowercase=True)
    new, pieces = extend_tokenizer(old, ["MyeLoma", "myeloma"])
    assert len(pieces) == 1
    assert new.encode("MYELOMA myeloma").ids == [len(old)] * 2


def test_vocabularies_that_cannot_grow_say_so() -> None:
    level = Tokenizer(tokenizers.Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]")), {})
    with pytest.raises(SesameError, match="a WordLevel vocabulary cannot be extended"):
        extend_tokenizer(level, ["b"])
    ends = models.BPE({"a": 0, "b</w>": 1}, [], end_of_word_suffix="</w>")
    with pytest.raises(SesameError, match="marks the ends of words"):
        extend_tokenizer(Tokenizer(tokenizers.Tokenizer(ends), {}), ["ab"])
    # b+c merges first, and nothing joins a with bc: the piece abc exists and is never used.
    vocab = {token: id for id, token in enumerate(["a", "b", "c", "bc", "ab", "abc"])}
    backend = tokenizers.Tokenizer(models.BPE(vocab, [("b", "c"), ("a", "b"), ("ab", "c")]))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    with pytest.raises(SesameError, match="do not lead to its own piece 'abc'"):
        extend_tokenizer(Tokenizer(backend, {}), ["cab"])


@pytest.mark.parametrize("kind", KINDS)
def test_words_are_ranked_by_pieces_saved(trained: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = trained[kind]
    texts = ["the cat myeloma"] * 30 + ["nephrotic, syndrome"] * 25 + ["Myeloma"] * 22 + ["rarity"] * 19
    found = choose_words(iter(texts), tokenizer, 10)
    assert set(found) == {"myeloma", "nephrotic", "syndrome", "Myeloma"}

    def saved(word: str) -> int:
        times = sum(word in text for text in texts)
        return times * (len(tokenizer.encode(f" {word}").ids) - 1)

    assert [saved(word) for word in found] == sorted((saved(word) for word in found), reverse=True)
    assert choose_words(reversed(texts), tokenizer, 10) == found
    assert choose_words(texts, tokenizer, 2) == found[:2]
    assert choose_words(texts, extend_tokenizer(tokenizer, found)[0], 10) == []


def test_words_that_are_unknown_are_chosen_too(trained: dict[str, Tokenizer]) -> None:
    """One [UNK] is one piece, so they were the last to be thought of: an English model on Hebrew had "no new words"."""
    texts = ["שלום עולם, זה nephrotic"] * 30
    first, *others = choose_words(texts, trained["wordpiece"], 3)
    assert first == "nephrotic"
    assert set(others) == {"\u05e2\u05d5\u05dc\u05dd", "\u05e9\u05dc\u05d5\u05dd"}


@pytest.mark.parametrize(("kind", "whole"), [("wordpiece", True), ("unigram", True), ("bpe", False)])
def test_what_counts_as_a_word(trained: dict[str, Tokenizer], kind: str, whole: bool) -> None:
    """Marks and digits belong to words; hyphens, numbers and signs do not; GPT-2's cuts split off marks and digits."""
    texts = ["विद्यालय covid19x 123456789 @@@###$$$ x-rayed йогуртный"] * 20
    found = set(choose_words(texts, trained[kind], 20))
    assert "йогуртный" in found
    assert ({"विद्यालय", "covid19x"} <= found) == whole
    assert not {word for word in found if not word[0].isalpha() or "-" in word}
    extend_tokenizer(trained[kind], sorted(found))


def test_normalization_is_the_tokenizers_own() -> None:
    uncased = train_tokenizer(LINES, "wordpiece", 400, lowercase=True)
    cased = train_tokenizer(LINES, "wordpiece", 400)
    texts = ["Myeloma MYELOMA"] * 20
    assert choose_words(texts, uncased, 5) == ["myeloma"]
    assert set(choose_words(texts, cased, 5)) == {"Myeloma", "MYELOMA"}


def test_memory_is_bounded(trained: dict[str, Tokenizer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extend, "CHUNKS", 50)
    monkeypatch.setattr(extend, "WORDS", 40)
    seen: list[int] = []
    plain: Callable[..., None] = extend._take_apart

    def watch(chunks: object, backend: object, whole: bool, words: dict[str, int]) -> None:
        plain(chunks, backend, whole, words)
        seen.append(len(words))

    monkeypatch.setattr(extend, "_take_apart", watch)
    texts = [f"myeloma once{number}" for number in range(600)]
    assert choose_words(texts, trained["wordpiece"], 5) == ["myeloma"]
    assert len(seen) > 3
    assert max(seen) <= 40


def test_odd_input(trained: dict[str, Tokenizer]) -> None:
    assert choose_words([], trained["bpe"], 5) == []
    assert choose_words(["a \ud800 b", "x" * 500] * 30, trained["unigram"], 5) == []
    with pytest.raises(SesameError, match="1 or more"):
        choose_words(["a"], trained["bpe"], 0)
