"""Pairs of texts in, a model that answers out: what `sesame finetune --task seq2seq` does.

    read the pairs -> the same pre-training loop from MODEL, recipe `answer`, with several seeds -> answers -> scores

    OUT/recipe.toml  results.json  predictions.jsonl
    OUT/pairs/       train.jsonl and valid.jsonl as they are learnt from: prefixes before the sources, tasks mixed
    OUT/seed-N/      a run each, see `pretraining/run.py`; result.json
    OUT/final/       the seed that is best on the validation data

Scores of the test data are computed, but nothing is ever chosen by them. Under `torchrun` all processes share each training,
the first one answers.
"""

import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from sesame.checkpoint.cards import answer_card
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.run import Run
from sesame.checkpoint.speech import answer_frame
from sesame.config import parse_setting, says_steps
from sesame.data.answer_pack import AnswerPacker, plan_batches
from sesame.data.build import build_pairs
from sesame.data.cache import cache_folder
from sesame.data.pack import Specials
from sesame.data.parts import hold_out
from sesame.errors import SesameError
from sesame.evaluate.spoken import Sides, answer_all, check_metric, open_answering, score_answers
from sesame.evaluate.statistics import summary
from sesame.files import read_json, write_json, write_whole
from sesame.finetuning.answering_pairs import SIDES, read_pairs_of, sum_of, write_pairs
from sesame.finetuning.answering_wishes import Wishes
from sesame.generate import Settings
from sesame.pretraining.inputs import files_of_model, sums_of
from sesame.pretraining.run import pretrain
from sesame.pretraining.wishes import Wishes as Training
from sesame.progress import many_steps, say
from sesame.recipe import Recipe, resolve
from sesame.train.parallel import World, join

RECIPE = "answer"
FEW, SEEDS = 10_000, 3  # below so many pairs one seed says little
EPOCHS, LEAST_STEPS, MOST_EPOCHS = 3.0, 500, 60.0  # as for other tasks: recipes/transfer/full.toml
WIDTH = 768  # the recipe's rate is for so many columns


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
            write_pairs(self.folder, parts)
        self.world.wait()
        seeds = self.wishes.seeds or (SEEDS if len(parts["train"]) < FEW else 1)
        steps = self._steps()
        say(
            f"seq2seq on {len(parts['train']):,} pairs, {many_steps(steps)}, {seeds} {'seed' if seeds == 1 else 'seeds'}"
        )
        found = [self._seed(self.wishes.seed + number, steps, parts) for number in range(seeds)]
        if self.world.first:
            self._finish(found, parts)
        self.world.wait()

    def read(self) -> dict[str, Sides]:
        """train, valid and perhaps test; the run is bound to what they hold."""
        parts = read_pairs_of(self.wishes)
        self.run.bind([sum_of(sides) for sides in parts.values()])
        return parts

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
            asked: dict[str, Any] = {"beams": w.beams, "alpha": w.alpha, "most": w.most}
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
