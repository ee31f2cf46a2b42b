"""What a word is to static vectors, in other scripts than Latin too."""

import pytest

from sesame.data.plain_words import words_of


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Don't e-mail -x- a.b", ["Don't", "e-mail", "-", "x", "-", "a", ".", "b"]),
        ("हिन्दी में, शब्द", ["हिन्दी", "में", ",", "शब्द"]),
        ("ที่นี่ดี", ["ที่นี่ดี"]),
        ("cafe\u0301-noir", ["cafe\u0301-noir"]),
        ("שָׁלוֹם!", ["שָׁלוֹם", "!"]),
        ("می\u200cخواهم", ["می\u200cخواهم"]),
        ("\U00011013\U00011038x", ["\U00011013\U00011038x"]),  # Brahmi, beyond 16 bits
        ("❤\ufe0f👨\u200d👩!", ["❤\ufe0f", "👨\u200d👩", "!"]),
        ("\u0301 a", ["\u0301", "a"]),
    ],
)
def test_marks_belong_to_what_they_stand_on(text: str, wanted: list[str]) -> None:
    assert words_of(text) == wanted
