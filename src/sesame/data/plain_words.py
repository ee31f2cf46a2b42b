"""Texts to words for static vectors: runs of letters and digits (with - and ' inside), and each other sign by itself.

A mark (vowels of Hindi and Thai, points of Hebrew, an accent by itself) belongs to what it stands on, and so do the joiners
inside of Persian words and emoji. To Python's `\\w` none of them is a letter.
"""

import re
import unicodedata

_JOINERS = "\u200c\u200d"
_FAR = "\U00010000-\U0010ffff"


def _marks(*places: range) -> str:
    return "".join(chr(place) for part in places for place in part if unicodedata.category(chr(place))[0] == "M")


_MARKS = _marks(range(0x300, 0x10000))
MARK = rf"(?:[{_MARKS}{_JOINERS}]|(?=[{_FAR}])[{_marks(range(0x10000, 0x20000), range(0xE0100, 0xE01F0))}])"
WORD = rf"\w+(?:[-'’]\w+|{MARK}\w*)*"
_ALL = re.compile(rf"{WORD}|[^\w\s](?:[{_JOINERS}]\S|{MARK})*")
_PLAIN = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s]")  # the same where nothing is a mark, and quicker
_MARKED = re.compile(rf"[{_MARKS}{_JOINERS}{_FAR}]")


def words_of(text: str) -> list[str]:
    return (_ALL if _MARKED.search(text) else _PLAIN).findall(text)
