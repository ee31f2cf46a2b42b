"""Judging the figures: what would silently hurt, and what is worth knowing.

A finding "hurts" when the training would run and be worse for it without a word; everything else is a "note".
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from sesame.doctor.scripts import SPACELESS
from sesame.doctor.text import LONG_SENTENCE, TextFigures
from sesame.doctor.tokenizer import Merge, TokenizerFigures

RARE = 1e-4  # damaged characters above this share hurt
HANDFUL = 5  # merged letters up to this number are names and quotations


@dataclass(frozen=True)
class Finding:
    level: Literal["hurts", "note"]
    what: str
    text: str  # one sentence, with the remedy


def text_findings(figures: TextFigures) -> Iterator[Finding]:
    for sentence in figures.unreadable:
        yield Finding("hurts", "unreadable", sentence)
    yield from _character_findings(figures)
    yield from _repeat_findings(figures)
    second = list(figures.scripts.items())[1:]
    if second and second[0][1] > 0.01:
        main = next(iter(figures.scripts))
        others = ", ".join(f"{script} {share:.1%}" for script, share in second if share > 0.01)
        yield Finding("note", "scripts", f"beside {main} the text holds {others}; make sure that this is meant")
    if figures.bytes < 1_000_000:
        yield Finding(
            "note",
            "small",
            f"the text has only {figures.bytes / 1e6:.2f} MB; go on from a trained model (--start), or add text",
        )
    whole = figures.documents - figures.cut_documents
    if figures.documents == 1 or (figures.cut_documents and whole <= figures.files):
        yield Finding(
            "note",
            "one_document",
            "the text is one document, and next-sentence prediction needs several; put a blank line between documents",
        )
    elif figures.one_sentence_documents > 0.5:
        yield Finding(
            "note",
            "one_sentence_documents",
            f"{figures.one_sentence_documents:.0%} of the documents are a single sentence, so next-sentence prediction "
            "has nothing to go by; put blank lines only between documents, or train without the nsp objective",
        )
    if figures.long_sentences > 0.05:
        unit = figures.sentence_lengths.unit
        yield Finding(
            "note",
            "long_sentences",
            f"{figures.long_sentences:.0%} of the text stands in sentences of more than {LONG_SENTENCE[unit]} {unit}; "
            "look for tables, lists, code or lost punctuation",
        )


# Half of them, U+0080 to U+009F, are two bytes in UTF-8, which tr cannot remove.
NO_CONTROL = r"perl -CSD -pe 's/[^\P{Cc}\t\n]//g'"


def _character_findings(figures: TextFigures) -> Iterator[Finding]:
    signs, size = figures.signs, max(1, figures.characters)

    def level(count: int, share: float) -> Literal["hurts", "note"]:
        return "hurts" if count > share * size else "note"

    if (sign := signs["replacement"]).count:
        yield Finding(
            level(sign.count, RARE),
            "replacement",
            f"{sign.count:,} replacement characters (U+FFFD), first at {sign.first}; letters were lost, "
            "so make the text anew from its source",
        )
    if (sign := signs["control"]).count:
        yield Finding(
            level(sign.count, RARE),
            "control",
            f"{sign.count:,} control characters, first at {sign.first}; remove them, for example with {NO_CONTROL}",
        )
    if (sign := signs["mojibake"]).count:
        yield Finding(
            "hurts" if sign.count > max(2, 1e-6 * size) else "note",
            "mojibake",
            f"{sign.count:,} places look like UTF-8 that was read as another encoding (Ã© for é, Ð¿ for п), first at "
            f"{sign.first}; convert the source again, or mend it with the ftfy package",
        )
    if (sign := signs["invisible"]).count:
        yield Finding(
            "note",
            "invisible",
            f"{sign.count:,} invisible characters (zero-width, soft hyphens, text direction), first at {sign.first}; "
            "they cut words in two, so remove them unless the script needs them",
        )
    for what, about, remedy in (
        (
            "not_nfc",
            "paragraphs hold letters in two parts (not NFC)",
            "bring the text to NFC, or use a tokenizer that does",
        ),
        ("html", "paragraphs hold HTML tags or entities", "strip the tags and decode the entities"),
    ):
        share = signs[what].count / max(1, figures.paragraphs)
        if signs[what].count > 2 and share > 0.0001:
            count, first = signs[what].count, signs[what].first
            yield Finding("note", what, f"{count:,} {about}, {share:.2%} of all, first at {first}; {remedy}")


def _repeat_findings(figures: TextFigures) -> Iterator[Finding]:
    for what, repeats in (("paragraphs", figures.repeated_paragraphs), ("documents", figures.repeated_documents)):
        if repeats.share > 0.2 or (repeats.count and repeats.share > 0.01):
            yield Finding(
                "hurts" if repeats.share > 0.2 else "note",
                f"repeated_{what}",
                f"{repeats.count:,} {what} are copies of earlier ones, {repeats.share:.1%} of the characters; "
                "keep one of each",
            )


def tokenizer_findings(figures: TokenizerFigures) -> Iterator[Finding]:
    if figures.missing_roles:
        missing = ", ".join(figures.missing_roles)
        yield Finding(
            "hurts",
            "missing_roles",
            f"{figures.name} has no {missing} token, which masked pre-training needs; choose or train another one",
        )
    if figures.unknown_share > 0:
        yield Finding(
            "hurts" if figures.unknown_share > 0.01 else "note",
            "unknown",
            f"{figures.unknown_share:.2%} of the tokens are unknown; train a tokenizer on this text",
        )
    lost = sum(merge.lost for merge in figures.merged)
    if lost:
        shown = ", ".join(shown_merge(merge) for merge in figures.merged[:6])
        yield Finding(
            "hurts" if lost > HANDFUL and figures.merged_share > 0.001 else "note",
            "merged_letters",
            f"different letters become one in {lost:,} places, {figures.merged_share:.2%} of all letters ({shown}); "
            "use a tokenizer that keeps accents (`sesame tokenizer` does)",
        )
    high = [
        f"{rate:.1f} pieces per {'character' if script in SPACELESS else 'word'} in {script}"
        for script, rate in figures.pieces_per_word_by_script.items()
        if rate > (1.5 if script in SPACELESS else 2.5)
    ]
    if high:
        yield Finding(
            "note", "fertility", f"words fall into many pieces: {', '.join(high)}; train a tokenizer on this text"
        )
    if figures.unused > 0.5 and figures.sampled_bytes > 1_000_000:
        yield Finding(
            "note",
            "unused",
            f"{figures.unused:.0%} of the vocabulary does not occur in {figures.sampled_bytes / 1e6:.1f} MB of text; "
            "a smaller one trained on this text saves memory and time",
        )


def shown_merge(merge: Merge) -> str:
    letters = [letter for letter in merge.letters if letter != merge.becomes]
    shown = " ".join(_visible(letter) for letter in letters[:5]) + (" …" if len(letters) > 5 else "")
    return f"{shown} → {merge.becomes or 'nothing'}"


def _visible(letter: str) -> str:
    """A mark alone sits on a dotted circle."""
    return letter if letter[0].isalpha() else f"◌{letter}"
