"""The wrapper: roles, offsets, literal text, saving."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from sesame.errors import SesameError
from sesame.text import Encoding, Tokenizer, train_tokenizer

LINES = [
    "The cat sat on the mat, and the dog sat on the log.",
    "Мой старый ёж ещё пьёт чай; май и йод — мои слова.",
    "Schöne Größe: über die Brücke gehen wir möglichst früh.",
    "我们在学校学习中文。学校很大，我们很高兴。",
    "numbers 1,000 and 2,000 (and more) - e-mail: a@b.c",
] * 20
KINDS = ("wordpiece", "bpe", "unigram")


@pytest.fixture(scope="module")
def trained() -> dict[str, Tokenizer]:
    return {kind: train_tokenizer(LINES, kind, 600) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_roles_are_the_first_ids(trained: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = trained[kind]
    assert tokenizer.ids() == {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
    assert tokenizer.id("mask") == 4
    assert tokenizer.token(4) == "[MASK]"
    assert not tokenizer.has("bos")
    assert len(tokenizer) == len(tokenizer.tokens())
    assert tokenizer.tokens()[:2] == ["[PAD]", "[UNK]"]
    with pytest.raises(SesameError, match="has no eos token"):
        tokenizer.id("eos")
    with pytest.raises(SesameError, match="no token with id 99999"):
        tokenizer.token(99999)


@pytest.mark.parametrize("kind", KINDS)
def test_template_and_segments(trained: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = trained[kind]
    a, b = tokenizer.encode("the cat").ids, tokenizer.encode("the dog").ids
    single = tokenizer.encode("the cat", special=True)
    assert single.ids == [2, *a, 3]
    assert single.words[0] is None
    assert single.words[-1] is None
    assert single.offsets[0] == (0, 0)
    pair = tokenizer.encode_pair("the cat", "the dog")
    assert pair.ids == [2, *a, 3, *b, 3]
    assert pair.segments == [0] * (len(a) + 2) + [1] * (len(b) + 1)
    assert tokenizer.input_names() == ["input_ids", "token_type_ids", "attention_mask"]


def test_words_join_the_pieces_of_a_word(trained: dict[str, Tokenizer]) -> None:
    encoding = trained["wordpiece"].encode("the catlog")
    tokens = [trained["wordpiece"].token(id) for id in encoding.ids]
    assert len(tokens) > 2
    assert encoding.words == [0] + [1] * (len(tokens) - 1)
    assert all(token.startswith("##") for token in tokens[2:])


def test_offsets_point_at_the_words_of_the_text(trained: dict[str, Tokenizer]) -> None:
    text = "The  cat, чай"
    for kind in KINDS:
        encoding = trained[kind].encode(text)
        spans: dict[int | None, list[tuple[int, int]]] = {}
        for word, span in zip(encoding.words, encoding.offsets, strict=True):
            spans.setdefault(word, []).append(span)
        joined = [text[min(a for a, _ in s) : max(b for _, b in s)].strip() for s in spans.values()]
        assert "чай" in joined, kind
        assert "The" in joined, kind


def test_offsets_count_characters_of_the_original(trained: dict[str, Tokenizer]) -> None:
    text = "май и май"  # the first й in two characters
    for kind in ("wordpiece", "unigram"):
        encoding = trained[kind].encode(text)
        assert max(end for _, end in encoding.offsets) == len(text)
        starts = [start for start, _ in encoding.offsets]
        assert text.rindex("м") in starts


@pytest.mark.parametrize("kind", KINDS)
def test_literal_text_gives_no_control_tokens(trained: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = trained[kind]
    text = "[CLS] a [SEP] b [MASK][PAD] c"
    matched = tokenizer.encode(text)
    assert {2, 3, 4, 0} <= set(matched.ids)
    literal = tokenizer.encode_batch([text], literal=True)[0]
    assert not {0, 2, 3, 4} & set(literal.ids)
    assert tokenizer.encode(text).ids == matched.ids  # the tokenizer itself is as before
    framed = tokenizer.encode(text, special=True, literal=True)
    assert framed.ids == [2, *literal.ids, 3]
    assert tokenizer.encode_pair("[SEP]", "x", literal=True).ids.count(3) == 2
    plain = "the cat, чай"
    assert tokenizer.encode(plain, literal=True) == tokenizer.encode(plain)


@pytest.mark.parametrize("kind", KINDS)
def test_save_and_load_keep_everything(trained: dict[str, Tokenizer], kind: str, tmp_path: Path) -> None:
    tokenizer = trained[kind]
    tokenizer.max_length = 128
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.fingerprint() == tokenizer.fingerprint()
    assert again.roles == tokenizer.roles
    assert again.max_length == 128
    assert again.input_names() == tokenizer.input_names()
    assert Tokenizer.load(tmp_path / "tokenizer.json").fingerprint() == tokenizer.fingerprint()


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_opens_what_we_save(trained: dict[str, Tokenizer], kind: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = trained[kind]
    tokenizer.save(tmp_path)
    auto = transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts = [*LINES[:5], "май [MASK] Größe 中文 ☃"]
    assert auto(texts)["input_ids"] == [e.ids for e in tokenizer.encode_batch(texts, special=True)]
    both = auto("the cat", "the dog")
    assert both["token_type_ids"] == tokenizer.encode_pair("the cat", "the dog").segments
    assert (auto.mask_token_id, auto.pad_token_id, auto.unk_token_id) == (4, 0, 1)


def test_a_mask_that_takes_the_space_survives_saving(trained: dict[str, Tokenizer], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    backend = tokenizers.Tokenizer.from_str(trained["bpe"].backend.to_str())
    backend.add_special_tokens([tokenizers.AddedToken("[MASK]", lstrip=True, special=True, normalized=False)])
    tokenizer = Tokenizer(backend, trained["bpe"].roles)
    ids = tokenizer.encode("the [MASK] sat").ids
    assert ids != trained["bpe"].encode("the [MASK] sat").ids
    tokenizer.save(tmp_path)
    assert Tokenizer.load(tmp_path).encode("the [MASK] sat").ids == ids
    auto = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert auto("the [MASK] sat", add_special_tokens=False)["input_ids"] == ids


def test_truncation_and_padding_are_taken_off(trained: dict[str, Tokenizer], tmp_path: Path) -> None:
    backend = tokenizers.Tokenizer.from_str(trained["wordpiece"].backend.to_str())
    backend.enable_truncation(4)
    backend.enable_padding(length=4)
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.encode("the cat sat on the mat", special=True) == trained["wordpiece"].encode(
        "the cat sat on the mat", special=True
    )
    assert len(tokenizer.encode("the").ids) == 1


def test_the_fingerprint_tells_roles_and_vocabulary_apart(trained: dict[str, Tokenizer]) -> None:
    one = trained["wordpiece"]
    fewer = Tokenizer(one.backend, {"pad": "[PAD]"})
    assert fewer.fingerprint() != one.fingerprint()
    assert trained["bpe"].fingerprint() != one.fingerprint()


def test_a_tokenizer_travels_to_another_process(trained: dict[str, Tokenizer]) -> None:
    tokenizer = trained["unigram"]
    tokenizer.encode("[SEP]", literal=True)
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy.encode("a [SEP] b", literal=True) == tokenizer.encode("a [SEP] b", literal=True)


def test_a_role_needs_a_token_of_the_vocabulary(trained: dict[str, Tokenizer]) -> None:
    with pytest.raises(SesameError, match="'<nothing>' is not in the vocabulary"):
        Tokenizer(trained["bpe"].backend, {"pad": "<nothing>"})


def test_half_a_surrogate_pair_is_no_crash(trained: dict[str, Tokenizer]) -> None:
    broken = json.loads('"the \\ud800 cat"')
    encoding = trained["bpe"].encode(broken)
    assert encoding.offsets[-1] == (6, 9)
    assert trained["bpe"].encode_pair(broken, "x").ids[0] == 2


def check_offsets(encoding: Encoding, text: str) -> None:
    assert len(encoding.ids) == len(encoding.offsets) == len(encoding.words) == len(encoding.segments)
    previous = (0, 0)
    for start, end in encoding.offsets:
        assert 0 <= start <= end <= len(text)
        assert start >= previous[0]
        assert end >= previous[1]
        previous = (start, end)


# Latin, Cyrillic, Han, marks that combine, emoji, controls, odd spaces: everything but surrogates.
ANY_TEXT = st.text(max_size=60)


@settings(max_examples=150, deadline=None)
@given(ANY_TEXT)
def test_offsets_stay_in_the_text_and_go_forward(trained: dict[str, Tokenizer], text: str) -> None:
    for kind in KINDS:
        check_offsets(trained[kind].encode(text), text)
        check_offsets(trained[kind].encode(text, literal=True), text)


@settings(max_examples=200, deadline=None)
@given(ANY_TEXT)
def test_bpe_gives_every_text_back(trained: dict[str, Tokenizer], text: str) -> None:
    tokenizer = trained["bpe"]
    assert tokenizer.decode(tokenizer.encode(text, literal=True).ids) == text


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(["the", "cat", "Größe", "чай", "ёж", "中文", "☃", "x<0x41>y"]), max_size=8))
def test_unigram_gives_words_back(trained: dict[str, Tokenizer], words: list[str]) -> None:
    tokenizer = trained["unigram"]
    encoding = tokenizer.encode("  ".join(words), literal=True)
    assert tokenizer.decode(encoding.ids) == " ".join(words)
    assert tokenizer.id("unk") not in encoding.ids


def test_wordpiece_decodes_words(trained: dict[str, Tokenizer]) -> None:
    decode: Callable[[str], str] = lambda text: trained["wordpiece"].decode(trained["wordpiece"].encode(text).ids)  # noqa: E731
    assert decode("the cat sat on the log") == "the cat sat on the log"


def test_people_see_letters_not_bytes(trained: dict[str, Tokenizer]) -> None:
    tokenizer = trained["bpe"]
    assert "".join(tokenizer.shown(id) for id in tokenizer.encode(LINES[0], special=False).ids) == LINES[0]
    assert "й" in {tokenizer.shown(id).strip() for id in range(len(tokenizer))}  # two bytes, one letter
    half = next(id for id, token in enumerate(tokenizer.tokens()) if token == "Ð")  # the first byte of many letters
    assert tokenizer.shown(half) == "Ð"
    assert tokenizer.shown(tokenizer.id("mask")) == tokenizer.roles["mask"]
    wordpiece = trained["wordpiece"]
    assert [wordpiece.shown(id) for id in range(len(wordpiece))] == wordpiece.tokens()
