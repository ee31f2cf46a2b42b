"""How well does a translator parse? Sentences to linearised trees on the free tenth of the Penn Treebank, bracket F1.

    python benchmarks/parsing.py OUT --trees trees.jsonl.gz [--trials transformer,luong] [--budget 120] [--seeds 3]
    python benchmarks/parsing.py --table OUT

Each row of the file has "file" (wsj_0001 to wsj_0199) and "tree", in brackets. There is no official split: files up to 0159
teach, 0160 to 0179 are looked at while training, 0180 to 0199 test. 3,000 trees are few: Vinyals et al. 2015 had 40,000 and
reached 88.3 with attention, below 70 without. What a trial reached is kept in OUT; `--table` writes it into
benchmarks/README.md.
"""

import argparse
import gzip
import json
import statistics
import subprocess
import sys
from pathlib import Path

import report
from side_by_side import by_trial, chosen, keep, options, parted, side_by_side, spread

SPLITS = {"train": (1, 159), "valid": (160, 179), "test": (180, 199)}
SHORT = 30  # words; longer sentences are scored apart
BEAMS, AT_ONCE = 5, 256  # sources at a time: a GPU takes as long for a step of few as for one of many
SMALL = ["tokenizer.size=4000", "backbone.dropout=0.3"]
TRIALS: dict[str, tuple[str, list[str]]] = {
    "transformer": ("transformer", SMALL),
    "luong": ("luong", SMALL),
    "seq2seq": ("seq2seq", SMALL),
}


def write_pairs(trees: Path, out: Path) -> None:
    """The three parts as pairs of a sentence and its tree in one line."""
    with gzip.open(trees, "rt", encoding="utf-8") as handle:
        rows = [json.loads(line) for line in handle]
    for name, (first, last) in SPLITS.items():
        inside = [row["tree"] for row in rows if first <= int(row["file"].removeprefix("wsj_")) <= last]
        brackets, pairs = out / f"{name}.mrg", out / f"{name}.jsonl"
        if not pairs.exists():
            brackets.write_text("\n".join(inside) + "\n", encoding="utf-8")
            subprocess.run([sys.executable, "-m", "sesame", "trees", brackets, "--out", pairs], check=True)


def one(name: str, seed: int, given: argparse.Namespace) -> None:
    """Within a process of its own."""
    import sesame
    from sesame.evaluate.spoken import score_answers
    from sesame.pretraining.run import Wishes, pretrain

    recipe, settings = TRIALS[name]
    files = {part: given.out / "pairs" / f"{part}.jsonl" for part in SPLITS}
    run = given.out / "runs" / f"{name}.{seed}"
    pretrain(
        Wishes(
            recipe=recipe, text=[], out=run, size=given.size, seed=seed, device=given.device, budget=given.budget,
            pairs=[f"words-tree={files['train']}"], valid=[f"words-tree={files['valid']}"], rehearse=True,
            settings=[*settings, *given.set],
        )
    )  # fmt: skip
    rows = [json.loads(line) for line in files["test"].read_text(encoding="utf-8").splitlines()]
    loaded = sesame.load(run / "final", device=given.device)
    answers = loaded.translate([row["source"] for row in rows], beams=BEAMS, batch=AT_ONCE)
    said = [best[0].text for best in answers]
    short = [len(row["source"].split()) <= SHORT for row in rows]
    groups = {"all": [True] * len(rows), f"up to {SHORT} words": short, "longer": [not one for one in short]}
    scores = {}
    for group, inside in groups.items():
        wanted = [row["target"] for row, there in zip(rows, inside, strict=True) if there]
        given_answers = [answer for answer, there in zip(said, inside, strict=True) if there]
        scores[group] = 100 * score_answers(wanted, given_answers, trees=True).values["brackets"]
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    found = {"scores": scores, "steps": max(line["step"] for line in lines)}
    keep(name, seed, given, found)
    print(f"{name} seed {seed}: {found['steps']:,} steps, F1 { {group: round(x, 1) for group, x in scores.items()} }")


def table(out: Path) -> str:
    found = by_trial(out)
    first = next(iter(found.values()))[0]
    groups = list(first["scores"])
    rows = [
        [
            name, f"{statistics.mean(line['steps'] for line in lines):,.0f}",
            *(spread([line["scores"][group] for line in lines], 1) for group in groups),
        ]
        for name, lines in found.items()
    ]  # fmt: skip
    seeds = max(map(len, found.values()))
    how = (
        f"Size {first['size']}, {first['budget']:g} s of training, up to {first['parallel']} trials at a time on one device, "
        f"beam {BEAMS}; labelled bracket F1 on files 0180 to 0199, mean ± deviation of {seeds} seeds. {first['machine']}"
    )
    return f"{how}\n\n{report.table(['model', 'steps', *(f'F1, {group}' for group in groups)], rows)}"


def main() -> None:
    parser = options("Parsing as translation.", seeds=3, parallel=2, size="small", budget=120.0)
    parser.add_argument("--trees", type=Path)
    parser.set_defaults(trials="transformer,luong")
    given = parser.parse_args()
    if given.table:
        report.put("parsing", table(given.table))
    elif given.out is None or given.trees is None:
        parser.error("OUT and --trees are needed")
    elif given.one:
        one(*parted(given.one), given)
    else:
        (given.out / "pairs").mkdir(parents=True, exist_ok=True)
        write_pairs(given.trees, given.out / "pairs")
        side_by_side(chosen(given.trials, TRIALS), given)


if __name__ == "__main__":
    main()
