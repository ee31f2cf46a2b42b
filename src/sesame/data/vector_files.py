"""Files of static vectors: word2vec (text and binary), GloVe and fastText (.vec, .bin), plain or packed (.gz, .xz ...).

    word2vec text, fastText .vec    "N D", then N lines "word x1 ... xD"
    GloVe                           the lines alone
    word2vec binary                 "N D\n", then N times: word, space, D floats of 32 bits, perhaps a newline
    fastText .bin                   `fasttext_bin.py`

A file ending in .bin is binary, unless its first vector is written as text (gensim writes that by any name); .txt and .vec
are text; any other name is decided by looking. A word may hold spaces (GloVe 840B has ". . ."): numbers are counted from the
end of a line.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from sesame.data.fasttext_bin import MAGIC, read_fasttext
from sesame.data.letter_grams import Subwords
from sesame.data.streams import PACKED, byte_blocks, lines
from sesame.data.vectors import Matrix, Vectors
from sesame.errors import SesameError
from sesame.files import sweep, whole_file
from sesame.progress import bar, say

CHUNK = 8192  # vectors
LONGEST = 1 << 24  # letters of a line, bytes of a word
_HEADER = re.compile(rb"\s*([0-9]{1,12})[ \t]+([0-9]{1,7})[ \t\r]*\n")

_WIDE = re.compile(rb"(?:[^\0]\0){8}|(?:\0[^\0]){8}")  # UTF-16, which the reader of lines tells of
_ONE_WORD = re.compile(r"[^\0-\x08\n]+")
_SHIFTED = "no word may hold a space, and numbers have 32 bits: write the vectors as text"  # what else makes it so

Row = tuple[str, str, list[float] | Matrix]  # place, word, numbers


def read_vectors(path: str | Path, most: int | None = None, policy: str = "unk") -> Vectors:
    """The vectors of a file; `most`: only the first, which usually are the most frequent words."""
    path = Path(path)
    if not path.is_file():
        there = "is a folder; name a file in it" if path.is_dir() else "no such file; give a file of vectors"
        raise SesameError(f"{path}: {there} (.txt, .vec, .bin)")
    if most is not None and most < 1:
        raise SesameError(f"--most {most}: must be at least 1")
    with bar(f"read {path.name}", path.stat().st_size, "B") as shown:
        head = next(byte_blocks(path), b"")
        if head.startswith(MAGIC):
            words, matrix, subwords = read_fasttext(path, byte_blocks(path, shown.advance), most)
            return _distinct(path, words, matrix, policy, subwords)
        read = _binary if _is_binary(path, head) else _text
        if read is _text:
            _check_text(path, head)
        words, matrix = _collect(path, read(path, most, shown.advance), most)
    return _distinct(path, words, matrix, policy, None)


def write_vectors(vectors: Vectors, path: str | Path) -> None:
    """As word2vec text: the one that every tool reads. Nine digits, so that numbers come back as they were."""
    path = Path(path)
    for word in vectors.words:
        if not word or word != word.strip(" ") or re.search(r"[\n\r\0]", word):
            raise SesameError(
                f"{path}: the word {word!r} cannot be written on a line; leave out words of spaces and line ends"
            )
    sweep(path)
    with whole_file(path) as handle, bar(f"write {path.name}", len(vectors.words), "words") as shown:
        handle.write(f"{len(vectors.words)} {vectors.width}\n".encode())
        for word, row in zip(vectors.words, vectors.matrix, strict=True):
            numbers = " ".join([f"{value:.9g}" for value in row.tolist()])
            handle.write(f"{word} {numbers}\n".encode("utf-8", "replace"))
            shown.advance()


def _is_binary(path: Path, head: bytes) -> bool:
    name = path.with_suffix("") if path.suffix.lower() in PACKED else path
    header = _HEADER.match(head)
    if name.suffix.lower() in (".txt", ".vec"):
        if header is not None and any(byte < 9 for byte in head[header.end() : header.end() + 65536]):
            raise SesameError(f"{path}: is word2vec's binary format by its bytes and text by its name; name it .bin")
        return False
    if name.suffix.lower() == ".bin":
        if header is None:
            raise SesameError(f"{path}: does not begin as word2vec's or fastText's binary files do; copy it again")
        return not _is_written(head[header.end() :].partition(b"\n")[0], int(header[2]))
    if header is None:
        return False
    some = head[header.end() : header.end() + 65536]
    try:
        some.decode()
    except UnicodeDecodeError as error:
        if error.start < len(some) - 4:
            return True
    return any(byte < 9 for byte in some)


def _check_text(path: Path, head: bytes) -> None:
    """Vectors in other wrappings are sent the right way; GloVe's are published as archives."""
    if head.startswith(b"PK\x03\x04"):
        raise SesameError(f"{path}: is an archive; unpack it, and name a file in it")
    if b"\0" in head and not _WIDE.search(head[:64]):
        raise SesameError(
            f"{path}: is neither text nor word2vec's or fastText's binary; write the vectors as text, as gensim does by "
            "save_word2vec_format"
        )


def _is_written(line: bytes, width: int) -> bool:
    """Whether a line is a word and its vector as text: four bytes of a number may look like one with odd blanks before it."""
    parts = re.split(r"[ \t]+", line.decode("utf-8", "replace").strip(" \t\r"))
    return 0 < width < len(parts) and all(part.isprintable() and _is_number(part) for part in parts[-width:])


def _collect(path: Path, rows: Iterator[Row], most: int | None) -> tuple[list[str], Matrix]:
    words: list[str] = []
    chunks: list[Matrix] = []
    for place, word, numbers in rows:
        at = len(words) % CHUNK
        if at == 0:
            chunks.append(np.empty((CHUNK, len(numbers)), dtype=np.float32))
        with np.errstate(over="ignore"):
            chunks[-1][at] = numbers
        if not np.isfinite(chunks[-1][at]).all():
            raise SesameError(f"{place}: the vector of {word!r} holds a value that is no number; remove the line")
        words.append(word)
        if len(words) == most:
            break
    if not words:
        raise SesameError(f"{path}: holds no vectors; check the file")
    return words, np.concatenate(chunks)[: len(words)]


def _distinct(path: Path, words: list[str], matrix: Matrix, policy: str, subwords: Subwords | None) -> Vectors:
    """The first of equal words counts."""
    first = {word: row for row, word in reversed(list(enumerate(words)))}
    if len(first) < len(words):
        say(f"{path}: {len(words) - len(first):,} of {len(words):,} words stand there twice; the first counts")
        rows = sorted(first.values())
        words, matrix = [words[row] for row in rows], matrix[rows]
    return Vectors(tuple(words), matrix, policy, subwords)


# ---- text -----------------------------------------------------------------------------------------------------------


def _text(path: Path, most: int | None, progress: Callable[[int], None]) -> Iterator[Row]:
    width, promised, found = 0, None, 0
    for number, line, whole in lines(path, LONGEST, progress):
        place = f"{path}:{number}"
        if not whole:
            raise SesameError(f"{place}: is longer than any vector; check that the file holds vectors")
        line = line.strip(" \t")
        if number == 1 and (header := _HEADER.fullmatch(f"{line}\n".encode())):
            promised, width = int(header[1]), int(header[2])
            continue
        if not line.strip():
            raise SesameError(f"{place}: is empty; a line is a word and its numbers")
        if not width:
            width = _gaps(line)
            if width == 1 and _is_number(line.split()[0]):
                raise SesameError(
                    f"{place}: {line[:40]!r} is no vector, and does not say how many of which width there are"
                )
        yield place, *_numbers(place, line, width)
        found += 1
    if promised is not None and found < promised:
        raise SesameError(f"{path}: promises {promised:,} vectors and holds {found:,}; copy it again")
    if promised is not None and found > promised:
        say(f"{path}: promises {promised:,} vectors and holds {found:,}; all are taken")


def _numbers(place: str, line: str, width: int) -> tuple[str, list[float]]:
    if width < 1:
        raise SesameError(f"{place}: has no numbers; each line is a word and its vector, with spaces between")
    parts = line.rsplit(" ", width)
    if "\t" in line or "" in parts:  # columns may be aligned by several spaces
        parts = re.split(r"[ \t]+", line)
        parts = [" ".join(parts[:-width]), *parts[-width:]]
    if len(parts) != width + 1 or not parts[0].strip(" "):
        raise SesameError(f"{place}: has {_gaps(line)} numbers and not {width}; each line is a word and its vector")
    try:
        return parts[0].rstrip(" "), [float(part) for part in parts[1:]]
    except ValueError:
        wrong = next(part for part in parts[1:] if not _is_number(part))
        raise SesameError(
            f"{place}: {wrong[:40]!r} is no number; each line is a word and {width} numbers behind it"
        ) from None


def _gaps(line: str) -> int:
    return len(re.findall(r"[ \t]+", line))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# ---- word2vec binary ------------------------------------------------------------------------------------------------


def _binary(path: Path, most: int | None, progress: Callable[[int], None]) -> Iterator[Row]:
    blocks = byte_blocks(path, progress)
    held = next(blocks, b"")
    header = _HEADER.match(held)
    assert header is not None, "looked at before"
    promised, width = int(header[1]), int(header[2])
    if width < 1:
        raise SesameError(f"{path}: says that its vectors have no width; copy it again")
    at, size = header.end(), 4 * width
    for number in range(1, promised + 1):
        place = f"{path}, vector {number:,}"
        while (space := held.find(b" ", at)) < 0 or space + 1 + size > len(held):
            block = next(blocks, None)
            if block is None or (space < 0 and len(held) - at > LONGEST):
                raise SesameError(f"{place}: the file ends before the {promised:,} that it promises; copy it again")
            held, at = held[at:] + block, 0
        name = held[at:space].lstrip(b"\n")
        try:
            word = name.decode()
        except UnicodeDecodeError:
            raise SesameError(f"{place}: its word is not UTF-8; convert the file to UTF-8 text") from None
        if not word or not _ONE_WORD.fullmatch(word):
            raise SesameError(f"{place}: {word[:40]!r} is no word; {_SHIFTED}")
        yield place, word, np.frombuffer(held, dtype="<f4", count=width, offset=space + 1)
        at = space + 1 + size
    if held[at:].strip(b"\n") or any(block.strip(b"\n") for block in blocks):
        raise SesameError(f"{path}: goes on behind the {promised:,} vectors that it promises; {_SHIFTED}")
