"""Does pre-training help an encoder-decoder to write? Subject lines of e-mails (AESLC), beside the same model from scratch.

    python benchmarks/subjects.py OUT --text TEXT... --data AESLC [--trials t5,t5-scratch,...] [--budget 90] [--seeds 3]
    python benchmarks/subjects.py --table OUT

t5, bart and mass are pre-trained at size mini for the budget (compilation not counted), each with a tokenizer of its own
kind; NAME-scratch has the same shape and tokenizer, no dropout either, and one step that moves nothing. Both are taught by
`sesame finetune --task seq2seq` with its defaults; ROUGE (F1) is of the test set. What a trial reached is kept in OUT;
`--table` writes it into benchmarks/README.md. The seeds are of the fine-tuning.
"""

import argparse
import json
from pathlib import Path

import report
from side_by_side import asked, chosen, keep, kept_lines, options, parted, sesame, side_by_side, untaught

RECIPES = ("t5", "bart", "mass")
SCRATCH = "-scratch"
ROUGE = ("rouge1", "rouge2", "rougeL")


def one(name: str, seed: int, given: argparse.Namespace) -> None:
    """Within a process of its own."""
    recipe, run, taught = name.removesuffix(SCRATCH), given.out / "runs" / name, given.out / "runs" / f"{name}.taught"
    both = ["pretrain", recipe, "--size", given.size, "--text", *given.text, "--device", given.device, "--out", run]
    tokenizer = given.tokenizers / recipe if given.tokenizers else None
    both += ["--tokenizer", tokenizer] if tokenizer else []
    if name.endswith(SCRATCH):
        still = [*untaught(recipe, given.size), "stages.main.batch=2"]  # the paper's batch takes minutes
        sesame(*both, "--steps", 1, "--no-compile", *(word for setting in still for word in ("--set", setting)))
    else:
        sesame(*both, "--budget", f"{given.budget:g}s", "--rehearse")
    files = ["--train", given.data / "train.jsonl.gz", "--valid", given.data / "dev.jsonl.gz"]
    files += ["--test", given.data / "test.jsonl.gz", "--source", "text", "--target", "summary"]
    how = ["--metric", "rougeL", "--seeds", given.seeds, "--device", given.device, "--most", 32]
    how += [word for setting in given.set for word in ("--set", setting)]
    sesame("finetune", run, "--task", "seq2seq", *files, *how, "--out", taught)
    results = json.loads((taught / "results.json").read_text())
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    test = results["scores"]["test"]
    found = {
        "seeds": given.seeds,
        "tokens": 0 if name.endswith(SCRATCH) else max(line.get("tokens", 0) for line in lines),
        "scores": {metric: [100 * (test[metric][x] or 0.0) for x in ("mean", "std")] for metric in ROUGE},
    }
    keep(name, seed, given, found)
    print(f"{name}: {found['scores']}", flush=True)


def table(out: Path) -> str:
    found = kept_lines(out)
    rows = [
        [line["trial"], f"{line['tokens'] / 1e6:.0f}", *("{:.2f} ± {:.2f}".format(*line["scores"][m]) for m in ROUGE)]
        for line in found
    ]
    first = found[0]
    how = (
        f"Size {first['size']}, {first['budget']:g} s of pre-training, up to {first['parallel']} trials at a time on one "
        f"device; mean ± deviation of {first['seeds']} seeds of the fine-tuning, test set. {first['machine']}"
    )
    return f"{how}\n\n{report.table(['model', 'M tokens', 'ROUGE-1', 'ROUGE-2', 'ROUGE-L'], rows)}"


def main() -> None:
    parser = options("Subject lines with and without pre-training.", seeds=3, parallel=3, size="mini", budget=90.0)
    parser.add_argument("--text", nargs="+")
    parser.add_argument("--tokenizers", type=Path, help="a folder of tokenizers, one for each recipe by its name")
    given = parser.parse_args()
    if given.table:
        report.put("subjects", table(given.table))
    elif given.out is None or given.data is None or not given.text:
        parser.error("OUT, --text and --data are needed")
    elif given.one:
        one(*parted(given.one), given)
    else:
        names = chosen(given.trials, [name + end for name in RECIPES for end in ("", SCRATCH)])
        side_by_side(names, given, seeds=1, made=lambda _: {**asked(given), "seeds": given.seeds})


if __name__ == "__main__":
    main()
