"""Sentences without a model: English, Russian and Chinese, good enough for next-sentence prediction.

One regular expression finds every run of stops (. ! ? …, the wide ones, and those of Hindi, Urdu, Arabic, Amharic, Armenian,
Burmese and Khmer) with the quotes and brackets that close behind it; a few checks on the word before and the letter after
decide whether the run ends a sentence. A newline always does. What is unusual: the expression consumes what it looks at and
never backtracks, so the time is linear whatever the text is ("....." a million times, a word of a megabyte).

Full stops are the hard case. The word before one falls in one of these classes:
- it never ends a sentence (`Mr.`, `e.g.`, `ул.`);
- it ends one unless a number follows (`No. 5`, `Jan. 3`, `рис. 2`);
- it ends one only before a word that commonly opens sentences (`in the U.S. He`, but
  `the U.S. Army`; `в 1999 г. Он`, but `г. Москва`; a single capital: `А. С. Пушкин`);
- everything else ends a sentence unless a small letter follows.
"""

import re

_CLOSERS = r"\"'”’»)\]}）】」』》〉"
_OPENERS = "\"'“‘«„([{（【「『《〈—–-¿¡* "

# Nothing else is written with these, and no space need follow: Chinese and Japanese, Devanagari and its kin, Arabic and Urdu,
# Ethiopic, Burmese, Khmer, Armenian.
_WIDE = "。！？｡।॥؟۔።፧፨။។៕։"
STOPS = ".!?…" + _WIDE

# Possessive quantifiers (++, *+): a failed match is never retried from a shorter one. The set in front of the branches
# lets the engine skip to the next stop, and the look-behinds then ask which it was.
_STOP = re.compile(
    rf"[\n{STOPS}](?:"
    rf"(?<=[.!?…])[.!?…]*+(?:[{_CLOSERS}]++[.!?…]?+)?+(?P<gap>\s*+)"
    r"|(?<=\n)(?P<line>\s*+)"
    rf"|[{STOPS}]*+[{_CLOSERS}]*+(?P<wide>\s*+))"
)
_SPEECH = re.compile(r"[^\s。！？，；：、“”「」]{0,7}?(?:说|說|道|问|問|喊|叫|答|笑)")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NEVER = _words(
    "mr mrs ms messrs mme mlle dr drs prof rev revd hon gen col maj capt cpt lt lieut sgt cmdr adm gov sen rep pres "
    "supt st mt ft e.g i.e eg ie cf viz vs v approx ca c esp incl resp al "
    "т.е т.н т.к т.о т.ч т е к н о р с ул просп пер наб пл корп кв обл пос дер проф акад доц канд тов св напр см ср "
    "англ фр лат греч итал исп яп букв разг устар ок ред изд сост ген лейт"
)
_BEFORE_NUMBER = _words(
    "no nos vol vols fig figs p pp ch chap sec art eq nr op pt bk jan feb mar apr jun jul aug sep sept oct nov dec "
    "стр рис табл гл ст п пп д разд вып ч кн тт илл прим тел янв фев февр апр авг сент окт нояб дек"
)
# Only the next word tells.
_MAYBE = _words(
    "inc ltd co corp bros jr sr esq dept univ ave blvd rd a.m p.m b.c a.d b.c.e c.e ph.d m.d b.a m.a d.c "
    "г гг в вв э н.э им"
)
_STARTERS = _words(
    "the this that these those he she it they we you i his her its their our my your a an in on at by for from with "
    "as after before when while although though however if since there then but and so or yet now today later also "
    "both some many most all no not one two what who where why how during under over despite because according once "
    "он она оно они мы вы я ты это этот эта эти тот та те то так там тут здесь в во на по с со из за к ко у от до для "
    "при но и а или же если когда хотя потом затем однако после перед теперь сейчас его её ее их наш мой как что кто "
    "где until почему также все всё по-моему поэтому именно только уже ещё еще через без"
)
_LAST_WORD = 14  # characters: longer than any abbreviation above, and a bound on the work for each stop


def split_sentences(text: str) -> list[str]:
    """The sentences of `text` in order, without the white space around them; joined they hold all other characters."""
    return [text[start:end] for start, end in sentence_spans(text)]


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Where each sentence starts and ends in `text`: in order, not empty, no overlap, no white space at the ends."""
    spans: list[tuple[int, int]] = []
    start = len(text) - len(text.lstrip())
    for stop in _STOP.finditer(text, start):
        kind = stop.lastgroup
        first, follow = stop.span()
        if kind == "line":
            end = start + len(text[start:first].rstrip())
        else:
            end = stop.start(kind)  # type: ignore[arg-type]  # every alternative is named
            if not _ends(text, start, first, end, follow, kind == "wide"):
                continue
        if start < end:
            spans.append((start, end))
        start = follow
    end = start + len(text[start:].rstrip())
    if start < end:
        spans.append((start, end))
    return spans


def _ends(text: str, start: int, first: int, end: int, follow: int, wide: bool) -> bool:
    """Does the run of stops `text[first:end]` close the sentence that began at `start`? `follow` is what comes next."""
    if follow == len(text):
        return True
    after = text[follow]
    if wide:
        return not (text[end - 1] in '”’」』"' and _SPEECH.match(text, end))
    if follow == end:  # no white space behind: only Chinese goes on like this
        return after >= "\u2e80" and after not in "，；：、" and _strong(text[first:end])
    if "\n" in text[end:follow]:
        return True
    if after in _OPENERS:
        limit = min(len(text) - 1, follow + 8)
        while follow < limit and text[follow] in _OPENERS:
            follow += 1
        after = text[follow]
    if after.islower() or after in ",;:":
        return False
    return end - first > 1 or text[first] != "." or _full_stop_ends(text, start, first, follow)


def _strong(stops: str) -> bool:
    return "!" in stops or "?" in stops or "……" in stops


def _full_stop_ends(text: str, start: int, stop: int, follow: int) -> bool:
    """A lone full stop at `stop`, white space behind it, and a word (not a small letter) at `follow`."""
    word = text[max(start, stop - _LAST_WORD) : stop].rpartition(" ")[2].lstrip("\"'“‘«„([{—–-\u00a0")
    if len(word) > 8 or not word:
        return True
    if len(word) == 1 and word.isupper():  # an initial, or "so did I." and "plan B."
        return _starter(text, follow)
    small = word.lower()
    if small in _NEVER:
        return False
    if small in _BEFORE_NUMBER:
        return not text[follow].isdigit() and (len(small) > 2 or text[follow] not in "IVXLC")
    if small in ("т.д", "т.п"):
        return True
    if small in _MAYBE or ("." in word and _is_initialism(word)):
        return _starter(text, follow)
    # "1. First point": a number that opens the sentence is a label.
    return not (word.isdigit() and not text[start : stop - len(word)].strip(_OPENERS))


def _is_initialism(word: str) -> bool:
    """`U.S`, `U.S.S.R`, `p.m`: single letters with stops between."""
    return all(len(part) <= 1 for part in word.split("."))


def _starter(text: str, follow: int) -> bool:
    """Is the word at `follow` one that commonly opens a sentence?"""
    end = follow
    while end < len(text) and end < follow + 12 and (text[end].isalpha() or text[end] in "'’"):
        end += 1
    if end == follow + 1 and text[end : end + 1] == ".":  # a second initial
        return False
    return re.split("['’]", text[follow:end].lower())[0] in _STARTERS
