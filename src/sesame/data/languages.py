"""Texts in several languages: which language a step takes.

Paper: Conneau & Lample 2019, "Cross-lingual Language Model Pretraining" (https://arxiv.org/abs/1901.07291), section 3.1;
code: facebookresearch/XLM.
Idea: a step takes one source, a language or the translations between two. Small languages come more often than their share:
    q_i = p_i^a / sum_j p_j^a,   p_i = the share of language i in the text
Translations, if there are any, take a fixed share of the steps (in the authors' code every other step), divided by the same
law. Batches carry the language of every token (`Packer`, `translation_pack.py`).
What is unusual: nothing remembers what was drawn. The source of a step is a hash of (seed, step), and how many earlier steps
took it is counted in a table of all sources so far, made in 50 ms for a million steps. So every language is read epoch by
epoch, each row once, and a run goes on after a crash as if nothing had happened. (Drawing rows with replacement would need
no table, but leaves a third of a small language unread in every epoch.)
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sesame import chance
from sesame.data.batch import Batch
from sesame.data.loader import Loader
from sesame.data.pack import Packer
from sesame.data.parts import Part
from sesame.errors import SesameError

NAMED = re.compile(r"([A-Za-z][A-Za-z0-9_]*)=(.+)", re.DOTALL)
PAIRED = re.compile(r"([A-Za-z][A-Za-z0-9_]*)-([A-Za-z][A-Za-z0-9_]*)=(.+)", re.DOTALL)
Pair = tuple[str, str]


@dataclass(frozen=True)
class Source:
    """Text of one language, or translations from one into another; `langs` are the languages' numbers."""

    name: str  # "en", "en-ru"
    langs: tuple[int, ...]
    part: Part


def texts_by_language(texts: Sequence[str]) -> dict[str, list[str]]:
    """["en=a.txt", "ru=b.txt"] by language; texts without one under "", also files whose own name looks like that."""
    found: dict[str, list[str]] = {}
    for text in texts:
        match = None if Path(text).exists() else NAMED.fullmatch(text)
        if match is None and not Path(text).exists():
            _check_language(text)
        language, path = match.groups() if match else ("", text)
        found.setdefault(language, []).append(path)
    if "" in found and len(found) > 1:
        known = ", ".join(language for language in found if language)
        raise SesameError(
            f"{found[''][0]}: has no language, but other texts have ({known}); write LANGUAGE={found[''][0]}"
        )
    return found


def _check_language(text: str) -> None:
    """Complain of "pt-BR=a.txt", which is no file, but would be one without its language."""
    language, _, path = text.partition("=")
    if language and path and Path(path).exists():
        plain = re.sub(r"\W", "_", language)
        raise SesameError(
            f"{text}: the name of a language has letters of a to z, digits and _, a letter first; "
            + (f"write {plain}={path}" if NAMED.fullmatch(f"{plain}={path}") else "give it another name")
        )


def pairs_by_languages(texts: Sequence[str]) -> dict[Pair, list[str]]:
    """["en-ru=pairs.tsv"] by the two languages."""
    found: dict[Pair, list[str]] = {}
    for text in texts:
        match = PAIRED.fullmatch(text)
        if match is None:
            raise SesameError(
                f"--pairs {text}: write the two languages and a file, such as en-ru=pairs.tsv; the name of a language "
                "has letters of a to z, digits and _"
            )
        first, second, path = match.groups()
        if first == second:
            raise SesameError(f"--pairs {text}: both sides are {first}; a translation has two languages")
        if (second, first) in found:
            raise SesameError(f"--pairs {text}: {second}-{first} was named before; keep to one order of the two")
        found.setdefault((first, second), []).append(path)
    return found


def shares(sizes: Sequence[float], exponent: float) -> list[float]:
    """q_i ~ p_i^exponent."""
    weights = [(size / sum(sizes)) ** exponent for size in sizes]
    return [weight / sum(weights) for weight in weights]


def source_shares(sources: Sequence[Source], exponent: float, translated: float) -> list[float]:
    """The share of the steps that each source takes; `translated` of them go to translations, if there is other text too."""
    paired = [len(source.langs) == 2 for source in sources]
    if all(paired):
        translated = 1.0
    whole = {True: translated if any(paired) else 0.0, False: 1.0 - translated if any(paired) else 1.0}
    found = [0.0] * len(sources)
    for kind, total in whole.items():
        mine = [number for number, pair in enumerate(paired) if pair == kind]
        each = shares([sources[number].part.tokens() for number in mine], exponent) if mine else []
        for number, share in zip(mine, each, strict=True):
            found[number] = total * share
    return found


class Turns:
    """Whose turn a step is: one of several sources, drawn by these shares."""

    def __init__(self, shares: Sequence[float], seed: int) -> None:
        self.ends = np.cumsum(shares)[:-1]
        self.key = chance.key(seed, 0x5455524E)
        self._table = self._draw(1024)  # grown when asked for more: what it holds follows from the seed

    def at(self, step: int) -> tuple[int, int]:
        """The source of a step, and how many steps before it had the same."""
        table = self._table
        if step >= len(table):
            table = self._table = self._draw(2 * step)
        source = table[step]
        return int(source), int(np.count_nonzero(table[:step] == source))

    def _draw(self, steps: int) -> npt.NDArray[np.int16]:
        luck = chance.uniform(chance.keys(self.key, np.arange(steps)), "turns", 1)[:, 0]
        return np.searchsorted(self.ends, luck, side="right").astype(np.int16)


@dataclass(frozen=True)
class MixedLoader(Loader):
    """Each step from one of several packers; `packer` is the first of them."""

    packers: tuple[Packer, ...] = ()
    turns: Turns = None  # type: ignore[assignment]

    def _turn(self, step: int) -> tuple[Loader, int]:
        source, number = self.turns.at(step)
        loader = Loader(
            self.packers[source], self.batch, self.micro, chance.key(self.seed, source), self.corrupt,
            static=self.static, unpad=self.unpad, rank=self.rank, ranks=self.ranks,
        )  # fmt: skip
        return loader, number

    def load(self, step: int, progress: float) -> list[Batch]:
        loader, number = self._turn(step)
        return loader.load(number, progress)

    def sources(self, step: int) -> list[str]:
        loader, number = self._turn(step)
        return loader.sources(number)


def mixed(basic: Loader, packers: Sequence[Packer], shares: Sequence[float]) -> MixedLoader:
    """A loader like `basic`, from all these packers by these shares."""
    settings = {item.name: getattr(basic, item.name) for item in fields(basic)}
    return MixedLoader(**settings, packers=tuple(packers), turns=Turns(shares, basic.seed))
