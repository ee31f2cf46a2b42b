"""What `sesame doctor` says: the findings first, each with its remedy, then the figures.

A finding "hurts" when the training would run and silently be worse for it; everything else worth knowing is a "note".
"""

import json as jsonlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Literal

from rich.console import Console
from rich.markup import escape

from sesame.data.checkup import (
    LONG_SENTENCE,
    SPACELESS,
    Checked,
    Lengths,
    Merge,
    TextFigures,
    TokenizerFigures,
    check_text,
    check_tokenizer,
)
from sesame.data.readers import corpus_files, corpus_size
from sesame.data.sentences import split_sentences
from sesame.progress import bar
from sesame.text import Tokenizer

RARE = 1e-4  # damaged characters above this share hurt
HANDFUL = 5  # merged letters up to this number are names and quotations


@dataclass(frozen=True)
class Finding:
    level: Literal["hurts", "note"]
    what: str
    text: str  # one sentence, with the remedy


@dataclass(frozen=True)
class MaskedToken:
    """A token as the model sees it, and what stood there if it is asked for."""

    token: str
    original: str | None = None


def run_doctor(text: list[str], tokenizer: str | None, field: str, json: bool) -> int:
    """Examine, print, and give the exit code: 1 if something would hurt."""
    files = corpus_files(text)
    loaded = Tokenizer.load(tokenizer) if tokenizer is not None else None
    with bar("reading", corpus_size(files), "B") as shown:
        checked = check_text(files, field, shown.advance)
    examined = check_tokenizer(loaded, checked) if loaded is not None else None
    examples = masked_examples(loaded, checked) if loaded is not None else []
    findings = [*text_findings(checked.figures), *(tokenizer_findings(examined) if examined else [])]
    findings.sort(key=lambda finding: finding.level != "hurts")
    if json:
        report = {
            "findings": [asdict(finding) for finding in findings],
            "text": asdict(checked.figures),
            "tokenizer": asdict(examined) if examined else None,
            "masked_examples": [[asdict(token) for token in row] for row in examples],
        }
        print(jsonlib.dumps(report, ensure_ascii=False))
    else:
        _Report(Console(highlight=False, soft_wrap=True)).all(findings, checked.figures, examined, examples)
    return int(any(finding.level == "hurts" for finding in findings))


# ---- judging --------------------------------------------------------------------------------------------------------


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
            f"{sign.count:,} control characters, first at {sign.first}; remove them, for example with tr -d "
            r"'\001-\010\013\014\016-\037'",
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
        shown = ", ".join(_merge(merge) for merge in figures.merged[:6])
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


def _merge(merge: Merge) -> str:
    letters = [letter for letter in merge.letters if letter != merge.becomes]
    shown = " ".join(_visible(letter) for letter in letters[:5]) + (" …" if len(letters) > 5 else "")
    return f"{shown} → {merge.becomes or 'nothing'}"


def _visible(letter: str) -> str:
    """A mark alone sits on a dotted circle."""
    return letter if letter[0].isalpha() else f"◌{letter}"


# ---- what the model will see ----------------------------------------------------------------------------------------


def masked_examples(
    tokenizer: Tokenizer, checked: Checked, count: int = 5, longest: int = 48
) -> list[list[MaskedToken]]:
    """Sentences of the text, masked by the objective that trains; none if the tokenizer has no mask token."""
    if not all(tokenizer.has(role) for role in ("cls", "sep", "mask", "pad")):
        return []
    import numpy as np
    import torch

    from sesame import chance
    from sesame.data.batch import IGNORE, Batch
    from sesame.objectives.base import Vocab
    from sesame.objectives.mlm import MaskedLM, MaskedLMConfig, MaskedLMHead

    roles = tokenizer.ids()
    picked = tokenizer.encode_batch(_examples(checked.sample, count), literal=True)
    rows = [[roles["cls"], *found.ids[: longest - 2], roles["sep"]] for found in picked if found.ids]
    if not rows:
        return []
    width = max(map(len, rows))
    batch = Batch(
        ids=torch.tensor([row + [roles["pad"]] * (width - len(row)) for row in rows]),
        lengths=torch.tensor([len(row) for row in rows]),
        keys=torch.from_numpy(chance.keys(chance.key(0), np.arange(len(rows))).view(np.int64)),
    )
    size = len(tokenizer)
    masked = MaskedLM(MaskedLMConfig(), MaskedLMHead(1, 1, size, "gelu", 1e-12), Vocab(size, roles)).corrupt(batch)
    targets = masked.targets["mlm"]
    assert targets.at is not None
    shown = []
    for number, row in enumerate(rows):
        asked = zip(targets.at[number].tolist(), targets.labels[number].tolist(), strict=True)
        originals = {at: tokenizer.token(label) for at, label in asked if label != IGNORE}
        ids = masked.ids[number, : len(row)].tolist()
        shown.append([MaskedToken(tokenizer.token(id), originals.get(at)) for at, id in enumerate(ids)])
    return shown


def _examples(sample: list[str], count: int) -> list[str]:
    """A middling sentence from each of `count` documents, evenly spread; of a single document, several."""
    if len(sample) == 1:
        spread = [split_sentences(sample[0][:100_000])[number::count] for number in range(count)]
    else:
        chosen = min(count, len(sample))
        spread = [split_sentences(sample[number * len(sample) // chosen][:20_000]) for number in range(chosen)]
    found = []
    for sentences in spread:
        fitting = [sentence for sentence in sentences if 40 <= len(sentence) <= 200] or sentences
        if fitting:
            found.append(fitting[len(fitting) // 2])
    return list(dict.fromkeys(found))


# ---- the report -----------------------------------------------------------------------------------------------------


class _Report:
    def __init__(self, console: Console) -> None:
        self.console = console

    def all(
        self,
        findings: list[Finding],
        figures: TextFigures,
        tokenizer: TokenizerFigures | None,
        examples: list[list[MaskedToken]],
    ) -> None:
        if not findings:
            self.line("[green]nothing wrong was found[/]")
        for finding in findings:
            color = "red" if finding.level == "hurts" else "yellow"
            self.line(f"[{color}]{finding.level:5}[/]  {escape(finding.text)}")
        self.text(figures)
        if tokenizer is not None:
            self.tokenizer(tokenizer)
        if examples:
            self.title("as the model will see it: masked or replaced token‹what stood there›")
            for row in examples:
                self.line("  " + " ".join(map(_shown, row)))

    def line(self, text: str) -> None:
        self.console.print(text)

    def title(self, text: str) -> None:
        self.line(f"\n[bold]{escape(text)}[/]")

    def pair(self, name: str, value: str) -> None:
        self.line(f"  {name:20} {escape(value)}")

    def text(self, figures: TextFigures) -> None:
        self.title("text")
        self.pair("files", f"{figures.files:,}")
        self.pair("size", f"{figures.bytes / 1e6:,.2f} MB, {figures.characters:,} characters, {figures.words:,} words")
        self.pair("documents", f"{figures.documents:,}, {figures.paragraphs:,} paragraphs")
        self.pair("scripts", _shares(figures.scripts))
        self.pair("language", f"{figures.language or 'not recognized'} (a guess)")
        for name, sign in figures.signs.items():
            first = f", first at {sign.first}" if sign.first else ""
            self.pair(name.replace("_", " "), f"{sign.count:,}{first}")
        for name, repeats in (("paragraphs", figures.repeated_paragraphs), ("documents", figures.repeated_documents)):
            self.pair(f"repeated {name}", f"{repeats.count:,}, {repeats.share:.1%} of the characters")
            for times, head in repeats.examples:
                self.line(f"    {times:,} × {escape(_short(head, 90))}")
        self.lengths("documents", figures.document_lengths)
        sampled = (
            "" if figures.sampled_bytes > 0.99 * figures.bytes else f", sampled {figures.sampled_bytes / 1e6:.0f} MB"
        )
        self.lengths(f"sentences{sampled}", figures.sentence_lengths)

    def lengths(self, name: str, lengths: Lengths) -> None:
        self.title(f"{name}: {lengths.unit} in each")
        self.line(
            f"  min {lengths.min:,}   median {lengths.median:,}   90 % {lengths.p90:,}   99 % {lengths.p99:,}   "
            f"max {lengths.max:,}"
        )
        most = max((count for *_, count in lengths.histogram), default=1)
        for low, high, count in lengths.histogram:
            self.line(f"  {low:>9,} - {high:<9,} {count:>9,} [cyan]{'█' * -(-30 * count // max(1, most))}[/]")

    def tokenizer(self, figures: TokenizerFigures) -> None:
        self.title(f"tokenizer, on {figures.sampled_bytes / 1e6:.1f} MB of the text")
        self.pair("name", f"{figures.name}, {figures.pieces:,} pieces")
        self.pair("pieces per word", f"{figures.pieces_per_word:.2f}")
        for script, rate in list(figures.pieces_per_word_by_script.items())[:5]:
            self.pair(f"  {script}", f"{rate:.2f}" + (" per character" if script in SPACELESS else ""))
        self.pair("unknown tokens", f"{figures.unknown_share:.3%}")
        self.listed("  characters", (f"{char} {code} × {count:,}" for char, code, count in figures.unknown_characters))
        self.listed("  words", (f"{_short(word, 30)} × {count:,}" for word, count in figures.unknown_words))
        self.listed("merged letters", (f"{_merge(m)} × {m.lost:,}" for m in figures.merged[:12]))
        self.pair("changed words", f"{figures.changed_words:.2%} (beyond their case)")
        self.pair("unused pieces", f"{figures.unused:.1%}")
        if figures.most_split:
            self.title("common words in the most pieces")
        for word in figures.most_split:
            self.line(f"  {escape(word.word)} × {word.count:,}: {escape(' '.join(word.pieces))}")

    def listed(self, name: str, entries: Iterable[str]) -> None:
        if joined := ", ".join(entries):
            self.pair(name, joined)


def _shown(token: MaskedToken) -> str:
    if token.original is None:
        return escape(token.token)
    return f"[bold magenta]{escape(token.token)}[/][green]‹{escape(token.original)}›[/]"


def _shares(shares: dict[str, float]) -> str:
    shown = [f"{name} {share:.1%}" for name, share in shares.items() if share >= 0.0005]
    return ", ".join(shown) + (", and traces of others" if len(shown) < len(shares) else "") if shown else "no letters"


def _short(text: str, size: int) -> str:
    return text if len(text) <= size else text[: size - 1] + "…"
