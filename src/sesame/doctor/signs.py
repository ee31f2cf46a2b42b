"""Signs that something is wrong with the characters of a text: which there are, and where each stands first."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sesame.data.corpus_files import file_kind
from sesame.data.readers import Document

# UTF-8 that was read as another encoding. A set in front lets the engine skip to the next candidate; where a pair could
# be an accident (capital Ð or Р before a quote), several in a row are asked for.
_CP1252 = "\u0080-\u00bf€‚ƒ„…†‡ˆ‰Š‹Œ‘’“”•–—˜™š›œžŸŽ"
_CP1251 = "\u00a0-\u00bfЂЃ‚ѓ„…†‡€‰Љ‹ЊЌЋЏђ‘’“”•–—™љ›њќћџЎўЈҐЁЄЇІіґё№єјЅѕї"
SIGNS = {
    "replacement": re.compile("\ufffd"),
    "control": re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"),
    "invisible": re.compile("[\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]"),
    "mojibake": re.compile(
        "[ÃÂÐÑâïРС锟](?:"
        "(?<=Ã)[\u0080-\u009f\u00a1-\u00aa\u00ac-\u00ba\u00bc-\u00bf€ƒ†‡ˆ‰Š‹ŒŽ•˜™š›œžŸ]"
        "|(?<=Â)[\u00a0-\u00aa\u00ac-\u00ba\u00bc-\u00bf]"
        f"|(?<=[ÐÑ])[{_CP1252}][ÐÑ][{_CP1252}]"
        f"|(?<=[РС])[{_CP1251}](?:[РС][{_CP1251}]){{2}}"
        f"|(?<=â)€[{_CP1252}]|(?<=ï)(?:¿½|»¿)|(?<=锟)斤拷)"
    ),
    "html": re.compile(
        r"</?(?:p|br|div|span|a|b|i|u|em|strong|ul|ol|li|table|tr|td|th|h[1-6]|img|script|style|sup|sub|ref|font|code|pre"
        r"|blockquote|center|html|body|head|meta|link|section|article|form|input)(?:\s[^<>]{0,300})?/?>"
        r"|&(?:amp|lt|gt|quot|apos|nbsp|[lr]aquo|[mn]dash|hellip|[lr]squo|[lr]dquo|#\d{2,6}|#x[0-9a-f]{2,5});",
        re.IGNORECASE,
    ),
}
COUNTED = ("replacement", "control", "invisible")  # by the histogram; the others by a search


@dataclass
class Sign:
    """How often something suspicious stands in the text, and where first ("file:line")."""

    count: int = 0
    first: str | None = None


@cache
def code_points(name: str) -> list[int]:
    """The code points that count as this sign."""
    return [code for code in range(0x10000) if not 0xD800 <= code < 0xE000 and SIGNS[name].match(chr(code))]


def first_place(document: Document, pattern: re.Pattern[str]) -> str | None:
    found = pattern.search(document.text)
    return line_of(document, document.text.count("\n", 0, found.start())) if found else None


def line_of(document: Document, paragraph: int) -> str:
    """A paragraph of a text file is a line; in the other formats the whole document is one."""
    inside = paragraph if file_kind(Path(document.file)) == "text" else 0
    return f"{document.file}:{document.line + inside}"
