"""Tasks without teaching: a row is put into a sentence, and the model says how that sentence ends.

Papers: Radford et al. 2019 (GPT-2: tasks by prompts), Brown et al. 2020 (GPT-3: shots, https://arxiv.org/abs/2005.14165),
Zhao et al. 2021 (calibration, https://arxiv.org/abs/2102.09690), Holtzman et al. 2021 (PMI, https://arxiv.org/abs/2104.08315).
Idea: "{text}\\nSentiment: {label}" with the text filled in is a prompt; the label whose word follows it best is the answer.
A few rows with their labels before it, the shots, show what is wanted. With x the prompt and w the tokens of a word:
    sum         log p(w | x)
    mean        log p(w | x) / number of tokens of w
    calibrated  log q(w | x) - log q(w | nothing),  q: p among the words;  nothing: the same prompt with "N/A", "[MASK]" or no
                text, mean of the three q
    pmi         log p(w | x) - log p(w | the words of the template before {label})
Needs: a model that speaks. A decoder continues the prompt; an encoder-decoder reads it and answers (end token and all).
Unusual: white space before {label} belongs to the word, as byte-level pieces have it. A prompt that is too long loses its
first shots, then the beginning of its text, and both are counted.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from string import Formatter
from typing import Literal, get_args

import torch

from sesame.config import unknown
from sesame.data.batch import Batch
from sesame.data.examples import Example
from sesame.errors import SesameError
from sesame.generate import Settings, Speaker, generate, judge
from sesame.progress import Bar, say
from sesame.tasks.speak import Voice, turned
from sesame.text import Tokenizer
from sesame.text.template import around

By = Literal["sum", "mean", "calibrated", "pmi"]
NOTHING = ("N/A", "[MASK]", "")  # Zhao et al. 2021, section 5: texts without content
FIELDS = ("text", "pair", "label")
TOGETHER = 16  # prompts
BETWEEN = "\n\n"  # two shots


@dataclass(frozen=True)
class Template:
    """A sentence with {text}, {pair} and, once, {label}."""

    pattern: str

    def __post_init__(self) -> None:
        try:
            found = [(name, spec, how) for _, name, spec, how in Formatter().parse(self.pattern) if name is not None]
        except ValueError as error:
            raise SesameError(f"template {self.pattern!r}: {error}; double a brace that is meant as such") from error
        for name, spec, how in found:
            if name in FIELDS and (spec or how):
                raise SesameError(f"template {self.pattern!r}: a field stands as it is; write {{{name}}}")
            if name not in FIELDS:
                raise SesameError(unknown(name, dict.fromkeys(FIELDS), f"template {self.pattern!r}", "field"))
        if [name for name, _, _ in found].count("label") != 1:
            raise SesameError(f"template {self.pattern!r}: must hold {{label}} once; that is where the answer stands")

    def before(self, example: Example) -> str:
        """The sentence up to the white space before its label."""
        return "".join(self._filled(example)).rstrip()

    def answer(self, word: str) -> str:
        """What follows it: white space, the word, the rest."""
        parts = list(Formatter().parse(self.pattern))
        at = next(place for place, part in enumerate(parts) if part[1] == "label")
        lead, rest = parts[at][0], "".join(part[0] for part in parts[at + 1 :])
        return lead[len(lead.rstrip()) :] + word + rest

    def domain(self) -> str:
        """The words before the label that belong to no row."""
        return next(text for text, name, _, _ in Formatter().parse(self.pattern) if name == "label").strip()

    def whole(self, example: Example, word: str) -> str:
        return self.before(example) + self.answer(word)

    def _filled(self, example: Example) -> Iterator[str]:
        for text, name, _, _ in Formatter().parse(self.pattern):
            yield text
            if name == "label":
                return
            if name == "pair" and example.pair is None:
                raise SesameError(f"{example.place}: has no second text for {{pair}}; leave it out of the template")
            if name is not None:
                yield (example.pair or "") if name == "pair" else example.text


@dataclass(frozen=True)
class Prompter:
    """A model that answers by prompts."""

    speaker: Speaker
    tokenizer: Tokenizer
    voice: Voice
    longest: int | None
    device: torch.device
    template: Template
    by: By = "sum"

    def __post_init__(self) -> None:
        if self.by not in get_args(By):
            raise SesameError(f"scores are by {', '.join(get_args(By))}; there is no {self.by!r}")
        if self.by == "pmi" and not self.template.domain():
            raise SesameError(
                f"template {self.template.pattern!r}: pmi needs words before {{label}}, as in 'It was {{label}}'"
            )

    def choose(
        self,
        examples: Sequence[Example],
        words: Sequence[Sequence[str]],
        shots: Sequence[str] = (),
        shown: Bar | None = None,
    ) -> list[list[float]]:
        """For each example the score of each of its words; `shots` are whole sentences."""
        texts = [self.template.before(example) for example in examples]
        found = self._judged(texts, words, shots, shown)
        if self.by == "mean":
            return [[score / max(1, size) for score, size in row] for row in found]
        scores = [[score for score, _ in row] for row in found]
        if self.by == "sum":
            return scores
        kinds = list(dict.fromkeys(map(tuple, words)))
        base = self._without_content(kinds, shots)
        both = zip(scores, words, strict=True)
        if self.by == "pmi":
            return [_less(row, base[tuple(some)]) for row, some in both]
        return [_less(_normed(row), base[tuple(some)]) for row, some in both]

    def tell(self, examples: Sequence[Example], shots: Sequence[str], most: int, shown: Bar | None = None) -> list[str]:
        """For each example what the model says in the place of its label, greedily, up to the end of the line."""
        texts = [self.template.before(example) for example in examples]
        found = [""] * len(texts)
        for rows, batch in self._batches(texts, shots, most):
            said = generate(self.speaker, batch, Settings(most=most), self.voice.end)
            for row, [hypothesis] in zip(rows, said, strict=True):
                found[row] = next(iter(self.tokenizer.decode(hypothesis.ids).strip().splitlines()), "")
            if shown is not None:
                shown.advance(len(rows))
        return found

    def _without_content(
        self, kinds: Sequence[tuple[str, ...]], shots: Sequence[str]
    ) -> dict[tuple[str, ...], list[float]]:
        """What the words are worth by themselves."""
        if self.by == "pmi":
            judged = self._judged([self.template.domain()] * len(kinds), kinds, ())
            return {kind: [score for score, _ in row] for kind, row in zip(kinds, judged, strict=True)}
        empty = [self.template.before(Example("", text, text)) for text in NOTHING]
        found = {}
        for kind in kinds:
            rows = [_normed([score for score, _ in row]) for row in self._judged(empty, [kind] * len(empty), shots)]
            shares = zip(*rows, strict=True)
            found[kind] = [math.log(max(math.fsum(map(math.exp, share)) / len(rows), 1e-300)) for share in shares]
        return found

    def _judged(
        self, texts: Sequence[str], words: Sequence[Sequence[str]], shots: Sequence[str], shown: Bar | None = None
    ) -> list[list[tuple[float, int]]]:
        """Log-probability and number of tokens of each word behind each text."""
        known = {word: self._pieces(word) for some in words for word in some}
        found: list[list[tuple[float, int]]] = [[] for _ in texts]
        end = self.voice.end[0] if self.voice.start and self.voice.end else None
        for rows, batch in self._batches(texts, shots, max(map(len, known.values()), default=1)):
            asked = [[known[word] for word in words[row]] for row in rows]
            for row, judged in zip(rows, judge(self.speaker, batch, asked, end), strict=True):
                found[row] = [(one.logprob, len(one.tokens)) for one in judged]
            if shown is not None:
                shown.advance(len(rows))
        return found

    def _pieces(self, word: str) -> list[int]:
        ids = self.tokenizer.answers.encode(self.template.answer(word), literal=True).ids
        if not ids:
            raise SesameError(f"the word {word!r} has no token of the model; choose another with --words")
        return ids

    def _batches(self, texts: Sequence[str], shots: Sequence[str], room: int) -> Iterator[tuple[list[int], Batch]]:
        """Prompts of similar length together, with `room` for an answer."""
        inputs = self._inputs(texts, shots, room)
        order = sorted(range(len(inputs)), key=lambda row: -len(inputs[row]))
        pad = self.tokenizer.id("pad") if self.tokenizer.has("pad") else 0
        start = (*self.voice.start, *self.voice.first)
        for begin in range(0, len(order), TOGETHER):
            rows = order[begin : begin + TOGETHER]
            lengths = torch.tensor([len(inputs[row]) for row in rows])
            ids = torch.tensor([inputs[row] + [pad] * (int(lengths.max()) - len(inputs[row])) for row in rows])
            outputs = torch.tensor([start] * len(rows)) if self.voice.start else None
            batch = Batch(ids, lengths, outputs=outputs, full=bool((lengths == ids.shape[1]).all()))
            yield rows, batch.to(self.device)

    def _inputs(self, texts: Sequence[str], shots: Sequence[str], room: int) -> list[list[int]]:
        answers = bool(self.voice.start)
        most = None if self.longest is None else self.longest - (0 if answers else room)
        if most is not None and most < 1:
            raise SesameError(
                f"an answer of {room} tokens leaves no room in a model of {self.longest}; shorten the words"
            )
        found, fewer, cut, ends = [], 0, 0, around(self.tokenizer) if answers else ((), ())
        for text in texts:
            ids = self._ids(BETWEEN.join([*shots, text]))
            left = len(shots)
            while most is not None and len(ids) > most and left:
                left -= 1
                ids = self._ids(BETWEEN.join([*shots[len(shots) - left :], text]))
            fewer += left < len(shots)
            if most is not None and len(ids) > most:
                cut += 1
                front = len(ends[0] if answers else self.voice.before)
                ids = [*ids[:front], *ids[len(ids) - most + front :]]
            found.append(turned(ids, *map(len, ends)) if self.voice.reverse else ids)
        size = f"the model's {self.longest} tokens"
        if fewer:
            say(
                f"{fewer:,} of {len(texts):,} prompts do not fit {size} with {len(shots)} shots: the first are left out"
            )
        if cut:
            say(f"{cut:,} of {len(texts):,} texts do not fit {size}: their beginnings are not read")
        return found

    def _ids(self, text: str) -> list[int]:
        if self.voice.start:
            return self.tokenizer.encode(self.voice.read(text), special=True, literal=True).ids
        ids = [*self.voice.before, *self.tokenizer.encode(text, literal=True).ids]
        return ids or [*self.voice.end[:1]]  # nothing at all: what stands before every text


def _less(row: Sequence[float], base: Sequence[float]) -> list[float]:
    return [a - b for a, b in zip(row, base, strict=True)]


def _normed(row: Sequence[float]) -> list[float]:
    """Log-probabilities that sum to 1 among the words."""
    most = max(row)
    total = most + math.log(math.fsum(math.exp(score - most) for score in row))
    return [score - total for score in row]


def words_of(labels: Iterable[str], given: Mapping[str, str]) -> dict[str, str]:
    """A word for each label: what the user says, or its name."""
    found = {label: label for label in labels}
    for label, word in given.items():
        if label not in found:
            raise SesameError(unknown(label, found, "--words", "label"))
        found[label] = word
    twice = [word for word in found.values() if list(found.values()).count(word) > 1]
    if twice:
        raise SesameError(f"--words: {twice[0]!r} stands for two labels, which nobody could tell apart; change one")
    return found


def answered(template: Template, example: Example, word: str) -> str:
    """A shot: a sentence with its label."""
    return template.whole(replace(example, label=None), word)
