"""From files to lines of clean text: unpacking, decoding and every way in which a file can be broken.

Text is streamed in blocks of a megabyte, so memory does not depend on the size of a file. What can go wrong with a
stranger's file (cut off, binary, another encoding) becomes one sentence that names the place and the remedy.
"""

import bz2
import codecs
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

from sesame.errors import SesameError

PACKED = (".gz", ".xz", ".zst", ".bz2")
BLOCK = 1 << 20
LONGEST_LINE = 1 << 28  # of a table
_LONE = re.compile("\r(?!\n)")  # the decoder never parts "\r\n"
_CONTROL = frozenset(range(32)) - frozenset(b"\t\n\v\f\r\x1b")

Progress = Callable[[int], None]


def lines(
    path: Path, limit: int, progress: Progress | None = None, returns: bool = False
) -> Iterator[tuple[int, str, bool]]:
    """Give (line number from 1, line, whole) for each line of a text file.

    A line longer than about `limit` characters comes in parts, cut at white space where there is some; `whole` is False
    for all but the last of them. With `returns` a line that ends in "\\r\\n" keeps its "\\r".
    """
    number, held, size = 1, [""], 0
    for block in text_blocks(path, progress, returns):
        head, newline, rest = block.partition("\n")
        held.append(head)
        size += len(head)
        if newline:
            yield number, "".join(held), True
            number += 1
            *full, last = rest.split("\n")
            for line in full:
                yield number, line, True
                number += 1
            held, size = [last], len(last)
        if size >= limit:
            part = "".join(held)
            cut = part.rfind(" ", len(part) // 2) + 1 or len(part)
            yield number, part[:cut], False
            held, size = [part[cut:]], len(part) - cut
    last = "".join(held)
    if last:
        yield number, last, True


def whole_lines(path: Path, returns: bool = False) -> Iterator[tuple[int, str]]:
    """The lines of a table, each with a row on it."""
    for number, line, whole in lines(path, LONGEST_LINE, returns=returns):
        if not whole:
            raise SesameError(f"{path}:{number}: the line is too long; put each row on a line of its own")
        yield number, line


def text_blocks(path: Path, progress: Progress | None = None, returns: bool = False) -> Iterator[str]:
    """Decode UTF-8 in blocks: no byte-order mark, every newline is "\\n", or with `returns` stays "\\r\\n" where it was."""
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8-sig")(), translate=not returns)
    line, first = 1, True
    for data in byte_blocks(path, progress):
        if first or b"\0" in data:
            _check_is_text(path, data, line)
        first = False
        try:
            text = decoder.decode(data)
        except UnicodeDecodeError as error:
            raise _not_utf8(path, line, error) from None
        text = _LONE.sub("\n", text) if returns else text
        line += text.count("\n")
        yield text
    try:
        text = decoder.decode(b"", final=True)
        yield _LONE.sub("\n", text) if returns else text
    except UnicodeDecodeError:
        raise SesameError(f"{path}:{line}: the file ends in the middle of a character; copy it again") from None


def byte_blocks(path: Path, progress: Progress | None = None) -> Iterator[bytes]:
    """The unpacked bytes of a file; `progress` is told how many bytes on disk were used up since the last call."""
    suffix = path.suffix.lower()
    try:
        with path.open("rb") as raw:
            seen = 0
            for block in _unpack(raw, suffix):
                now = raw.tell()
                if progress and now > seen:
                    progress(now - seen)
                seen = now
                yield block
    except EOFError:
        raise SesameError(f"{path}: ends in the middle; copy it again") from None
    except (lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
        raise _not_packed(path, suffix, error) from error
    except OSError as error:
        if error.errno is None:  # bz2 has no error of its own
            raise _not_packed(path, suffix, error) from error
        raise SesameError(f"{path}: cannot be read ({error.strerror}); check the file and its permissions") from error


def _unpack(raw: BinaryIO, suffix: str) -> Iterator[bytes]:
    if suffix == ".zst":
        yield from _unzstd(raw)
        return
    if suffix in (".xz", ".bz2"):
        yield from _members(raw, lzma.LZMADecompressor if suffix == ".xz" else bz2.BZ2Decompressor)
        return
    with gzip.open(raw) if suffix == ".gz" else nullcontext(raw) as stream:
        while block := stream.read(BLOCK):
            yield block


def _members(raw: BinaryIO, unpacker: Callable[[], Any]) -> Iterator[bytes]:
    """Member by member, because the library's own readers take damage at the start of a later one, and the zeros that may
    stand between two of them, for the end of the file: all behind it would be missing in silence."""
    member, data = None, b""
    while data := data or raw.read(1 << 17):
        if member is None:
            data = data.lstrip(b"\0")
            if not data:
                continue
            member = unpacker()
        block = member.decompress(data, BLOCK)
        while block:
            yield block
            block = b"" if member.eof or member.needs_input else member.decompress(b"", BLOCK)
        data = member.unused_data if member.eof else b""
        member = None if member.eof else member
    if member is not None:
        raise EOFError


def _unzstd(raw: BinaryIO) -> Iterator[bytes]:
    """Frame by frame, because the library's own reader takes a cut-off file for a whole one."""
    try:
        import zstandard
    except ImportError:
        raise SesameError(f"{raw.name}: reading .zst files needs a package; pip install zstandard") from None
    frames = zstandard.ZstdDecompressor(max_window_size=1 << 31)
    frame, data = None, b""
    try:
        while data := data or raw.read(1 << 17):
            frame = frame or frames.decompressobj()
            block = frame.decompress(data)  # text that repeats itself may be a thousand times as long
            yield from (block[start : start + BLOCK] for start in range(0, len(block), BLOCK))
            data = frame.unused_data if frame.eof else b""
            frame = None if frame.eof else frame
    except zstandard.ZstdError as error:
        raise _not_packed(Path(raw.name), ".zst", error) from error
    if frame is not None:
        raise EOFError


def _not_packed(path: Path, suffix: str, error: Exception) -> SesameError:
    return SesameError(f"{path}: is damaged or not a {suffix} file ({error}); copy it again or mend its name")


def _check_is_text(path: Path, data: bytes, line: int) -> None:
    """Called on the first block, and on every block that holds a NUL."""
    guess = _guess(data[:65536])
    if guess is not None and guess.startswith("utf-"):
        raise _recode(path, guess, "is not UTF-8")
    control = sum(data[:65536].count(byte) for byte in _CONTROL)
    if control > 0.02 * min(len(data), 65536):
        raise SesameError(f"{path}: is a binary file, not text; give plain text, .jsonl or .parquet")
    if b"\0" in data:
        line += _newlines(data[: data.index(b"\0")])
        raise SesameError(f"{path}:{line}: holds a NUL byte; remove it, for example with tr -d '\\000'")


def _newlines(data: bytes) -> int:
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").count(b"\n")


def _not_utf8(path: Path, line: int, error: UnicodeDecodeError) -> SesameError:
    line += _newlines(error.object[: error.start])
    around = error.object[max(0, error.start - 2000) : error.start + 30_000]
    return _recode(path, _guess(around) or "latin-1", f"is not UTF-8 (byte 0x{error.object[error.start]:02x})", line)


def _recode(path: Path, guess: str, what: str, line: int | None = None) -> SesameError:
    place = path if line is None else f"{path}:{line}"
    name = path.with_suffix("") if path.suffix.lower() in PACKED else path
    new = f"new{name.suffix or '.txt'}"  # the ending says how a file is read: a table must stay one
    return SesameError(f"{place}: {what}; convert it, for example with iconv -f {guess} -t utf-8 {name.name} > {new}")


def _guess(data: bytes) -> str | None:
    """A cheap guess at an encoding that is not UTF-8, from where the bytes above 127 lie; None without such bytes."""
    if data.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):  # the first of them begins as that of UTF-16 does
        return "utf-32"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    even, odd = data[::2].count(0), data[1::2].count(0)
    if max(even, odd) > len(data) / 8 and min(even, odd) < max(even, odd) / 8:
        return "utf-16le" if odd > even else "utf-16be"
    high = [byte for byte in data if byte > 127]
    if not high:
        return None
    letters = sum(byte >= 0xC0 for byte in high)
    joined = sum(a > 127 and b > 127 for a, b in pairwise(data))
    if joined < len(high) / 3:  # single letters with accents between plain ones
        return "cp1252" if any(0x80 <= byte < 0xA0 for byte in high) else "latin-1"
    if letters > 0.85 * len(high):  # Cyrillic: the two encodings differ in where the small letters lie
        return "cp1251" if sum(byte >= 0xE0 for byte in high) > letters / 2 else "koi8-r"
    return "gb18030"
