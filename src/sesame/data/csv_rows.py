"""The rows of a CSV, whatever parts its cells.

What is unusual:
- a cell in quotes may run over lines, so one stray quote can swallow the rest of a file. A cell that runs over more than
  2,000 lines or a million characters is an error that names the line where it *started*, and so is text behind a closing
  quote, which other readers glue together in silence;
- a file may begin with Excel's own "sep=;", which names the separator and is no row; else it is guessed.
"""

import csv
import re
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path

from sesame.data.streams import LONGEST_LINE, whole_lines
from sesame.errors import SesameError

Known = Callable[[str], bool]
CELL_LINES = 2_000  # more than any letter
CELL_CHARACTERS = 1_000_000
_SAMPLE = 50  # lines that the delimiter is guessed from
_EXCEL = re.compile(r'"?sep=([,;|\t])"?', re.IGNORECASE)


def csv_rows(path: Path, known: Known) -> Iterator[tuple[int, list[str]]]:
    """Rows with the lines on which they start; `known` says whether a cell is the name of a column, as in a first row."""
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_LINE))  # the module's own 128 KiB cut a long text short
    source = whole_lines(path, returns=True)  # places in a cell count its line breaks as they are written
    sample = list(islice(source, _SAMPLE))
    told = _told_delimiter(sample[0][1].rstrip("\r") if sample else "")
    sample = sample[1:] if told else sample
    feed = _Feed(path, chain(sample, source), told or _delimiter([line + "\n" for _, line in sample], known))
    reader = csv.reader(feed, delimiter=feed.delimiter, skipinitialspace=True, strict=True)
    while True:
        feed.row_line = feed.cell_line = 0
        try:
            cells = next(reader, None)
        except csv.Error:
            raise _bad_cell(path, feed) from None
        if cells is None:
            return
        yield feed.row_line, cells


def _bad_cell(path: Path, feed: "_Feed") -> SesameError:
    place = f"{path}:{feed.cell_line or feed.row_line}"
    return SesameError(
        f"{place}: text follows the closing quote of a cell (line {feed.number}); write each quote inside of a quoted "
        "cell twice, or save the table as TSV or JSON lines"
    )


def _told_delimiter(line: str) -> str | None:
    """The separator that a first line "sep=;" names, as Excel reads and spreadsheets' exports write it."""
    found = _EXCEL.fullmatch(line)
    return found[1] if found else None


def _delimiter(sample: list[str], known: Known) -> str:
    """The separator under which the first row holds most known names and most rows are as wide as the first."""

    def fitness(delimiter: str) -> tuple[int, float]:
        try:
            rows = [row for row in csv.reader(sample, delimiter=delimiter, skipinitialspace=True) if row]
        except csv.Error:
            return 0, 0.0
        if not rows or len(rows[0]) < 2:
            return 0, 0.0
        return sum(map(known, rows[0])), sum(len(row) == len(rows[0]) for row in rows) / len(rows)

    return max(",;\t|", key=fitness)  # the first of equals


class _Feed(Iterator[str]):
    """Hands lines to the csv module and watches that no quote swallows them.

    The module asks for a line in the middle of a row only if a quote is open; then the lines it already has are followed to
    know where that quote is.
    """

    def __init__(self, path: Path, source: Iterator[tuple[int, str]], delimiter: str) -> None:
        self.path, self.source, self.delimiter = path, source, delimiter
        self.row_line = 0  # where the row starts; 0 between rows
        self.cell_line = 0  # where the open cell starts; 0 outside of quotes
        self.cell_size = self.number = 0
        self.line = ""

    def __next__(self) -> str:
        if self.row_line:
            self._follow()
            if self.number - self.cell_line + 1 >= CELL_LINES or self.cell_size > CELL_CHARACTERS:
                raise self._swallowed(f"runs on over line {self.number}")
        item = next(self.source, None)
        if item is None:
            if self.row_line:
                raise self._swallowed("is never closed")
            raise StopIteration
        self.number, self.line = item
        self.row_line = self.row_line or self.number
        return self.line + "\n"

    def _follow(self) -> None:
        """Move over the last line that was handed out, by the rules of CSV."""
        at, line = 0, self.line
        self.cell_size += len(line) + 1
        while True:
            if self.cell_line:
                at = line.find('"', at) + 1
                if not at:
                    return
                if line.startswith('"', at):  # two quotes stand for one
                    at += 1
                    continue
                self.cell_line = 0
                at = line.find(self.delimiter, at) + 1
                if not at:
                    return
            while line.startswith(" ", at):
                at += 1
            if line.startswith('"', at):
                self.cell_line, self.cell_size = self.number, len(line) - at
                at += 1
            else:
                at = line.find(self.delimiter, at) + 1
                if not at:
                    return

    def _swallowed(self, what: str) -> SesameError:
        return SesameError(
            f"{self.path}:{self.cell_line}: a quote that opens here {what}; remove the quote or write it twice inside of "
            "a quoted cell, or save the table as TSV or JSON lines"
        )
