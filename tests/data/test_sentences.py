"""Sentence splitting: sentences labelled by hand, properties on any text, and time that stays linear.

In each text below "|" marks where a sentence ends; the texts were written for this test.
"""

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sesame.data.sentences import sentence_spans, split_sentences

ENGLISH = """
The ferry left at noon.| Nobody waved.| The gulls followed it anyway.
Dr. Hale met Mrs. Orton on Elm St. near the mill.| They talked about rain.
Prices rose by 3.5 percent, i.e. far more than anyone had planned.| What now?| Wait.
She bought pens, ink, etc. and went home.| The shop closed at 5 p.m. on Fridays.
He grew up in the U.S. Army barracks.| Later he moved to the U.K.| He never came back.
"Stop!" he cried.| "Why?" she asked.| Nobody moved.
Have you read J. R. Marlowe?| I have not... but I will.| Soon!
The bridge (built in 1911.) still stands.| It was repaired twice.
See Fig. 3 and pp. 12-14 for details.| The rest is in vol. 2 of the report.
Really?!| You must be joking!!!| No.
He said, "I am tired."| Then he slept.
It was founded by Lime & Sons Inc. in 1870.| The heirs sold it.
My brother lives in Washington, D.C.| He is a baker.| So am I.| The ovens are old.
Temperatures fell to -4.2 degrees.| On Jan. 5 the lake froze.
Smith vs. Jones was settled.| Gen. Ward, Lt. Pike and Prof. Lamb testified.
1. Open the box.| 2. Remove the lid.
The file is at example.com/a.html today.| Version 2.0.1 is out.
"""

RUSSIAN = """
Пароход ушёл в полдень.| Никто не махал.| Чайки летели следом.
А. С. Пушкин жил на ул. Садовой, в доме им. Гоголя.| Дом снесли.
В 1999 г. Москва выглядела иначе.| Он помнил это.
Цены выросли на 3.5 процента, т.е. больше, чем ждали.| Что теперь?| Ждать.
— Привет! — сказал он.| — Ты откуда? — спросила она.| Он молчал.
«Стой!» — крикнул часовой.| Никто не остановился.
Она купила хлеб, соль и т. д.| Потом ушла домой.
Мы ждали... но поезд не пришёл.| Жаль!
Город основан в XVII в. до н. э. как крепость.| Позже его забыли.
См. рис. 3 и табл. 2 на стр. 14.| Остальное ясно.
Неужели?!| Не может быть!!!| Нет.
Завод выпустил 5 тыс. машин за год.| План перевыполнен.
Письмо подписал проф. В. И. Крылов.| Ответа не было.
Он сказал: «Я устал».| Потом уснул.
Живёт она в г. Туле.| Работает в школе.
Снег шёл весь день…| К вечеру стихло.
В книге 320 стр. текста и 12 илл. автора.| Тираж мал.
Поезд отходит в 7.30 утра.| Не опоздай!
Хлеб отдали им.| Они ушли.| Вёз соль, муку и т.д.| Всё пропало.
"""

CHINESE = """
船中午离开了。|没有人挥手。|海鸥跟在后面。
你去哪里？|我回家！|好的。
他说：“今天很冷。”|然后关上了门。
“你是谁？”她问道。|没有人回答。
“快跑！”小王喊道。|大家都跑了。
价格上涨了3.5%，比预想的多。|怎么办？
他想了很久……|最后还是走了。
真的吗？！|不可能！！|算了。
北京、上海；广州和深圳都下雨了。|明天会晴。
这本书（一九八〇年出版。）很有名。|我没有读过。
「我累了。」|他睡着了。
公司成立于1998年。|总部在南京。
走吧!|我们迟到了。|快点?|好。
雨停了。 |天晴了。
老师问：“谁会？”|全班安静。
你好！|我叫小李，今年八岁。|你呢？
山上有树，树下有人；人在看书。|书很旧。
"""

OTHERS = """
यह एक वाक्य है।| यह दूसरा है।|दिल्ली बड़ी है॥| क्यों?| हाँ!
یہ ایک جملہ ہے۔| کیا یہ ٹھیک ہے؟| جی ہاں۔
هذا سؤال؟| نعم.| هذا جواب.
ይህ ዓረፍተ ነገር ነው።| ይህስ፧| አዎ።
ဒါက စာကြောင်းပါ။| နောက်တစ်ကြောင်း။
នេះជាប្រយោគ។| មួយទៀត៕
Սա նախադասություն է։| Իսկ սա՝ երկրորդը։
"""


def labelled(block: str) -> list[tuple[str, set[int]]]:
    """Each paragraph with the places, counted in characters that are not white space, where its sentences end."""
    cases = []
    for line in block.strip().splitlines():
        ends, count = set(), 0
        for part in line.split("|"):
            count += len("".join(part.split()))
            ends.add(count)
        cases.append((line.replace("|", ""), ends))
    return cases


def found(text: str) -> set[int]:
    ends, count = set(), 0
    for sentence in split_sentences(text):
        count += len("".join(sentence.split()))
        ends.add(count)
    return ends


@pytest.mark.parametrize("block", [ENGLISH, RUSSIAN, CHINESE], ids=["en", "ru", "zh"])
def test_boundaries_equal_those_set_by_hand(block: str) -> None:
    cases = labelled(block)
    wanted = sum(len(ends) for _, ends in cases)
    wrong = [(text, split_sentences(text)) for text, ends in cases if found(text) != ends]
    errors = sum(len(ends ^ found(text)) for text, ends in cases)
    assert wanted >= 33
    assert errors <= 0.05 * wanted, wrong


def test_scripts_with_stops_of_their_own_have_sentences() -> None:
    for text, ends in labelled(OTHERS):
        assert found(text) == ends, text


def test_newline_always_ends_a_sentence() -> None:
    assert split_sentences("one\ntwo, Mr.\nthree. \n\n  four ") == ["one", "two, Mr.", "three.", "four"]


def test_nothing_gives_nothing() -> None:
    assert split_sentences("") == split_sentences(" \n\t ") == []


PIECES = [
    "Mr.",
    "т.е.",
    "A.",
    "3.5",
    "…",
    "?!",
    ".",
    "。",
    "”",
    "»",
    ")",
    "(",
    "“",
    "«",
    "—",
    " ",
    "  ",
    "\n",
    "\r",
    "\u3000",
]


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=6))).map("".join))
def test_spans_hold_everything_but_white_space(text: str) -> None:
    spans = sentence_spans(text)
    last = 0
    for start, end in spans:
        assert last <= start < end
        assert not text[last:start].strip()
        assert text[start:end] == text[start:end].strip()
        last = end
    assert not text[last:].strip()
    assert split_sentences(text) == [text[start:end] for start, end in spans]
    assert all("\n" not in sentence for sentence in split_sentences(text))


HARD = [
    ".",
    ". ",
    '."',
    "A. ",
    "1. ",
    "a",
    " ",
    "\n",
    ". (",
    "。",
    "。”",
    "..”",
    "Mr. ",
    "a.b ",
    "?! x ",
    ". a",
    "(",
    "x\n",
    "……中",
]


@pytest.mark.slow
@pytest.mark.parametrize("unit", HARD)
def test_time_is_linear(unit: str) -> None:
    started = time.process_time()
    sentence_spans(unit * (400_000 // len(unit)))
    sentence_spans(". " + unit * (400_000 // len(unit)))
    assert time.process_time() - started < 5  # quadratic would be hours


def test_any_mix_of_hard_pieces_is_linear() -> None:
    rng = random.Random(0)
    text = "".join(rng.choices(PIECES + HARD, k=100_000))
    started = time.process_time()
    sentence_spans(text)
    assert time.process_time() - started < 5
