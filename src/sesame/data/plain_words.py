"""Texts to words for static vectors: runs of letters and digits (with - and ' inside), and each other sign by itself."""

import re

_WORD = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s]")


def words_of(text: str) -> list[str]:
    return _WORD.findall(text)
