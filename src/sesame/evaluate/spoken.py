"""What an encoder-decoder answers, against the answers wanted: BLEU, chrF, ROUGE, exact matches, brackets of trees.

One answer, one reference. All values are shares from 0 to 1; BLEU and chrF come with the signature that makes them
comparable (`translation.py`). Sources are read as `sesame translate` reads them: of a model that was taught here, runs of
white space are one space, as in training.

    brackets   the answers are linearised trees (`data/trees.py`): labelled bracket F1 as evalb counts it. An answer that is
               no tree is mended; words and tags are the gold tree's, so that a parser is judged by its brackets alone
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.speech import Speech, answers, not_followed, together
from sesame.config import read_toml
from sesame.data.languages import PAIRED
from sesame.data.parallel import Counted, read_pairs
from sesame.data.parallel_columns import find_columns, has_fields, named_fields
from sesame.data.questions import fields_of, is_template, read_questions
from sesame.data.trees import ANY, Tree, delinearize
from sesame.errors import SesameError
from sesame.evaluate.brackets import bracket_counts, bracket_scores
from sesame.evaluate.classification import share
from sesame.evaluate.rouge import Letters, rouge_each
from sesame.evaluate.statistics import Floats, bootstrap_interval, micro_f1, paired_bootstrap, paired_bootstrap_metric
from sesame.evaluate.told import surprise_of
from sesame.evaluate.translation import Bleu, ChrF, compare_systems, corpus_score
from sesame.files import read_json
from sesame.generate import Settings
from sesame.progress import bar, say
from sesame.tasks.speak import tell_cut
from sesame.train.precision import choose_machine

CORPUS: dict[str, Bleu | ChrF] = {"bleu": Bleu(), "chrf": ChrF()}
ROUGE = ("rouge1", "rouge2", "rougeL")
METRICS = (*CORPUS, *ROUGE, "exact", "brackets")
ROUNDS = 1000
SPEAKING = ("t5", "mt5", "bart", "mbart", "marian", "pegasus", "encoder-decoder", "recurrent-seq2seq")


@dataclass(frozen=True)
class Scores:
    """Of one test set."""

    values: dict[str, float]
    signatures: dict[str, str]  # of BLEU and chrF
    intervals: dict[str, tuple[float, float]]  # over examples; only where they were asked for


def check_metric(name: str) -> None:
    if name not in METRICS:
        raise SesameError(f"--metric {name}: must be one of {', '.join(METRICS)}")


def score_answers(gold: Sequence[str], said: Sequence[str], trees: bool = False, rounds: int = 0) -> Scores:
    """All scores; with `rounds` of resampling their intervals, and with `trees` brackets too."""
    values: dict[str, float] = {}
    signatures: dict[str, str] = {}
    intervals: dict[str, tuple[float, float]] = {}
    for name, how in CORPUS.items():
        found = corpus_score(how, gold, said, rounds)
        values[name], signatures[name] = found.value, found.signature
        if found.low is not None and found.high is not None:
            intervals[name] = found.low, found.high
    for name, row in _each(gold, said).items():
        values[name] = float(row.mean())
        if rounds:
            drawn = bootstrap_interval(row, rounds=rounds)
            intervals[name] = drawn.low, drawn.high
    if trees:
        wanted, given = _trees(gold, said)
        values["brackets"] = bracket_scores(wanted, given)["f1"]
        if rounds:
            drawn = bootstrap_interval(bracket_counts(wanted, given), _f1, rounds)
            intervals["brackets"] = drawn.low, drawn.high
    return Scores(values, signatures, intervals)


def compare_answers(
    metric: str, gold: Sequence[str], a: Sequence[str], b: Sequence[str], rounds: int = ROUNDS
) -> dict[str, float]:
    """difference (a - b), low, high, p by the paired bootstrap."""
    check_metric(metric)
    if metric in CORPUS:
        return compare_systems(CORPUS[metric], gold, a, b, rounds)
    if metric == "brackets":
        sides = [micro_f1(bracket_counts(*_trees(gold, said))) for said in (a, b)]
        differing = sum(x != y for x, y in zip(a, b, strict=True))
        return paired_bootstrap_metric(sides[0], sides[1], len(gold), rounds, differing=differing)
    return paired_bootstrap(_each(gold, a)[metric], _each(gold, b)[metric], rounds)


def _each(gold: Sequence[str], said: Sequence[str]) -> dict[str, Any]:
    """Scores that are means over examples, an example a row."""
    table = rouge_each(gold, said, letters=_letters(gold))
    exact = np.array([a.split() == b.split() for a, b in zip(gold, said, strict=True)], dtype=np.float64)
    return {name: table[name] for name in ROUGE} | {"exact": exact}


def _f1(counts: Floats) -> float:
    right, said, gold = counts.sum(0)
    return float(share(2 * right, said + gold))


def _letters(gold: Sequence[str]) -> Letters:
    """The usual ROUGE knows a-z alone; a text that is mostly of other letters needs all of them."""
    letters = [letter for text in gold for letter in text if letter.isalpha()]
    return "all" if 2 * sum(letter > "\x7f" for letter in letters) > len(letters) else "ascii"


def _trees(gold: Sequence[str], said: Sequence[str]) -> tuple[list[Tree], list[Tree | None]]:
    wanted = [delinearize(text, leaves="tags").tree for text in gold]
    if {tag for tree in wanted for tag in tree.tags} == {ANY}:
        say(
            f"brackets: no tags stand in trees of {ANY}, so punctuation counts as words, which evalb leaves out; "
            "`sesame trees --leaves tags` makes trees that tell"
        )
    given = [delinearize(text, tree.words, tree.tags) for text, tree in zip(said, wanted, strict=True)]
    mended = sum(found.repairs > 0 for found in given)
    if mended:
        say(f"{mended:,} of {len(said):,} answers are no trees over the sentence; they were mended")
    return wanted, [found.tree for found in given]


# ---- a model against a file -----------------------------------------------------------------------------------------


def is_answering(model: str) -> bool:
    """Whether a folder holds an encoder-decoder; told by its config.json, before any weight is read."""
    folder = Path(model)
    file = next((f for f in (folder / "config.json", folder / "final" / "config.json") if f.is_file()), None)
    found = read_json(file) if file is not None else None
    return isinstance(found, dict) and bool({found.get("model_type"), found.get("backbone")} & set(SPEAKING))


def plain(text: str) -> str:
    """As the store of pairs keeps a text."""
    return " ".join(text.split())


@dataclass
class Sides:
    """Sources, the answers wanted, and where each pair stands: "file:line"."""

    sources: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.sources)

    def take(self, rows: Sequence[int]) -> "Sides":
        return Sides(*([side[row] for row in rows] for side in (self.sources, self.answers, self.places)))


def read_sides(
    data: str, source: str | None = None, target: str | None = None, prefix: str = "", as_written: bool = False
) -> Sides:
    """Sources, with the prefix before them, and answers of a file, or of two plain files with a comma between their names.

    `source` names a column, or several in braces within a text: see `data/questions.py`. `as_written`: how white space in
    sources is read is left to the model.
    """
    paths = [data] if Path(data).is_file() else data.split(",")
    counted = Counted()
    if source is not None and is_template(source):
        pairs, answer = read_questions(paths[0], source, target, counted)
        fields: tuple[str, str] | None = source, answer
    else:
        fields = find_columns(paths[0], source, target)
        pairs = list(read_pairs(paths, fields, counted))
    told = "" if fields is None else f", sources in {fields[0]!r}, answers in {fields[1]!r}"
    say(f"{data}: {len(pairs):,} pairs{told}")
    if counted.empty:
        say(f"{data}: {counted.empty:,} pairs are left out, because a side is empty")
    sources = [f"{prefix.strip()} {pair.source}".strip() for pair in pairs]
    sources = sources if as_written else list(map(plain, sources))
    return Sides(sources, [plain(pair.target) for pair in pairs], [pair.place for pair in pairs])


def columns_of(model: str, data: str) -> tuple[str | None, str | None]:
    """Source and answer of a file that calls them as the training data did: by languages, or by columns that were named.

    Without that a heading "de, en" would be a pair, and German the source of a model that reads English.
    """
    run = _run(model)
    named = run.get("source"), run.get("target")
    directions = {(found[1], found[2]) for name in run.get("pairs", []) if (found := PAIRED.fullmatch(str(name)))}
    if not Path(data).is_file():
        return None, None
    if any(named):
        asked = [field for name in named if name for field in fields_of(name) or [name]]
        return named if has_fields([data], asked) else (None, None)
    return (named_fields([data], directions.pop()) if len(directions) == 1 else None) or (None, None)


def _run(model: str) -> dict[str, Any]:
    """What was asked of the run that made a model, as far as it is known."""
    file = next((f for f in (Path(model) / "sesame.toml", Path(model) / "final" / "sesame.toml") if f.is_file()), None)
    return {} if file is None else dict(read_toml(file).get("run", {}))


def answer_all(
    parts: Parts, sides: Sides, *, beside: Sequence[Parts] = (), shown_as: str = "answer", **settings: Any
) -> list[str]:
    """The best answer to each source; `beside`: models that speak along."""
    speaks = together(parts, beside) if beside else None
    with bar(shown_as, len(sides), "texts") as shown:
        found = answers(parts, sides.sources, settings, speaks=speaks, shown=shown, places=sides.places)
    tell_cut([said[0] for said in found], settings.get("most", Settings.most))
    return [said[0].text for said in found]


def open_answering(model: str, device: str) -> Parts:
    """A model that answers, ready to."""
    parts = load_parts(model)
    if not parts.backbone.answers:
        raise SesameError(
            f"{model}: has no encoder and decoder, so it does not answer sources; take t5, bart or the like"
        )
    if parts.tokenizer is None:
        raise SesameError(f"{model}: has no tokenizer; put tokenizer.json beside the weights")
    parts.to(choose_machine(device).device)
    for module in (parts.backbone, *parts.heads.values()):
        module.eval()
    return parts


def judge_answers(
    model: str,
    data: str,
    *,
    source: str | None = None,
    target: str | None = None,
    prefix: str = "",
    metric: str = "bleu",
    against: str | None = None,
    beside: Sequence[str] = (),
    device: str = "auto",
    **settings: Any,
) -> dict[str, Any]:
    """Scores of a model on pairs, with intervals, and the perplexity of the answers wanted.

    `against`: another model, on the same draws of examples. `beside`: models that speak along with the first.
    """
    check_metric(metric)
    if source is None and target is None:
        source, target = columns_of(model, data)
    if not prefix and (taught := _run(model).get("prefix")):
        say(f"{model}: was taught with the prefix {taught!r}, and these sources have none; give --prefix")
    sides = read_sides(data, source, target, prefix, as_written=True)
    gold = sides.answers
    parts, others = open_answering(model, device), [open_answering(name, device) for name in beside]
    odd = not_followed(parts.speech or Speech(), Settings(**settings))
    if odd:
        say(f"{model}: generation_config.json asks for {', '.join(odd)}; answers are searched without")
    said = answer_all(parts, sides, beside=others, **settings)
    found = score_answers(gold, said, metric == "brackets", ROUNDS)
    result: dict[str, Any] = {
        "task": "seq2seq", "metric": metric, "scores": found.values, "signatures": found.signatures,
        "intervals": {name: list(ends) for name, ends in found.intervals.items()}, "rows": len(gold),
    }  # fmt: skip
    # Of several that speak as one it would be the first one's alone.
    if not beside and (surprise := surprise_of(parts, sides.sources, gold)) is not None:
        result["perplexity"] = surprise.figures()
    if against is not None:
        other = answer_all(open_answering(against, device), sides, **settings)
        result |= {"against": against, "versus": compare_answers(metric, gold, said, other)}
    return result
