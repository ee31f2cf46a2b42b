"""Which scripts a text is written in, and a guess at its language."""

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence

SPACELESS = ("Han", "Hiragana", "Katakana", "Thai", "Lao", "Khmer", "Myanmar", "Tibetan")
SPACELESS_RUN = re.compile(
    "([\u0e00-\u0eff\u0f00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+)"
)

_SCRIPT_NAMES = (
    "Latin Cyrillic Greek Armenian Georgian Hebrew Arabic Syriac Thaana Ethiopic Devanagari Bengali Gurmukhi Gujarati "
    "Oriya Tamil Telugu Kannada Malayalam Sinhala Thai Lao Tibetan Myanmar Khmer Mongolian Cherokee Hangul Hiragana "
    "Katakana Bopomofo Han"
)
_SCRIPTS = frozenset(_SCRIPT_NAMES.split())


def script_of(letter: str) -> str:
    """Latin, Cyrillic, Han ... by the first word of the character's name."""
    words = unicodedata.name(letter, "").replace("KATAKANA-HIRAGANA", "KATAKANA").replace("CJK", "HAN").title().split()
    return next((word for word in words[:2] if word in _SCRIPTS), "Other")


def script_shares(characters: Mapping[str, int]) -> dict[str, float]:
    """The share of each script in the letters, the largest first."""
    counts: Counter[str] = Counter()
    for char, count in characters.items():
        if char.isalpha():
            counts[script_of(char)] += count
    total = max(1, counts.total())
    return {script: count / total for script, count in counts.most_common()}


_FUNCTION_WORDS = {
    "English": "the of and to in is that was for with",
    "German": "der die und das ist nicht ein zu den mit",
    "French": "le la les des et est une dans que pour",
    "Spanish": "el la los las y es una en que por",
    "Italian": "il che di la non è per una sono del",
    "Portuguese": "o a os que de não uma em para do",
    "Dutch": "de het een en van is dat niet op voor",
    "Polish": "nie się na jest że do to jak po przez",
    "Turkish": "ve bir bu için ile da de olarak çok daha",
    "Russian": "и в не на что с как это по из",
    "Ukrainian": "і в не на що з як це та до",
    "Bulgarian": "и на да се за от не това са като",
    "Arabic": "في من على أن إلى عن ما هذا التي لا",
    "Persian": "و در به از که این را با است می",
}
_ONE_LANGUAGE = {"Hangul": "Korean", "Greek": "Greek", "Hebrew": "Hebrew", "Thai": "Thai", "Georgian": "Georgian"}


def guess_language(sample: Sequence[str], scripts: Mapping[str, float]) -> str | None:
    """The language of most of the text by its script and its commonest words; None when nothing stands out."""
    if scripts.get("Hiragana", 0) + scripts.get("Katakana", 0) > 0.1:
        return "Japanese"
    main = next(iter(scripts), "")
    if main == "Han":
        return "Chinese"
    if main in _ONE_LANGUAGE:
        return _ONE_LANGUAGE[main]
    words: Counter[str] = Counter()
    for text in sample[:: max(1, len(sample) // 500)]:
        words.update(text[:2000].lower().split())
    shares = {name: sum(words[w] for w in known.split()) for name, known in _FUNCTION_WORDS.items()}
    best, second = sorted(shares, key=shares.__getitem__, reverse=True)[:2]
    return best if shares[best] > max(1.2 * shares[second], 0.05 * words.total(), 3) else None
