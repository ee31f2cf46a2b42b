"""Windows: nothing is lost, nothing is answered for twice, and a text that fits is what the tokenizer says."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, processors, trainers

from sesame.errors import SesameError
from sesame.tasks.windows import Inputs, Window
from sesame.text import Encoding, Tokenizer
from sesame.text.template import around
from tests.tasks.toys import UNICODE, toy_tokenizer, trained

KINDS = ("wordpiece", "bpe", "unigram")
TOKENIZERS = {kind: trained(kind) for kind in KINDS} | {"words": toy_tokenizer()}
TEXTS = st.text(alphabet=st.sampled_from(UNICODE + "  abc\t\n[]"), max_size=60).filter(
    lambda text: not any(name in text for name in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"))
)


def bare(count: int) -> Encoding:
    """A text whose ids are numbers in order, so that every place can be recognised."""
    numbers = list(range(100, 100 + count))
    return Encoding(numbers, [(3 * n, 3 * n + 2) for n in range(count)], list(range(count)), [0] * count)


def owned(windows: list[Window]) -> list[int]:
    return [window.ids[at] for window in windows for at in window.own]


def check(windows: list[Window], text: Encoding, limit: int) -> None:
    assert owned(windows) == text.ids
    for window in windows:
        assert len(window.ids) == len(window.segments) == len(window.offsets) <= limit
        assert window.body.start <= window.own.start <= window.own.stop <= window.body.stop
        inside = [window.ids[at] for at in window.body]
        span = slice(window.first, window.first + len(inside))
        assert inside == text.ids[span]
        assert [window.offsets[at] for at in window.body] == text.offsets[span]
        outside = [offset for at, offset in enumerate(window.offsets) if at not in window.body]
        assert set(outside) <= {(0, 0)}


@given(st.integers(0, 400), st.integers(12, 70), st.floats(0, 0.99))
def test_every_token_is_owned_once(count: int, limit: int, overlap: float) -> None:
    text = bare(count)
    windows = Inputs(TOKENIZERS["words"], limit, overlap).single(text)
    check(windows, text, limit)
    for window in windows if len(windows) > 1 else ():
        assert len(window.ids) == limit, "a window was left shorter than it might be"
    bodies = [range(window.first, window.first + len(window.body)) for window in windows]
    for number, window in enumerate(windows):  # a token belongs to the window in which it stands farthest from an edge
        for at in window.own:
            token = at - window.body.start + window.first
            room = [min(token - b.start, b.stop - 1 - token) for b in bodies if token in b]
            edge = number in (0, len(windows) - 1)
            assert edge or min(token - bodies[number].start, bodies[number].stop - 1 - token) >= max(room) - 1


@given(st.integers(0, 80), st.integers(0, 300), st.sampled_from([None, 0, 1]), st.integers(12, 60), st.floats(0, 0.9))
def test_pairs(a: int, b: int, long: int | None, limit: int, overlap: float) -> None:
    inputs = Inputs(TOKENIZERS["words"], limit, overlap)
    texts = [bare(a), bare(b)]
    windows = inputs.pair(*texts, long=long)
    chosen = long if long is not None else int(a <= b)
    check(windows, texts[chosen], limit)
    room = limit - 3
    other = texts[1 - chosen].ids
    cut = a + b > room and len(other) > room // 2
    assert inputs.shortened == int(cut)
    for window in windows:
        ids = [id for at, id in enumerate(window.ids) if at not in window.body and id >= 100]
        assert ids == other[: len(ids)]
        assert cut or ids == other
        assert [window.ids.count(special) for special in (2, 3)] == [1, 2]
    if cut:  # no more is lost than must be
        assert len(ids) >= min(len(other), max(room // 2, room - len(texts[chosen].ids)))


@pytest.mark.parametrize("kind", TOKENIZERS)
@settings(max_examples=60)
@given(text=TEXTS, second=TEXTS)
def test_a_text_that_fits_is_as_the_tokenizer_says(kind: str, text: str, second: str) -> None:
    tokenizer = TOKENIZERS[kind]
    inputs = Inputs(tokenizer, 600)
    a, b = inputs.encode([text, second])
    wanted = tokenizer.encode(text, special=True)
    (window,) = inputs.single(a)
    assert (window.ids, window.segments, window.offsets) == (wanted.ids, wanted.segments, wanted.offsets)
    both = tokenizer.encode_pair(text, second)
    (window,) = inputs.pair(a, b, long=1)
    assert (window.ids, window.segments) == (both.ids, both.segments)
    assert [window.offsets[at] for at in window.body] == b.offsets
    assert owned([window]) == b.ids


def test_control_tokens_in_a_text_stay_plain_characters() -> None:
    tokenizer = TOKENIZERS["wordpiece"]
    inputs = Inputs(tokenizer, 64)
    (window,) = inputs.single(inputs.encode(["the fox [SEP] the dog [CLS]"])[0])
    assert window.ids.count(tokenizer.id("sep")) == window.ids.count(tokenizer.id("cls")) == 1


def test_too_short_windows_are_refused() -> None:
    with pytest.raises(SesameError, match="take at least 11"):
        Inputs(TOKENIZERS["words"], 10)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_fifty_thousand_words(kind: str) -> None:
    inputs = Inputs(TOKENIZERS[kind], 512)
    words = (UNICODE + " ") * 4200
    assert len(words.split()) >= 50_000
    (text,) = inputs.encode([words])
    check(inputs.single(text), text, 512)


def tokenizer_without_a_separator() -> Tokenizer:
    from tokenizers import processors

    tokenizer = toy_tokenizer()
    tokenizer.backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A", pair="[CLS] $A $B:1", special_tokens=[("[CLS]", 2)]
    )
    return tokenizer


def test_a_template_without_a_separator() -> None:
    tokenizer = tokenizer_without_a_separator()
    inputs = Inputs(tokenizer, 40)
    a, b = inputs.encode(["alpha w1", "beta w2 w3"])
    (window,) = inputs.pair(a, b)
    wanted = tokenizer.encode_pair("alpha w1", "beta w2 w3")
    assert (window.ids, window.segments) == (wanted.ids, wanted.segments)


def without_latin_letters() -> Tokenizer:
    """Pieces of one script only and none for the unknown, so that "a" has no pieces at all."""
    specials = ["<s>", "<pad>", "</s>", "<mask>"]
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(vocab_size=60, special_tokens=specials, show_progress=False)
    backend.train_from_iterator(["кот спит на ковре", "собака бежит по дороге"], trainer)
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return Tokenizer(backend, {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "mask": "<mask>"})


def test_a_tokenizer_of_another_script_has_its_template() -> None:
    """The texts stood behind `<s></s>` and `<s></s></s></s>`."""
    tokenizer = without_latin_letters()
    assert tokenizer.encode("a").ids == []
    inputs = Inputs(tokenizer, 30)
    a, b = inputs.encode(["кот спит", "собака"])
    assert inputs.single(a)[0].ids == tokenizer.encode("кот спит", special=True).ids
    assert inputs.pair(a, b)[0].ids == tokenizer.encode_pair("кот спит", "собака").ids
    assert around(tokenizer) == ((0,), (2,))
    assert not tokenizer.cls_last
