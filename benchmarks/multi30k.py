"""What makes a small Transformer translate well? Multi30k, English to German: trials with several seeds, BLEU of both tests.

    python benchmarks/multi30k.py OUT --data DATA [--trials all,plain-loss] [--budget 120] [--seeds 3] [--parallel 3]
    python benchmarks/multi30k.py OUT --data DATA --trial "narrow=transformer backbone.width=128 backbone.inner=256"
    python benchmarks/multi30k.py --table OUT [--name attention] [--draw docs/attention.svg --data DATA]

DATA holds train.jsonl.gz, dev.jsonl and test*.jsonl with "en" and "de" in each row. A trial is a recipe and settings that
differ from it (`--trial` adds one of your own); every one is scored twice, as it ended and as the mean of its last
checkpoints, so that the table shows what averaging adds too. The budget is seconds of training from the first step on. Trials
run side by side (`--parallel`), which only takes from what each can do in its seconds. What a trial reached is kept in
OUT/TRIAL.SEED.json, and is not made again; `--table` writes what OUT holds into benchmarks/README.md, between the markers of
`--name`, and `--draw` makes a picture of BLEU by the length of the source, over both tests and all seeds.
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import report
from side_by_side import by_trial, chosen, keep, options, parted, side_by_side, spread

CHECKPOINTS, LAST = 20, 5  # of a run, and of those for the mean
BEAMS, AT_ONCE = 5, 256  # sources at a time: a GPU takes as long for a step of few as for one of many
TRIALS: dict[str, tuple[str, list[str]]] = {
    "all": ("transformer", []),
    "plain-loss": ("transformer", ["objectives.seq2seq.smoothing=0"]),
    "no-warm-up": ("transformer", ["schedule.warmup=0"]),
    "norms-last": ("transformer", ["backbone.order=post", "optimizer.kind=muon", "schedule.kind=inverse_sqrt"]),
    "agreement": ("transformer", ["objectives.seq2seq.agreement=5"]),
    # before the Transformer: without attention, with each score, with a window
    "seq2seq": ("seq2seq", []),
    "rnnsearch": ("rnnsearch", []),
    **{f"luong-{score}": ("luong", [f"backbone.score={score}"]) for score in ("dot", "general", "scaled", "cosine")},
    "luong-additive": ("luong", ["backbone.score=additive"]),
    "luong-local-p": ("luong", ["backbone.attention=local-p"]),
}
TIPS = ("all", "plain-loss", "no-warm-up")  # unless others are named


def train(name: str, seed: int, given: argparse.Namespace) -> Path:
    from sesame.pretraining.run import Wishes, pretrain

    recipe, settings = TRIALS[name]
    out = given.out / "runs" / f"{name}.{seed}"
    wishes = Wishes(
        recipe=recipe, text=[], out=out, size=given.size, seed=seed, device=given.device, budget=given.budget, rehearse=True,
        pairs=[f"en-de={given.data / 'train.jsonl.gz'}"], valid=[f"en-de={given.data / 'dev.jsonl'}"],
        tokenizer=given.tokenizer, settings=[*settings, *given.set], keep=LAST,
        save_minutes=given.budget / 60 / CHECKPOINTS,
    )  # fmt: skip
    pretrain(wishes)
    return Path(out)


def test(model: Path, file: Path, device: str) -> dict[str, Any]:
    """BLEU and chrF of a test set as percentages, and what was said."""
    import sesame
    from sesame.evaluate.spoken import score_answers

    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    loaded = sesame.load(model, device=device)
    answers = loaded.translate([row["en"] for row in rows], beams=BEAMS, batch=AT_ONCE)
    said = [best[0].text for best in answers]
    found = score_answers([row["de"] for row in rows], said)
    return {
        "bleu": 100 * found.values["bleu"], "chrf": 100 * found.values["chrf"],
        "signature": found.signatures["bleu"], "said": said,
    }  # fmt: skip


def one(name: str, seed: int, given: argparse.Namespace) -> None:
    """Within a process of its own."""
    from sesame.averaging import average, last_checkpoints

    run = train(name, seed, given)
    began = time.monotonic()
    mean = run / "mean"
    if not mean.exists():
        average(last_checkpoints(run, LAST), mean)
    tests = sorted(given.data.glob("test*.jsonl"))
    scores = {
        kind: {file.stem: test(model, file, given.device) for file in tests}
        for kind, model in (("last", run / "final"), ("mean", mean))
    }
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    found = {
        "scores": scores,
        "steps": max(line["step"] for line in steps),
        "tokens": max(line.get("tokens", 0) for line in steps),
        "seconds of testing": round(time.monotonic() - began, 1),
    }
    keep(name, seed, given, found)
    said = {kind: {test: round(values["bleu"], 2) for test, values in each.items()} for kind, each in scores.items()}
    print(f"{name} seed {seed}: {found['steps']:,} steps, BLEU {said}", flush=True)


def added(trials: list[str]) -> None:
    """Trials of the command line: "NAME=RECIPE key=value key=value"."""
    for trial in trials:
        name, _, words = trial.partition("=")
        recipe, *settings = words.split() or [""]
        if not recipe or "." in name:
            raise SystemExit(f'--trial {trial!r}: give it as "NAME=RECIPE key=value ...", without a dot in the name')
        TRIALS[name] = (recipe, settings)


def compare(given: argparse.Namespace) -> None:
    tokenizer = given.tokenizer or str(shared_tokenizer(given))
    own = ",".join(trial.partition("=")[0] for trial in given.trial)
    side_by_side(chosen(given.trials or own or ",".join(TIPS), TRIALS), given, more=["--tokenizer", tokenizer])


def shared_tokenizer(given: argparse.Namespace) -> Path:
    """The recipe's, trained once for all trials and seeds."""
    from sesame.pretraining.run import Wishes, pretrain

    folder: Path = given.out / "runs" / "tokenizer"
    if not (folder / "tokenizer" / "tokenizer.json").is_file():
        pairs = [f"en-de={given.data / 'train.jsonl.gz'}"]
        pretrain(Wishes("transformer", [], folder, size=given.size, pairs=pairs, steps=1, device="cpu", compile=False))
    return folder / "tokenizer"


def results(out: Path) -> dict[str, list[dict[str, Any]]]:
    """By trial, one for each seed; in the order of the trials."""
    found = by_trial(out)
    return {name: found[name] for name in dict.fromkeys([*TRIALS, *found]) if name in found}


def draw(out: Path, data: Path, picture: Path) -> None:
    from sesame.explain.by_length import by_length
    from sesame.explain.drawing import draw_lengths

    found = results(out)
    seeds = min(map(len, found.values()))
    files = sorted(data.glob("test*.jsonl"))
    rows = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    said = {
        name: [text for line in lines[:seeds] for file in files for text in line["scores"]["mean"][file.stem]["said"]]
        for name, lines in found.items()
    }
    groups = by_length([row["en"] for row in rows] * seeds, [row["de"] for row in rows] * seeds, said)
    draw_lengths(groups, picture, "Multi30k, English to German: BLEU by the length of the source")
    for group in groups:
        print(group.name, {name: round(100 * score.value, 1) for name, score in group.scores.items()})


def table(out: Path) -> str:
    found = results(out)
    first = next(iter(found.values()))[0]
    tests, seeds = list(first["scores"]["last"]), max(map(len, found.values()))
    rows = []
    for name, lines in found.items():
        for kind, words in (("mean", f"mean of {LAST} checkpoints"), ("last", "last checkpoint")):
            bleu = [spread([line["scores"][kind][test]["bleu"] for line in lines]) for test in tests]
            chrf = [spread([line["scores"][kind][test]["chrf"] for line in lines]) for test in tests]
            steps = round(statistics.mean(line["steps"] for line in lines))
            rows.append([name, words, f"{steps:,}", *bleu, *chrf])
    head = ["trial", "model", "steps", *(f"BLEU {test}" for test in tests), *(f"chrF {test}" for test in tests)]
    how = (
        f"Size {first['size']}, {first['budget']:g} s of training each, up to {first['parallel']} trials at a time on one "
        f"device, beam {BEAMS}; mean ± deviation of {seeds} seeds. {first['scores']['last'][tests[0]]['signature']}. "
        f"{first['machine']}"
    )
    return f"{how}\n\n{report.table(head, rows)}"


def main() -> None:
    parser = options("Translation on Multi30k.", seeds=3, parallel=3, size="small", budget=120.0)
    parser.add_argument("--trial", action="append", default=[], help="NAME=RECIPE key=value ...; repeat for several")
    parser.add_argument("--tokenizer", help="instead of the recipe's, trained on the pairs")
    parser.add_argument("--name", default="multi30k", help="of the place in README.md where the table goes")
    parser.add_argument("--draw", type=Path)
    given = parser.parse_args()
    added(given.trial)
    if given.table:
        report.put(given.name, table(given.table))
        if given.draw:
            draw(given.table, given.data, given.draw)
    elif given.out is None or given.data is None:
        parser.error("OUT and --data are needed")
    elif given.one:
        one(*parted(given.one), given)
    else:
        compare(given)


if __name__ == "__main__":
    main()
