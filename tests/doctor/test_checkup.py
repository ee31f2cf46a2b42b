"""Figures about a corpus and about a tokenizer on it."""

import gzip
import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sesame.doctor import repeats
from sesame.doctor import text as checkup
from sesame.doctor.scripts import script_of, script_shares
from sesame.doctor.text import Checked, check_text
from sesame.doctor.tokenizer import check_tokenizer, merged_letters
from sesame.errors import SesameError
from sesame.text import Tokenizer
from sesame.text.train import train_tokenizer

ENGLISH = [
    "The cat sat on the mat and looked at the moon. It was late in the evening.",
    "A dog came to the house of the cat, and that was the end of the peace for them.",
    "Nobody was in the garden with the birds. The rain had gone to the other side of the hill.",
]
RUSSIAN = "Мой ёж — это не зверь, а маленький злой йог. И в этой чаще он самый большой герой."


def write(path: Path, *documents: str) -> Path:
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


def check(path: Path, *documents: str) -> Checked:
    return check_text([write(path / "text.txt", *documents)])


def test_counts(tmp_path: Path) -> None:
    figures = check(tmp_path, "one two\nthree é", "four").figures
    assert (figures.files, figures.documents, figures.paragraphs, figures.words) == (1, 2, 3, 5)
    assert figures.characters == len("one two\nthree é\nfour")
    assert figures.bytes == figures.characters + 1


@pytest.mark.parametrize(
    ("sign", "text"),
    [
        ("replacement", "caf\ufffd and tea"),
        ("control", "a bell \x07 rings"),
        ("control", "a \x85 from Windows"),
        ("invisible", "zero\u200bwidth"),
        ("invisible", "to the \u202eright"),
        ("mojibake", "cafÃ© and tea"),
        ("mojibake", "itâ€™s late"),
        ("mojibake", "Ð¿Ñ€Ð¸Ð²ÐµÑ‚"),
        ("mojibake", "РїСЂРёРІРµС‚"),
        ("mojibake", "锟斤拷"),
        ("html", "a <b>bold</b> word"),
        ("html", "fish &amp; chips"),
        ("not_nfc", "cafe\u0301"),
    ],
)
def test_signs_with_their_place(tmp_path: Path, sign: str, text: str) -> None:
    signs = check(tmp_path, "fine\nfine", f"fine\n{text}\nfine", text, *ENGLISH).figures.signs
    assert signs[sign].count >= 2
    assert signs[sign].first == f"{tmp_path / 'text.txt'}:5"
    assert {name for name in signs if signs[name].count} == {sign}


@pytest.mark.parametrize(
    "text",
    [
        *ENGLISH,
        RUSSIAN,
        "Großer Spaß“, sagte Ñandú. «À Paris» ÊTRE – MANHÃ, São João",
        "Рівне, Київ і Ірпінь; СІЛЬ",
        "if a < b and b > c: AT&T <unk> R&D; x <y> z",
        "这是一个句子。我们都很好。",
    ],
)
def test_sound_text_has_no_signs(tmp_path: Path, text: str) -> None:
    assert not any(sign.count for sign in check(tmp_path, text).figures.signs.values())


def test_the_place_in_json_lines_is_the_line(tmp_path: Path) -> None:
    path = tmp_path / "text.jsonl"
    path.write_text(
        "".join(json.dumps({"body": text}) + "\n" for text in ("fine", "fine\nbad \ufffd")), encoding="utf-8"
    )
    assert check_text([path], "body").figures.signs["replacement"].first == f"{path}:2"


def test_a_broken_file_does_not_stop_the_others(tmp_path: Path) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_bytes("café au lait, s'il vous plaît".encode("latin-1"))
    cut = tmp_path / "cut.txt.gz"
    cut.write_bytes(gzip.compress(b"some text " * 1000)[:-20])
    figures = check_text([bad, write(tmp_path / "good.txt", *ENGLISH), cut]).figures
    assert figures.documents == 3
    assert [str(path) in message for path, message in zip((bad, cut), figures.unreadable, strict=True)] == [True, True]
    assert "iconv" in figures.unreadable[0]


def test_no_text_at_all_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SesameError, match=r"empty\.txt"):
        check_text([write(tmp_path / "empty.txt", "  ")])


def test_repeats(tmp_path: Path) -> None:
    spam = "Subscribe to our newsletter to get the best of the week!"
    texts = [f"{ENGLISH[0]} {number}\n{spam}\nYes." for number in range(10)] + ["The same small document, twice."] * 2
    figures = check(tmp_path, *texts).figures
    assert figures.repeated_paragraphs.count == 9
    assert figures.repeated_paragraphs.examples == [(10, spam)]
    assert 0.3 < figures.repeated_paragraphs.share < 0.5
    assert figures.repeated_documents.count == 1


def test_repeats_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "MOST_HASHES", 1000)
    found = repeats.Repeated()
    for number in range(20_000):
        found.add(f"paragraph {number % 10_000}")
    assert len(found.hashes) < 1000
    figures = found.figures()
    assert figures.count == pytest.approx(10_000, rel=0.2)
    assert figures.share == pytest.approx(0.5, abs=0.05)


def test_scripts_and_language(tmp_path: Path) -> None:
    assert script_of("ё") == "Cyrillic"
    assert script_of("Ａ") == "Latin"
    assert script_of("中") == "Han"
    assert script_of("ー") == "Katakana"
    assert script_of("ª") == "Other"
    assert script_shares({"a": 3, "я": 1, "5": 100}) == {"Latin": 0.75, "Cyrillic": 0.25}
    assert check(tmp_path, *ENGLISH).figures.language == "English"
    assert check(tmp_path, RUSSIAN).figures.language == "Russian"
    assert check(tmp_path, "这是一个句子。" * 9).figures.language == "Chinese"
    assert check(tmp_path, "12345 67890").figures.language is None


def test_lengths(tmp_path: Path) -> None:
    figures = check(tmp_path, *["One two. Three four five six." for _ in range(9)], "word " * 200).figures
    documents, sentences = figures.document_lengths, figures.sentence_lengths
    assert (documents.min, documents.median, documents.max, documents.unit) == (6, 6, 200, "words")
    assert documents.histogram[0] == (4, 7, 9)
    assert (sentences.min, sentences.max) == (2, 200)
    assert sum(count for *_, count in sentences.histogram) == 19
    assert figures.one_sentence_documents == pytest.approx(0.1)
    assert figures.long_sentences == pytest.approx(200 / 254)


def test_text_without_spaces_is_measured_in_characters(tmp_path: Path) -> None:
    lengths = check(tmp_path, "这是一个句子。我们都很好。").figures.sentence_lengths
    assert (lengths.unit, lengths.min, lengths.max) == ("characters", 6, 7)


def test_blocks_do_not_change_the_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [*ENGLISH, "bad \ufffd Ã© &amp;", RUSSIAN, "bad \x07"] * 5
    whole = check(tmp_path, *texts).figures
    monkeypatch.setattr(checkup, "BLOCK", 50)
    parts = check(tmp_path, *texts).figures
    assert parts.signs == whole.signs
    assert parts.scripts == whole.scripts


# ---- the tokenizer --------------------------------------------------------------------------------------------------


def uncased(extra: str = "") -> Tokenizer:
    """A word-piece tokenizer that strips accents, as BERT's uncased models do."""
    return train_tokenizer([*ENGLISH, extra] * 3, "wordpiece", 400, lowercase=True, strip_accents=True)


def test_letters_that_become_one() -> None:
    found = merged_letters(
        uncased(), {"й": 7, "Й": 1, "и": 9, "ё": 2, "e": 5, "E": 5, "é": 3, "n": 4, "中": 4, "ａ": 1, "a": 1}
    )
    assert [(merge.becomes, merge.letters, merge.lost) for merge in found] == [
        ("и", {"и": 9, "й": 8}, 8),
        ("e", {"e": 10, "é": 3}, 3),
    ]


def test_marks_that_are_dropped() -> None:
    (found,) = merged_letters(uncased(), {"\u0306": 4, "и": 9})
    assert (found.becomes, found.letters, found.lost) == ("", {"\u0306": 4}, 4)


def test_a_tokenizer_that_keeps_letters_merges_none() -> None:
    kept = train_tokenizer([RUSSIAN] * 3, "wordpiece", 200, lowercase=True)
    assert merged_letters(kept, {"й": 7, "Й": 1, "и": 9, "ё": 2, "е": 3, "é": 3, "e": 5}) == []


def test_tokenizer_figures(tmp_path: Path) -> None:
    checked = check(tmp_path, *ENGLISH, RUSSIAN, "☃ ☃ snow")
    figures = check_tokenizer(uncased(), checked)
    words = sum(len(part.split()) for part in checked.sample)
    assert figures.missing_roles == []
    assert figures.unknown_share > 0.1
    assert ("☃", "U+2603", 2) in figures.unknown_characters
    assert dict(figures.unknown_words)["☃"] == 2
    assert dict(figures.unknown_words)["не"] == 1  # the word alone, neither its space nor its neighbours
    assert 0 < figures.changed_words < len(RUSSIAN.split()) / words
    assert figures.pieces_per_word_by_script["Latin"] >= 1
    assert all(len(entry.pieces) > 1 for entry in figures.most_split)
    assert 0 < figures.unused < 1


def test_nothing_is_unknown_to_bytes(tmp_path: Path) -> None:
    bytewise = train_tokenizer(ENGLISH * 3, "bpe", 400)
    figures = check_tokenizer(bytewise, check(tmp_path, *ENGLISH, RUSSIAN))
    assert (figures.unknown_share, figures.unknown_characters, figures.merged) == (0, [], [])
    rates = figures.pieces_per_word_by_script
    assert list(rates) == ["Cyrillic", "Latin"]
    assert rates["Cyrillic"] > 2 * rates["Latin"]


def test_text_without_spaces_counts_pieces_per_character(tmp_path: Path) -> None:
    text = "这是一个句子，我们都很好。"
    own = train_tokenizer([text] * 3, "wordpiece", 100)
    figures = check_tokenizer(own, check(tmp_path, text))
    assert figures.pieces_per_word_by_script == {"Han": 1.0}
    assert figures.most_split == []


ODD = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=60)


@given(st.lists(ODD, min_size=1, max_size=5))
def test_odd_unicode_never_fails(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    path = tmp_path_factory.getbasetemp() / "odd.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in [*texts, "word"]), encoding="utf-8")
    checked = check_text([path])
    figures = check_tokenizer(TOKENIZER, checked)
    assert checked.figures.documents >= 1
    assert 0 <= figures.unknown_share <= 1
    assert sum(checked.characters.values()) == checked.figures.characters
    composed = all(unicodedata.is_normalized("NFC", text) for text in texts)
    assert checked.figures.signs["not_nfc"].count == 0 or not composed


TOKENIZER = uncased(RUSSIAN)
