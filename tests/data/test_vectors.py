"""Files of vectors come back as they were written; broken ones get one sentence; unknown words get what their policy says."""

import gzip
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from sesame.data.letter_grams import gram_hash, letter_grams
from sesame.data.vector_files import read_vectors, write_vectors
from sesame.data.vectors import POLICIES, Vectors, word_class
from sesame.errors import SesameError

LETTERS = st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="\ufeff \u2028\u2029\x85")
WORDS = st.lists(st.text(LETTERS, min_size=1, max_size=8), min_size=1, max_size=8, unique=True)
FLOATS = st.floats(-(2.0**100), 2.0**100, width=32)


@st.composite
def some_vectors(draw: st.DrawFn) -> Vectors:
    words = draw(WORDS)
    width = draw(st.integers(1, 5))
    return Vectors(tuple(words), draw(arrays.arrays(np.float32, (len(words), width), elements=FLOATS)))


def binary(vectors: Vectors, newline: bytes) -> bytes:
    rows = zip(vectors.words, vectors.matrix, strict=True)
    body = b"".join(word.encode() + b" " + row.astype("<f4").tobytes() + newline for word, row in rows)
    return f"{len(vectors.words)} {vectors.width}\n".encode() + body


@settings(max_examples=60, deadline=None)
@given(some_vectors())
def test_every_format_gives_back_what_was_written(tmp_path_factory: pytest.TempPathFactory, vectors: Vectors) -> None:
    folder = tmp_path_factory.mktemp("vectors")
    write_vectors(vectors, folder / "v.txt")
    text = (folder / "v.txt").read_bytes()
    (folder / "c.bin").write_bytes(binary(vectors, b"\n"))
    (folder / "gensim.bin").write_bytes(binary(vectors, b""))
    (folder / "fast.vec.gz").write_bytes(gzip.compress(text.replace(b"\n", b" \n")))
    names = ["v.txt", "c.bin", "gensim.bin", "fast.vec.gz"]
    if vectors.width > 1:  # "7 3" could be a header, and "-7 3" one that went wrong
        (folder / "glove.txt").write_bytes(text.partition(b"\n")[2])
        names.append("glove.txt")
    for name in names:
        found = read_vectors(folder / name)
        assert found.words == vectors.words, name
        assert found.matrix.dtype == np.float32
        assert np.array_equal(found.matrix, vectors.matrix), name


def test_four_bytes_that_look_like_a_written_number_are_bytes(tmp_path: Path) -> None:
    (tmp_path / "c.bin").write_bytes(b"1 1\n0 " + b" \x1d\r1" + b"\n")
    assert read_vectors(tmp_path / "c.bin").matrix[0, 0] == np.frombuffer(b" \x1d\r1", "<f4")[0]


def test_a_name_without_a_known_ending_is_decided_by_looking(tmp_path: Path) -> None:
    vectors = Vectors(("a", "b"), np.array([[0.25, -1.5], [3.0, 1e-3]], np.float32))
    (tmp_path / "one.model").write_bytes(binary(vectors, b"\n"))
    write_vectors(vectors, tmp_path / "two.model")
    for name in ("one.model", "two.model"):
        assert np.array_equal(read_vectors(tmp_path / name).matrix, vectors.matrix)


def test_text_in_a_file_called_bin_is_text(tmp_path: Path) -> None:
    vectors = Vectors(("a", "né"), np.array([[0.25, -1.5], [3.0, 1e-3]], np.float32))
    write_vectors(vectors, tmp_path / "gensim.bin")
    found = read_vectors(tmp_path / "gensim.bin")
    assert found.words == vectors.words
    assert np.array_equal(found.matrix, vectors.matrix)


def test_words_of_glove_may_hold_spaces(tmp_path: Path) -> None:
    (tmp_path / "g.txt").write_text("the 1 2\n. . . 3 4\nat name@x.y 5 6\n")
    found = read_vectors(tmp_path / "g.txt")
    assert found.words == ("the", ". . .", "at name@x.y")
    assert found.matrix.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert read_vectors(tmp_path / "g.txt", most=2).words == ("the", ". . .")


@pytest.mark.parametrize(
    "content",
    [
        "the  1 -2\nof   3  4\n",
        " the 1 -2\n of 3 4\n",
        "the  1.0 -2.0\nof   3.0  4.0\n",
        "2 2\nthe  1 -2\nof \t3  4\n",
        "the\t1\t-2\nof\t3\t4\n",
    ],
)
def test_columns_may_be_aligned(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.txt").write_text(content)
    found = read_vectors(tmp_path / "a.txt")
    assert found.words == ("the", "of")
    assert found.matrix.tolist() == [[1, -2], [3, 4]]


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("k.txt", b"the 1 2\n 3 4\n", ("k.txt:2", "1 numbers and not 2")),
        ("w.vec", b"1 1\nthe \0\0\0\0", ("w.vec", "name it .bin")),
        ("w.txt", b"2 2\nthe 1 2\na 1\n", ("w.txt:3", "1 numbers and not 2")),
        ("g.txt", b"the 1 2\na 1 2\nb 7\n", ("g.txt:3", "1 numbers and not 2")),
        ("n.txt", b"the 1 2\na 1 x2\n", ("n.txt:2", "'x2' is no number")),
        ("i.txt", b"the 1 2\na 1 nan\n", ("i.txt:2", "no number")),
        ("b.txt", b"the 1 2\n\na 1 2\n", ("b.txt:2", "empty")),
        ("t.txt", b"5 2\nthe 1 2\n", ("promises 5", "holds 1")),
        ("u.txt", b"the 1 2\n\xe9t\xe9 1 2\n", ("u.txt:2", "not UTF-8", "iconv")),
        ("e.txt", b"", ("no vectors",)),
        ("t.bin", b"2 2\na \0\0\0\0\0\0\0\0b \0\0\0", ("vector 2", "ends before the 2")),
        ("m.bin", b"1 1\na \0\0\0\0\nb \0\0\0\0\n", ("m.bin", "behind the 1 vectors")),
        ("s.bin", b"2 1\na b \0\0\0\0\nc \0\0\0\0\n", ("s.bin", "vector 2", "no word may hold a space")),
        ("d.bin", b"2 1\na " + bytes(8) + b"\nb " + bytes(8) + b"\n", ("d.bin", "vector 2", "32 bits")),
        ("l.txt", b"the\nof\n", ("l.txt:1", "has no numbers")),
        ("u.bin", b"1 1\n\xff\xfe \0\0\0\0", ("vector 1", "not UTF-8")),
        ("h.bin", b"hello", ("h.bin", "copy it again")),
        ("f.bin", struct.pack("<2i", 793712314, 12), ("f.bin", "ends in the middle")),
        ("o.bin", struct.pack("<2i", 793712314, 11), ("version 11", ".vec")),
        ("glove.zip", b"PK\x03\x04" + b"\0" * 26 + b"glove.txt a 1 2", ("is an archive; unpack it",)),
        (
            "v.npy",
            b"\x93NUMPY\x01\x00v\x00{'descr': '<f4'}" + b"\0" * 200,
            ("neither text nor", "save_word2vec_format"),
        ),
        ("v.txt", "a 1 2\nlong 3 4\n".encode("utf-16-le"), ("is not UTF-8", "iconv -f utf-16le")),
        ("v.txt", b"99999999999999 2\na 1 2\n", ("v.txt:1", "is no vector")),
        ("v.txt", b"-2 2\na 1 2\n", ("v.txt:1", "is no vector")),
    ],
)
def test_a_broken_file_gets_one_sentence(tmp_path: Path, name: str, content: bytes, parts: tuple[str, ...]) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SesameError) as told:
        read_vectors(tmp_path / name)
    for part in parts:
        assert part in str(told.value)
    assert "\n" not in str(told.value)


def test_words_that_stand_there_twice_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "d.txt").write_text("a 1 2\nb 3 4\na 5 6\n")
    found = read_vectors(tmp_path / "d.txt")
    assert (found.words, found.matrix.tolist()) == (("a", "b"), [[1, 2], [3, 4]])
    assert "1 of 3 words stand there twice" in capsys.readouterr().err


def test_what_no_line_can_hold_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(SesameError, match="cannot be written"):
        write_vectors(Vectors(("a\nb",), np.ones((1, 2), np.float32)), tmp_path / "v.txt")


# ---- fastText's .bin ------------------------------------------------------------------------------------------------


def fasttext_file(words: list[str], matrix: np.ndarray, buckets: int, least: int = 3, most: int = 4) -> bytes:
    """As fastText writes it, without the output layer, which nobody reads."""
    width = matrix.shape[1]
    head = struct.pack("<2i12id", 793712314, 12, width, 5, 5, 1, 5, 1, 2, 2, buckets, least, most, 100, 1e-4)
    dictionary = struct.pack("<3i2q", len(words), len(words), 0, 10, -1)
    entries = b"".join(word.encode() + b"\0" + struct.pack("<qb", 3, 0) for word in words)
    return head + dictionary + entries + struct.pack("<?2q", False, *matrix.shape) + matrix.astype("<f4").tobytes()


@pytest.mark.parametrize("seed", range(3))
def test_fasttext_words_are_the_mean_of_their_parts(tmp_path: Path, seed: int) -> None:
    words, buckets = ["</s>", "play", "лук"], 50
    matrix = np.random.default_rng(seed).normal(size=(3 + buckets, 4)).astype(np.float32)
    (tmp_path / "f.bin").write_bytes(fasttext_file(words, matrix, buckets))
    found = read_vectors(tmp_path / "f.bin", policy="letters")
    grams = ["<pl", "<pla", "pla", "play", "lay", "lay>", "ay>"]
    assert sorted(letter_grams("play", 3, 4)) == sorted(grams)
    rows = [1, *(3 + gram_hash(gram) % buckets for gram in grams)]
    np.testing.assert_allclose(found.vector("play"), matrix[rows].mean(0), rtol=1e-5)
    np.testing.assert_allclose(found.vector("</s>"), matrix[0])
    unknown = [3 + gram_hash(gram) % buckets for gram in letter_grams("плуг", 3, 4)]
    np.testing.assert_allclose(found.vector("плуг"), matrix[unknown].mean(0), rtol=1e-5)


def test_the_hash_is_fnv_1a_with_signed_bytes() -> None:
    assert gram_hash("") == 0x811C9DC5
    assert gram_hash("a") == 0xE40C292C  # the published test vectors of FNV-1a
    assert gram_hash("foobar") == 0xBF9CF968
    assert gram_hash("é") != _plain_fnv("é".encode())


def _plain_fnv(data: bytes) -> int:
    state = 0x811C9DC5
    for byte in data:
        state = (state ^ byte) * 0x01000193 & 0xFFFFFFFF
    return state


# ---- unknown words --------------------------------------------------------------------------------------------------


@pytest.fixture
def known() -> Vectors:
    words = ("play", "player", "1990", "42", ",", "NATO", "London", "Paris", "dog")
    return Vectors(words, np.random.default_rng(7).normal(size=(len(words), 6)).astype(np.float32))


@pytest.mark.parametrize("policy", POLICIES)
def test_known_words_have_their_own_vector(known: Vectors, policy: str) -> None:
    for row, word in enumerate(known.words):
        assert np.array_equal(known.vector(word, policy), known.matrix[row])
    assert np.array_equal(known.vector("Dog", policy), known.matrix[-1])
    assert known.vector("zzz", policy).shape == (6,)
    assert np.array_equal(replace(known, policy=policy).vector("zzz"), known.vector("zzz", policy))


def test_unk_is_the_files_own_or_the_mean(known: Vectors) -> None:
    np.testing.assert_allclose(known.vector("cat", "unk"), known.matrix.mean(0), rtol=1e-5)
    named = Vectors((*known.words[:-1], "<unk>"), known.matrix)
    assert np.array_equal(named.vector("cat", "unk"), known.matrix[-1])


def test_letters_find_words_that_are_spelled_alike(known: Vectors) -> None:
    made = known.vector("players", "letters")
    # "<players>" has 7 trigrams; it shares 3 (<pl pla lay) with "<play>", which has 4, and 5 with "<player>", which has 6
    weights = np.array([2 * 3 / 11, 2 * 5 / 13])
    expected = (weights[:, None] * known.matrix[:2]).sum(0) / weights.sum()
    np.testing.assert_allclose(made, expected, rtol=1e-5)
    assert np.array_equal(known.vector("xqz", "letters"), known.vector("xqz", "unk"))


def test_lookup_alone_takes_what_training_never_saw(known: Vectors) -> None:
    trained = {"play", "dog"}
    assert np.array_equal(known.vector("London", "lookup", trained), known.matrix[6])
    for policy in set(POLICIES) - {"lookup"}:
        assert not np.array_equal(known.vector("London", policy, trained), known.matrix[6]), policy
        assert np.array_equal(known.vector("dog", policy, trained), known.matrix[8])
    assert np.array_equal(known.vector("cat", "lookup", trained), known.vector("cat", "unk"))
    np.testing.assert_allclose(known.vector("player", "letters", trained), known.matrix[0], rtol=1e-6)


def test_random_vectors_are_the_words_own(known: Vectors) -> None:
    cat = known.vector("cat", "random")
    again = Vectors(known.words[::-1], known.matrix[::-1].copy()).vector("cat", "random")
    np.testing.assert_allclose(cat, again, rtol=1e-5)
    assert not np.array_equal(cat, known.vector("cats", "random"))
    many = known.table([f"w{number}" for number in range(2000)], "random")
    assert abs(many.mean()) < 0.03
    assert abs(many.std() / known.matrix.std() - 1) < 0.03


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("3,141.5", "number"), ("12", "number"), ("--", "punctuation"), ("€", "punctuation"), ("USA", "upper"),
        ("Москва", "capitalized"), ("I", "capitalized"), ("mp3", "other"), ("лук", "other"), ("", "punctuation"),
    ],
)  # fmt: skip
def test_classes(word: str, kind: str) -> None:
    assert word_class(word) == kind


def test_the_class_gives_the_mean_of_its_words(known: Vectors) -> None:
    rows = {"7": [2, 3], "!": [4], "EU": [5], "Rome": [6, 7], "cat": [0, 1, 8]}
    for word, of_class in rows.items():
        np.testing.assert_allclose(known.vector(word, "class"), known.matrix[of_class].mean(0), rtol=1e-5)


def test_an_unknown_policy_is_told(known: Vectors) -> None:
    with pytest.raises(SesameError, match="--unknown"):
        known.vector("cat", "guess")


def test_neighbors_are_those_of_the_greatest_cosine() -> None:
    matrix = np.array([[1, 0], [0.9, 0.1], [0, 2], [-1, 0]], np.float32)
    found = Vectors(("a", "b", "c", "d"), matrix).neighbors("a", 10)
    assert [word for word, _ in found] == ["b", "c", "d"]
    assert found[0][1] == pytest.approx(0.9 / np.hypot(0.9, 0.1))
    assert found[-1][1] == pytest.approx(-1.0)


def test_no_cosine_is_above_one() -> None:
    """Of equal vectors 32 bits may make 1.0000001."""
    rows = np.random.default_rng(0).normal(size=(50, 30)).astype(np.float32)
    words = tuple(f"{side}{number}" for side in "ab" for number in range(50))
    vectors = Vectors(words, np.concatenate([rows, 3 * rows]))
    near = [cosine for word in words[:50] for _, cosine in vectors.neighbors(word, 1)]
    assert max(near) == 1.0


def test_a_folder_is_no_file_of_vectors(tmp_path: Path) -> None:
    with pytest.raises(SesameError, match="is a folder; name a file in it"):
        read_vectors(tmp_path)
