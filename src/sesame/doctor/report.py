"""What `sesame doctor` prints: the findings first, each with its remedy, then the figures."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from sesame.doctor.findings import Finding, shown_merge
from sesame.doctor.scripts import SPACELESS
from sesame.doctor.text import Lengths, TextFigures
from sesame.doctor.tokenizer import TokenizerFigures

if TYPE_CHECKING:
    from sesame.doctor.masked import MaskedToken


class Report:
    def __init__(self, console: Console) -> None:
        self.console = console

    def all(
        self,
        findings: list[Finding],
        figures: TextFigures,
        tokenizer: TokenizerFigures | None,
        examples: "list[list[MaskedToken]]",
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
        self.listed("merged letters", (f"{shown_merge(m)} × {m.lost:,}" for m in figures.merged[:12]))
        self.pair("changed words", f"{figures.changed_words:.2%} (beyond their case)")
        self.pair("unused pieces", f"{figures.unused:.1%}")
        if figures.most_split:
            self.title("common words in the most pieces")
        for word in figures.most_split:
            self.line(f"  {escape(word.word)} × {word.count:,}: {escape(' '.join(word.pieces))}")

    def listed(self, name: str, entries: Iterable[str]) -> None:
        if joined := ", ".join(entries):
            self.pair(name, joined)


def _shown(token: "MaskedToken") -> str:
    if token.original is None:
        return escape(token.token)
    return f"[bold magenta]{escape(token.token)}[/][green]‹{escape(token.original)}›[/]"


def _shares(shares: dict[str, float]) -> str:
    shown = [f"{name} {share:.1%}" for name, share in shares.items() if share >= 0.0005]
    return ", ".join(shown) + (", and traces of others" if len(shown) < len(shares) else "") if shown else "no letters"


def _short(text: str, size: int) -> str:
    return text if len(text) <= size else text[: size - 1] + "…"
