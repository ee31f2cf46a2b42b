"""BLEU by the length of the source: figure 2 of Bahdanau et al. 2015, which shows what attention is for.

Sentences are sorted into groups by the number of words in the source, as many groups as hold enough sentences; BLEU is a
corpus score of each group, with its 95 % interval over sentences.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sesame.errors import SesameError
from sesame.evaluate.translation import Bleu, CorpusScore, corpus_score

LEAST = 30  # sentences of a group


@dataclass(frozen=True)
class Group:
    low: int  # words of the shortest and the longest source
    high: int
    rows: list[int]
    scores: dict[str, CorpusScore]  # by system

    @property
    def name(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low}–{self.high}"


def by_length(
    sources: Sequence[str],
    references: Sequence[str],
    systems: Mapping[str, Sequence[str]],
    groups: int = 6,
    least: int = LEAST,
    rounds: int = 200,
) -> list[Group]:
    """At most `groups` of about the same number of sentences, at least `least` each; equal lengths stay together."""
    for name, said in {"the references": references, **systems}.items():
        if len(said) != len(sources):
            raise SesameError(
                f"{name}: {len(said):,} lines for {len(sources):,} sources; give one line for each source"
            )
    if not sources or not systems:
        raise SesameError("no sources or no translations are given; name a file of each")
    lengths = np.array([len(source.split()) for source in sources])
    return [_group(rows, lengths, references, systems, rounds) for rows in _split(lengths, groups, least)]


def _split(lengths: "np.ndarray[tuple[int], np.dtype[np.int64]]", groups: int, least: int) -> list[list[int]]:
    order = np.argsort(lengths, kind="stable").tolist()
    size = max(-(-len(order) // groups), least)
    found: list[list[int]] = []
    for row in order:
        full = found and len(found[-1]) >= size and lengths[row] != lengths[found[-1][-1]]
        if not found or full:
            found.append([])
        found[-1].append(row)
    if len(found) > 1 and len(found[-1]) < least:
        last = found.pop()
        found[-1] += last
    return found


def _group(
    rows: list[int],
    lengths: "np.ndarray[tuple[int], np.dtype[np.int64]]",
    references: Sequence[str],
    systems: Mapping[str, Sequence[str]],
    rounds: int,
) -> Group:
    gold = [references[row] for row in rows]
    scores = {name: corpus_score(Bleu(), gold, [said[row] for row in rows], rounds) for name, said in systems.items()}
    return Group(int(lengths[rows].min()), int(lengths[rows].max()), rows, scores)
