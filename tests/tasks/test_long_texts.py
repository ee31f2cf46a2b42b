"""Answers about long texts point at the right characters, whatever the tokenizer and wherever the windows fall.

The models are made by hand: they read the embeddings alone, and those know one word, KEY.
"""

from typing import Any

import pytest
import torch
from tokenizers import normalizers

from sesame.backbones import Encoder
from sesame.data.examples import Answer, Example
from sesame.tasks import Task, TaskConfig, build_task
from sesame.tasks.predict import predict
from sesame.tasks.qa import LONGEST, unheld, untold
from sesame.tasks.tag import words_of
from sesame.text import Tokenizer
from tests.tasks.toys import UNICODE, encoder, made, trained, words_tokenizer

KEY = "lazy"  # none of its letters but "a" is in UNICODE
KINDS = ("words", "wordpiece", "bpe", "unigram")
FILLER = UNICODE.split()
TOKENIZERS = {kind: trained(kind) for kind in KINDS[1:]} | {"words": words_tokenizer([KEY, "stop", "who"])}


def filled(count: int, *places: int) -> str:
    """A text of so many words, with KEY at some of them."""
    return " ".join(KEY if n in places else FILLER[n % len(FILLER)] for n in range(count))


def handmade(config: TaskConfig, tokenizer: Tokenizer) -> tuple[Task, Encoder]:
    """Scores 9 at the first piece of KEY and at its last; the width is what the layer norm leaves of a basis vector."""
    backbone = encoder(len(tokenizer)).eval()
    with torch.no_grad():
        for part in (backbone.embeddings.positions, backbone.embeddings.segments):
            part.weight.zero_()  # type: ignore[union-attr]
        table = backbone.embeddings.tokens.weight.zero_()
        table[:, 2] = 1.0
        for before in ("", "stop "):  # some tokenizers take the space before a word into its first piece
            pieces = tokenizer.encode(f"{before}{KEY} stop")
            at = [n for n, (a, b) in enumerate(pieces.offsets) if b > len(before) and a < len(before) + len(KEY)]
            first, last = pieces.ids[at[0]], pieces.ids[at[-1]]
            table[first, 0] = table[last, 1] = table[first, 3] = table[last, 3] = 1.0
            table[first, 2] = table[last, 2] = 0.0
    task = build_task(config.kind, config, backbone).eval()
    with torch.no_grad():
        task.out.weight.zero_()
        task.out.bias.zero_()
        for output, column in ((0, 0), (1, 1)) if config.kind == "qa" else ((1, 0),):
            task.out.weight[output, column] = 9.0
            task.out.bias[output] = -5.0
    return task, backbone


def reply(config: TaskConfig, kind: str, example: Example) -> dict[str, Any]:
    task, backbone = handmade(config, TOKENIZERS[kind])
    return predict(task, backbone, TOKENIZERS[kind], [example])[0]


TAG = TaskConfig("tag", ("O", "B-KEY"), layers="first")
QA = TaskConfig("qa", layers="first", null=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("overlap", [0.0, 0.25, 0.8])
def test_a_word_is_found_wherever_it_stands(kind: str, overlap: float) -> None:
    """32 places a window: over 30 words every border and every overlap is met."""
    from dataclasses import replace

    task, backbone = handmade(replace(TAG, overlap=overlap), TOKENIZERS[kind])
    asker, reader = handmade(replace(QA, overlap=overlap), TOKENIZERS[kind])
    texts = [filled(30, place) for place in range(30)]
    tagged = predict(task, backbone, TOKENIZERS[kind], [Example("x", text) for text in texts])
    asked = predict(asker, reader, TOKENIZERS[kind], [Example("x", text, "who") for text in texts])
    for text, tags, said in zip(texts, tagged, asked, strict=True):
        (found,) = tags["entities"]
        at = text.index(KEY)
        assert (found["start"], found["end"], found["text"], found["label"]) == (at, at + 4, KEY, "KEY")
        assert len(tags["tags"]) == len(tags["words"]) == len(words_of(Example("x", text)))
        assert (said["start"], said["end"], said["answer"]) == (at, at + 4, KEY), text
        assert said["best"][0]["answer"] == KEY


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_five_thousand_words(kind: str) -> None:
    places = (0, 1, 17, 1234, 2500, 2501, 4998, 4999)
    text = filled(5000, *places)
    found = reply(TAG, kind, Example("x", text))["entities"]
    assert [(e["start"], e["end"]) for e in found] == [
        (len(" ".join(text.split(" ")[:n])) + (n > 0), len(" ".join(text.split(" ")[: n + 1]))) for n in places
    ]
    assert {text[e["start"] : e["end"]] for e in found} == {KEY}
    for place in (0, 2500, 4999):
        text = filled(5000, place)
        said = reply(QA, kind, Example("x", text, "who"))
        assert (said["answer"], said["start"]) == (KEY, text.index(KEY))
    said = reply(QA, kind, Example("x", filled(5000), "who"))
    assert said["answer"] == "" or said["no_answer"] >= said["probability"]


def test_a_question_longer_than_its_window() -> None:
    """It is shortened, the context is not."""
    text = filled(100, 77)
    said = reply(QA, "words", Example("x", text, "who " * 200))
    assert (said["answer"], said["start"]) == (KEY, text.index(KEY))


def test_words_of_a_plain_text_keep_their_marks() -> None:
    """Letters with their combining marks, vowel signs and joined emoji are not torn apart."""
    text = "cafe\u0301 हिन्दी में, don't e\u0301te\u0301 ❤\ufe0f snake_case 3.5 👩‍🚀!"
    found = [text[a:b] for a, b in words_of(Example("x", text))]
    assert found[:3] == ["cafe\u0301", "हिन्दी", "में"]
    assert {",", "e\u0301te\u0301", "❤\ufe0f", "snake_case", "!"} <= set(found)
    assert "".join(found) == "".join(text.split())


def test_words_that_share_a_piece() -> None:
    """ "..." is three signs and may be one piece: they get one tag, as one entity."""
    tokenizer = words_tokenizer([KEY, "stop", "..."])
    task, backbone = handmade(TAG, tokenizer)
    with torch.no_grad():
        backbone.embeddings.tokens.weight[tokenizer.encode("...").ids[0]] = backbone.embeddings.tokens.weight[5]
    (said,) = predict(task, backbone, tokenizer, [Example("x", "stop ... stop")])
    assert said["tags"] == ["O", "B-KEY", "I-KEY", "I-KEY", "O"]
    assert [(e["start"], e["end"]) for e in said["entities"]] == [(5, 8)]


def test_training_labels_of_long_texts() -> None:
    """Every word's tag and every answer reaches training exactly once as a target, in the window that owns or holds it."""
    from tests.tasks.toys import tagged

    words = ["alpha" if n % 7 == 0 else "w1" for n in range(200)]
    tokenizer = words_tokenizer(["alpha", "w1", "who"])
    task, _, inputs = made(TaskConfig("tag", ("O", "B-GOOD")), tokenizer)
    (item,) = task.items([tagged("x", words)], inputs)
    drawn = task.training_items([item])
    assert len(drawn) > 5
    labels = task.collate(drawn, 0).targets["tag"].labels
    assert int((labels >= 0).sum()) == 200
    assert int((labels == 1).sum()) == len(range(0, 200, 7))
    ids = task.collate(drawn, 0).ids
    assert set(ids[labels == 1].tolist()) == {tokenizer.encode("alpha").ids[0]}

    text = " ".join(["w1"] * 100 + ["alpha", "alpha"] + ["w1"] * 98)
    task, _, inputs = made(TaskConfig("qa"), tokenizer)
    start = text.index("alpha")
    (item,) = task.items([Example("x", text, "who", (Answer("alpha alpha", start),))], inputs)
    holding = [window for window, places in zip(item.windows, item.label, strict=True) if places != (0, 0)]
    assert holding
    for window, (first, last) in zip(item.windows, item.label, strict=True):
        whole = window.first <= 100 and window.first + len(window.body) >= 102
        assert whole == ((first, last) != (0, 0))
        if whole:
            assert (window.offsets[first][0], window.offsets[last][1]) == (start, start + 11)


@pytest.mark.parametrize("normalizer", [normalizers.NFC(), normalizers.BertNormalizer()], ids=["composed", "stripped"])
def test_answers_end_with_the_marks_of_their_last_letter(normalizer: normalizers.Normalizer) -> None:
    """No piece stands for a composed or stripped mark: such answers were learnt as "there is none", and told without it."""
    tokenizer = words_tokenizer(["café", "cafe", "who", "w1"])
    tokenizer.backend.normalizer = normalizer
    task, _, inputs = made(TaskConfig("qa"), tokenizer)
    text, answer = "w1 cafe\u0301 w1 \u200fcafe\u0301", "cafe\u0301"
    for start in (3, text.rindex(answer)):
        example = Example("x", text, "who", (Answer(answer, start),))
        (item,) = task.items([example], inputs)
        ((first, last),) = item.label
        (window,) = item.windows
        assert (window.offsets[first][0], window.offsets[last][1]) == (start, start + len(answer))
        assert not unheld(item, example)


def test_answers_with_marks_of_direction() -> None:
    """What the tokenizer drops at the ends of an answer does not lose the rest of it."""
    tokenizer = words_tokenizer(["\u05e9\u05dc\u05d5\u05dd", "who", "w1"])
    tokenizer.backend.normalizer = normalizers.BertNormalizer()
    task, _, inputs = made(TaskConfig("qa"), tokenizer)
    answer = "\u200f\u05e9\u05dc\u05d5\u05dd\u200f"
    (item,) = task.items([Example("x", f"w1 {answer} w1", "who", (Answer(answer, 3),))], inputs)
    assert item.label == [(4, 4)]


def test_an_answer_is_told_with_its_marks() -> None:
    tokenizer = words_tokenizer([KEY, "stop", "who"])
    tokenizer.backend.normalizer = normalizers.BertNormalizer()
    task, backbone = handmade(QA, tokenizer)
    (said,) = predict(task, backbone, tokenizer, [Example("x", f"stop {KEY}\u0301\u0323 stop", "who")])
    assert (said["answer"], said["start"], said["end"]) == (f"{KEY}\u0301\u0323", 5, 5 + len(KEY) + 2)


def test_answers_that_no_window_holds_are_known() -> None:
    tokenizer = words_tokenizer(["alpha", "w1", "who"])
    task, _, inputs = made(TaskConfig("qa"), tokenizer)
    text = " ".join(["w1"] * 10 + ["alpha"] * 40 + ["w1"] * 10)
    examples = [Example("x", text, "who", answers) for answers in ((Answer(text[30:-30], 30),), ())]
    assert [unheld(*each) for each in zip(task.items(examples, inputs), examples, strict=True)] == [True, False]


@pytest.mark.parametrize("size", [LONGEST, LONGEST + 1])
def test_answers_that_are_too_long_to_be_told_are_known(size: int) -> None:
    tokenizer = words_tokenizer(["alpha", "w1", "who"])
    task, _, inputs = made(TaskConfig("qa", length=60), tokenizer)
    answer = " ".join(["alpha"] * size)
    (item,) = task.items([Example("x", f"w1 {answer} w1", "who", (Answer(answer, 3),))], inputs)
    assert any(first for first, _ in item.label), "it can be learnt"
    assert untold(item) == (size > LONGEST)
