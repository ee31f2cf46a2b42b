"""Pairs of texts in, a model that answers out: what `sesame finetune --task seq2seq` does.

    read the pairs -> the same pre-training loop from MODEL, recipe `answer`, with several seeds -> answers -> scores

    OUT/recipe.toml  results.json  predictions.jsonl
    OUT/pairs/       train.jsonl and valid.jsonl as they are learnt from: prefixes before the sources, tasks mixed
    OUT/seed-N/      a run each, see `pretraining/run.py`; result.json
    OUT/final/       the seed that is best on the validation data

Several tasks are learnt as T5 learns them: each says in its source what it is (a prefix, or as in decaNLP a question: see
`data/questions.py`), and how often each is drawn follows `data/mixing.py`. Here a pass reads every pair of every task at
least once; those of tasks that are drawn more often than their size would give come again.

Scores of the test data are computed, but nothing is ever chosen by them. Under `torchrun` all processes share each training,
the first one answers.
"""

import hashlib
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sesame import chance
from sesame.checkpoint.cards import answer_card
from sesame.checkpoint.folder import Parts, load_parts
from sesame.checkpoint.run import Run
from sesame.checkpoint.speech import answer_frame
from sesame.config import parse_setting, says_steps
from sesame.data.answer_pack import AnswerPacker, plan_batches
from sesame.data.build import build_pairs
from sesame.data.cache import cache_folder
from sesame.data.mixing import mixing_rates
from sesame.data.pack import Specials, hold_out
from sesame.data.questions import is_template
from sesame.errors import SesameError
from sesame.evaluate.spoken import Sides, answer_all, check_metric, open_answering, read_sides, score_answers
from sesame.evaluate.statistics import summary
from sesame.files import read_json, write_json, write_whole
from sesame.generate import Settings
from sesame.pretraining.inputs import files_of_model, sums_of
from sesame.pretraining.run import pretrain
from sesame.pretraining.wishes import Wishes as Training
from sesame.progress import say
from sesame.recipe import Recipe, resolve
from sesame.train.parallel import World, join
from sesame.train.precision import Precision

RECIPE = "answer"
SIDES = ("source", "target")  # the "languages" of the pairs
FEW, SEEDS = 10_000, 3  # below so many pairs one seed says little
FEWEST = 20  # pairs to learn from
EPOCHS, LEAST_STEPS, MOST_EPOCHS = 3.0, 500, 60.0  # as for other tasks: recipes/transfer/full.toml
HELD, MOST_HELD = 0.1, 1000  # share and number of the pairs that are kept aside where no validation data are given
WIDTH = 768  # the recipe's rate is for so many columns


@dataclass(frozen=True)
class Wishes:
    """What the user asks of `sesame finetune --task seq2seq`."""

    model: str
    train: str  # a table, JSON lines, or two plain files with a comma between
    out: Path
    valid: str | None = None
    test: str | None = None
    source: str | None = None  # columns; the source also as "question: {question} context: {context}"
    target: str | None = None
    prefix: str = ""  # before every source
    also: Sequence[str] = ()  # further tasks, "prefix=FILE"; a prefix with columns in braces is the whole source
    temperature: float = 1.0  # of the mixing
    cap: float = math.inf
    metric: str = "bleu"  # decides which seed is best
    beams: int = 5  # as `sesame translate` has it: a score should be that of the answers that people get
    alpha: float = 1.0
    most: int = 128  # new tokens of an answer
    seeds: int | None = None  # None: 3 for small sets, 1 for large ones
    seed: int = 0
    steps: int | None = None
    epochs: float | None = None  # None: 3, more for small sets
    rate: float | None = None  # None: the recipe's, more for narrow models
    settings: Sequence[str] = ()
    device: str = "auto"
    precision: Precision = "auto"
    save_minutes: float = 5.0
    save_steps: int = 0
    keep: int = 0  # checkpoints; 0: as few as are safe

    def identity(self) -> dict[str, Any]:
        """What decides the result."""
        kept = asdict(self)
        for key in ("out", "device", "save_minutes", "save_steps", "keep", "settings"):
            del kept[key]
        kept |= {key: _resolved(kept[key]) for key in ("train", "valid", "test") if kept[key] is not None}
        kept["also"] = list(self.also)
        return {key: value for key, value in kept.items() if value is not None and value != math.inf}

    def files(self) -> list[Path]:
        """All that is read."""
        data = [self.train, self.valid, self.test, *(file for _, file in map(_also, self.also))]
        return [path for one in data if one is not None for path in _paths(one)]


def _resolved(data: str) -> str:
    return ",".join(str(path.resolve()) for path in _paths(data))


def _paths(data: str) -> list[Path]:
    return [Path(path) for path in ([data] if Path(data).is_file() else data.split(","))]


def finetune(wishes: Wishes) -> Path:
    """Teach a model to answer; gives the folder of the best seed."""
    check_metric(wishes.metric)
    Settings(beams=wishes.beams, alpha=wishes.alpha, most=wishes.most)  # complains before hours are spent
    if wishes.steps is not None and wishes.epochs is not None:
        raise SesameError("--steps and --epochs both say when to end; give one of them")
    if wishes.epochs is not None and not 0 < wishes.epochs <= 1e6:
        raise SesameError(f"--epochs {wishes.epochs}: passes over the pairs lie above 0; give a number such as 3")
    if says_steps(wishes.settings, steps=wishes.steps, epochs=wishes.epochs):
        others = [one for one in wishes.settings if "steps" not in parse_setting(one)]
        wishes = replace(wishes, steps=resolve(RECIPE, settings=wishes.settings).steps, settings=others)
    with join(wishes.device) as world:
        start = load_parts(wishes.model)
        if not start.backbone.answers or start.tokenizer is None:
            raise SesameError(
                f"{wishes.model}: --task seq2seq needs an encoder-decoder with its tokenizer, such as t5, bart or mass"
            )
        settings = _settings(wishes, start)
        recipe = resolve(RECIPE, settings=settings)
        identity = {**recipe.to_dict(), "run": wishes.identity()}
        with Run.claim(wishes.out, identity, world) as run:
            run.bind_files(sums_of(files_of_model(wishes.model)) if world.first else {})
            job, done = _Job(wishes, recipe, settings, start, run, world), (run.final / "config.json").is_file()
            if done:
                if all(file.is_file() for file in wishes.files()):  # a finished run may outlive its files
                    job.read()
                say(f"{run.final}: this run is finished already; nothing to do")
                return run.final
            job.run_all()
    return run.final


def _settings(wishes: Wishes, start: Parts) -> list[str]:
    """The user's changes of the recipe, over those that follow from the model."""
    recipe, config = resolve(RECIPE), start.backbone.config
    longest = start.backbone.longest
    usual = recipe.optimizer.rate * max(1.0, WIDTH / config.width)
    rate = usual if wishes.rate is None else wishes.rate
    found = [f"optimizer.rate={rate}"]
    if longest is not None:
        found.append(f"stages.main.length={min(recipe.stages['main'].length, longest)}")
    if start.speech is not None and start.speech.reverse:
        found.append("stages.main.reverse=true")  # as it has learnt to read
    return [*found, *wishes.settings]


class _Job:
    """One process's work."""

    def __init__(
        self, wishes: Wishes, recipe: Recipe, settings: list[str], start: Parts, run: Run, world: World
    ) -> None:
        self.wishes, self.recipe, self.settings, self.start = wishes, recipe, settings, start
        self.run, self.world = run, world
        self.folder = (run.folder / "pairs").resolve()

    def run_all(self) -> None:
        parts = self.read()
        if self.world.first:
            self._write(parts)
        self.world.wait()
        seeds = self.wishes.seeds or (SEEDS if len(parts["train"]) < FEW else 1)
        steps = self._steps()
        say(f"seq2seq on {len(parts['train']):,} pairs, {steps:,} steps, {seeds} {'seed' if seeds == 1 else 'seeds'}")
        found = [self._seed(self.wishes.seed + number, steps, parts) for number in range(seeds)]
        if self.world.first:
            self._finish(found, parts)
        self.world.wait()

    # ---- pairs -------------------------------------------------------------------------------------------------------

    def read(self) -> dict[str, Sides]:
        """train, valid and perhaps test; the run is bound to what they hold."""
        parts = self._read()
        self.run.bind([_sum(sides) for sides in parts.values()])
        return parts

    def _read(self) -> dict[str, Sides]:
        w = self.wishes
        parts = {
            part: read_sides(data, w.source, w.target, w.prefix)
            for part, data in (("train", w.train), ("valid", w.valid), ("test", w.test))
            if data is not None
        }
        if len(parts["train"]) < FEWEST:
            raise SesameError(f"{w.train}: has {len(parts['train'])} pairs; {FEWEST} are the fewest to learn from")
        if "valid" not in parts:
            parts["train"], parts["valid"] = _split(parts["train"], w.seed)
            say(f"{len(parts['valid']):,} pairs of {w.train} are kept aside to choose by")
        others: dict[str, Sides] = {}
        for prefix, file in map(_also, w.also):
            if prefix in others:
                raise SesameError(f"--also {prefix}={file}: another task begins like this; give each its own prefix")
            asked = (prefix, None, "") if is_template(prefix) else (None, None, prefix)
            others[prefix] = read_sides(file, *asked)
        if others:
            parts["train"] = _mix({"": parts["train"], **others}, w)
        return {part: parts[part] for part in ("train", "valid", "test") if part in parts}

    def _write(self, parts: dict[str, Sides]) -> None:
        self.folder.mkdir(exist_ok=True)
        for part in ("train", "valid"):
            rows = zip(parts[part].sources, parts[part].answers, strict=True)
            lines = [json.dumps(dict(zip(SIDES, row, strict=True)), ensure_ascii=False) for row in rows]
            write_whole(self.folder / f"{part}.jsonl", "\n".join(lines) + "\n")

    def _steps(self) -> int:
        """So many passes over the pairs; small sets get more of them, unless the user says how many."""
        if self.wishes.steps is not None:
            return self.wishes.steps
        tokenizer, stage = self.start.tokenizer, self.recipe.stages["main"]
        assert tokenizer is not None
        frame = answer_frame(tokenizer, self.start.speech)
        with self.world.in_turn():
            store = build_pairs([self.folder / "train.jsonl"], SIDES, tokenizer, cache_folder())
        packer = AnswerPacker(
            hold_out(store, 0, 0.0)[0], stage.length, Specials(None, frame.end[0], tokenizer.id("pad")),
            cut=stage.cut, frame=frame, quiet=True,
        )  # fmt: skip
        batches = len(plan_batches(packer.sizes, stage.tokens, self.wishes.seed)[1]) - 1
        if self.wishes.epochs is not None:
            return max(1, round(self.wishes.epochs * batches))
        return round(max(EPOCHS * batches, min(LEAST_STEPS, MOST_EPOCHS * batches)))

    # ---- seeds -------------------------------------------------------------------------------------------------------

    def _seed(self, seed: int, steps: int, parts: dict[str, Sides]) -> dict[str, Any]:
        """Train one seed and let it answer, or take what it reached before."""
        w, folder = self.wishes, self.run.folder / f"seed-{seed}"
        kept = folder / "result.json"
        if kept.is_file():
            return dict(read_json(kept))
        began = time.monotonic()
        pairs = {part: f"{'-'.join(SIDES)}={self.folder / f'{part}.jsonl'}" for part in ("train", "valid")}
        final = pretrain(
            Training(
                RECIPE, (), folder, start=w.model, pairs=[pairs["train"]], valid=[pairs["valid"]], steps=steps, seed=seed,
                settings=self.settings, device=w.device, precision=w.precision, save_minutes=w.save_minutes,
                save_steps=w.save_steps, keep=w.keep,
            )
        )  # fmt: skip
        found: dict[str, Any] = {"seed": seed, "scores": {}, "said": {}}
        if self.world.first:
            trained = open_answering(str(final), w.device)
            asked = {"beams": w.beams, "alpha": w.alpha, "most": w.most}
            for part in (name for name in ("valid", "test") if name in parts):
                said = answer_all(trained, parts[part], shown_as=f"seed {seed}: {part}", **asked)
                scores = score_answers(parts[part].answers, said, w.metric == "brackets")
                found["said"][part], found["scores"][part] = said, scores.values
                found["signatures"] = scores.signatures
                if len(set(said)) == 1 < len(set(parts[part].answers)):
                    say(f"seed {seed} says the same to all sources of {part}; train longer, or raise --rate")
            shown = ", ".join(f"{part} {_percent(w.metric, values)}" for part, values in found["scores"].items())
            say(f"seed {seed}: {shown}")
            write_json(kept, found | {"seconds": round(time.monotonic() - began, 1)})
        return found

    # ---- the end -----------------------------------------------------------------------------------------------------

    def _finish(self, found: list[dict[str, Any]], parts: dict[str, Sides]) -> None:
        w = self.wishes
        best = max(found, key=lambda one: (one["scores"]["valid"][w.metric], -one["seed"]))
        intervals = {
            part: score_answers(parts[part].answers, best["said"][part], w.metric == "brackets", 1000).intervals
            for part in best["said"]
        }
        over = {
            part: {name: asdict(summary([one["scores"][part][name] for one in found], 0.0, 1.0)) for name in values}
            for part, values in best["scores"].items()
        }
        results: dict[str, Any] = {
            "task": "seq2seq", "title": f"seq2seq: {Path(w.train).name}", "model": Path(w.model).name, "metric": w.metric,
            "scores": over, "best": best["seed"], "intervals": intervals, "signatures": best["signatures"],
            "search": {"beams": w.beams, "alpha": w.alpha, "most": w.most}, "prefix": w.prefix,
            "seeds": [{key: one[key] for key in ("seed", "scores")} for one in found],
            "data": {"train": Path(w.train).name, "rows": {part: len(sides) for part, sides in parts.items()}},
        }  # fmt: skip
        write_json(self.run.folder / "results.json", results)
        lines = [
            json.dumps({"part": part, "source": a, "answer": b, "wanted": c}, ensure_ascii=False)
            for part, said in best["said"].items()
            for a, b, c in zip(parts[part].sources, said, parts[part].answers, strict=True)
        ]
        write_whole(self.run.folder / "predictions.jsonl", "\n".join(lines) + "\n")
        trained = load_parts(self.run.folder / f"seed-{best['seed']}" / "final")
        self.run.save_final(trained, answer_card(results))
        for part, values in over.items():
            for name, value in values.items():
                say(f"{part} {_spread(name, value)}{_signed(name, best['signatures'])}")
        say(f"best on validation: seed {best['seed']}; {self.run.final}: the model")


def _percent(metric: str, values: dict[str, float]) -> str:
    return f"{metric} {100 * values[metric]:.2f}"


def _spread(name: str, value: dict[str, Any]) -> str:
    spread = "" if value["std"] is None else f" ± {100 * value['std']:.2f}"
    return f"{name} {100 * value['mean']:.2f}{spread}"


def _signed(name: str, signatures: dict[str, str]) -> str:
    return f"  {name}|{signatures[name]}" if name in signatures else ""


def _sum(sides: Sides) -> str:
    """What the run is bound to: the texts, wherever they stand."""
    texts = {"sources": sides.sources, "answers": sides.answers}
    return hashlib.blake2b(json.dumps(texts).encode(), digest_size=16).hexdigest()


def _split(sides: Sides, seed: int) -> tuple[Sides, Sides]:
    """Training and validation; equal sources are on one side."""
    numbers = {source: number for number, source in enumerate(dict.fromkeys(sides.sources))}
    luck = chance.keys(chance.key(seed, chance.stream("answering.split")), np.arange(len(numbers)))
    held = set(np.argsort(luck)[: max(1, min(MOST_HELD, round(HELD * len(numbers))))].tolist())
    rows = [numbers[source] in held for source in sides.sources]
    if all(rows):
        raise SesameError("all sources are the same, so none can be kept aside; give --valid")
    train, valid = ([row for row, out in enumerate(rows) if out == wanted] for wanted in (False, True))
    return sides.take(train), sides.take(valid)


def _also(asked: str) -> tuple[str, str]:
    prefix, sign, file = asked.rpartition("=")
    if not sign or not prefix:
        raise SesameError(f"--also {asked}: write the prefix of the task and its file, such as 'summarize: =news.tsv'")
    return prefix, file


def _mix(tasks: dict[str, Sides], wishes: Wishes) -> Sides:
    """One pass over all tasks, each as often as its rate says and whole at least once."""
    sizes = {name: len(sides) for name, sides in tasks.items()}
    rates = mixing_rates(sizes, wishes.temperature, wishes.cap)
    whole = max(size / rates[name] for name, size in sizes.items())
    found = Sides()
    for number, (name, sides) in enumerate(tasks.items()):
        wanted = round(whole * rates[name])
        luck = chance.keys(chance.key(wishes.seed, chance.stream("answering.mix"), number), np.arange(len(sides)))
        order = np.argsort(luck)
        drawn = sides.take([int(order[at % len(sides)]) for at in range(wanted)])
        found.sources += drawn.sources
        found.answers += drawn.answers
        found.places += drawn.places
        shown = name or wishes.prefix or "the first task"
        say(f"{shown!r}: {len(sides):,} pairs, {rates[name]:.1%} of what is drawn")
    return found
