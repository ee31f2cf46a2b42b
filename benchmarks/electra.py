"""Does ELECTRA's generator learn as it would alone, and does the discriminator see?

    python benchmarks/electra.py OUT --text TEXT... [--tokenizer FOLDER] [--sst2 FOLDER] [--budget 4m] [--size small]

1. `sesame pretrain electra` for the budget.
2. The generator's shape by itself, as a masked language model: the same tokenizer, rows, masks, schedule and number of
   steps, and the generator's rate.
3. With `--sst2`, the discriminator is fine-tuned on that set, three seeds, in several ways: our defaults, other rates, with
   dropout. The way is chosen on validation rows. (As in the paper's table 7 it came out far lower: docs/log.md.)

Says the two held-out losses and their ratio, the discriminator's average precision beside the share of replaced tokens, and
the accuracy. What stands in OUT is not made again.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from side_by_side import shared_device, spread

ALONE = """
base = "electra"
name = "generator-alone"

[objectives]
rtd = false

[objectives.mlm]
rate = 0.15
mask = 0.85
random = 0.0
"""
TEACHING = {
    "defaults": [],
    "half the rate": ["optimizer.rate=2.5e-5"],
    "twice the rate": ["optimizer.rate=1e-4"],
    "half the rate, dropout": ["optimizer.rate=2.5e-5", "task.dropout=0.1"],
}
SEEDS = 3
SHARED = ("backbone", "stages.main", "optimizer", "schedule")  # tables of a recipe


def sesame(*arguments: str) -> None:
    print("sesame", *arguments, flush=True)
    subprocess.run([sys.executable, "-m", "sesame", *arguments], check=True)


def settings(values: list[str]) -> list[str]:
    return [word for value in values for word in ("--set", value)]


def held_out(run: Path) -> tuple[int, dict[str, float]]:
    """The last step, and what was seen there."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return next((line["step"], line["held_out"]) for line in reversed(lines) if "held_out" in line)


def common(given: argparse.Namespace) -> list[str]:
    both = ["--text", *map(str, given.text), "--size", given.size]
    return both + (["--tokenizer", str(given.tokenizer)] if given.tokenizer else [])


def together(given: argparse.Namespace) -> dict[str, float]:
    run = given.out / "electra"
    compiled = ["--rehearse"] if given.rehearse else []
    timed = ["--budget", given.budget, *compiled]
    sesame("pretrain", "electra", *common(given), *timed, "--out", str(run), *settings(given.set))
    return held_out(run)[1]


def as_trained(ours: dict[str, Any]) -> list[str]:
    """The settings of a run that the generator alone is to have too; its rate is the generator's."""
    found = []
    for table in SHARED:
        values = ours["stages"]["main"] if table == "stages.main" else ours[table]
        plain = {
            key: value for key, value in values.items() if isinstance(value, (bool, int, float, str)) and value != ""
        }
        found += [f"{table}.{key}={json.dumps(value).strip(chr(34))}" for key, value in plain.items()]
    return [*found, f"optimizer.rate={ours['optimizer']['rate'] * ours['objectives']['rtd']['generator_rate']:g}"]


def by_itself(given: argparse.Namespace) -> dict[str, float]:
    run, alone = given.out / "electra", given.out / "alone"
    steps = held_out(run)[0]
    shape = json.loads((run / "final/generator/config.json").read_text())
    narrow = {
        "width": shape["hidden_size"], "depth": shape["num_hidden_layers"], "heads": shape["num_attention_heads"],
        "inner": shape["intermediate_size"], "embedding_width": shape["embedding_size"],
    }  # fmt: skip
    recipe = given.out / "alone.toml"
    recipe.write_text(ALONE)
    wanted = as_trained(tomllib.loads((run / "recipe.toml").read_text(encoding="utf-8")))
    wanted += [f"backbone.{name}={value}" for name, value in narrow.items()]
    sesame("pretrain", str(recipe), *common(given), "--steps", str(steps), "--out", str(alone), *settings(wanted))
    return held_out(alone)[1]


def taught(given: argparse.Namespace, way: str, seed: int) -> dict[str, float]:
    """Accuracy on rows that were kept aside, and on the test rows."""
    out = given.out / "sst2" / f"{way.replace(' ', '-')}-{seed}"
    model, task = str(given.out / "electra/final"), ["--task", "classify", "--seeds", "1", "--seed", str(seed)]
    files = ["--train", str(given.sst2 / "train.jsonl.gz"), "--test", str(given.sst2 / "dev.jsonl"), "--no-baselines"]
    sesame("finetune", model, *task, *files, "--out", str(out), *settings(TEACHING[way]))
    scores = json.loads((out / "results.json").read_text())["scores"]
    return {part: scores[part]["accuracy"]["mean"] for part in ("valid", "test")}


def say_taught(found: dict[str, list[dict[str, float]]]) -> None:
    means = {way: statistics.mean(one["valid"] for one in runs) for way, runs in found.items()}
    for way, runs in found.items():
        shown = ", ".join(f"{part} {spread([100 * one[part] for one in runs])}" for part in ("valid", "test"))
        print(f"SST-2, {way}: {shown}{'; chosen on valid' if means[way] == max(means.values()) else ''}")


def main() -> None:
    parser = argparse.ArgumentParser(description="ELECTRA's generator against itself alone.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--text", nargs="+", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--sst2", type=Path)
    parser.add_argument("--budget", default="4m")
    parser.add_argument("--size", default="small")
    parser.add_argument("--rehearse", action="store_true", help="do not count compilation")
    parser.add_argument("--set", action="append", default=[])
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    ours = together(given)
    with shared_device() as how, ThreadPoolExecutor(len(TEACHING) * SEEDS) as pool:  # nothing is timed
        os.environ |= how
        ways = TEACHING if given.sst2 else ()
        jobs = {way: [pool.submit(taught, given, way, seed) for seed in range(SEEDS)] for way in ways}
        alone = by_itself(given)
    print(f"generator: {ours['mlm']:.4f}, alone: {alone['mlm']:.4f}, ratio {ours['mlm'] / alone['mlm']:.4f}")
    print(
        f"discriminator: average precision {ours['rtd_average_precision']:.3f} where {ours['replaced']:.3f} are replaced, "
        f"recall {ours['rtd_recall']:.3f}, precision {ours['rtd_precision']:.3f}"
    )
    say_taught({way: [job.result() for job in runs] for way, runs in jobs.items()})


if __name__ == "__main__":
    main()
