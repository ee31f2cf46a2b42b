"""Does ELECTRA's generator learn as it would alone, and does the discriminator see?

    python benchmarks/electra.py OUT --text TEXT... [--tokenizer FOLDER] [--sst2 FOLDER] [--budget 4m] [--size small]
                                     [--recipe sesame-rtd --set backbone.depth=12 ...]

1. `sesame pretrain electra` (or another recipe that tells replaced tokens) for the budget.
2. The generator's shape by itself, as a masked language model: the run's recipe with masks instead of replaced tokens, for
   as many steps, at the generator's rate.
3. With `--sst2`, the discriminator is fine-tuned on that set, three seeds, in several ways: our defaults, and these with one
   thing changed. (Other rates, dropout, slower lower layers and the paper's table 7 came out lower: docs/log.md.)

Says the two held-out losses and their ratio, the discriminator's average precision beside the share of replaced tokens, and
the accuracy. What stands in OUT is not made again.
"""

import argparse
import json
import os
import statistics
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from side_by_side import sesame, shared_device, spread

TEACHING = {
    "defaults": [],
    "mean of the states": ["task.pooling=mean"],
}
SEEDS = 3
SHAPE = ("width", "depth", "heads", "inner", "embedding_width")


def settings(values: list[str]) -> list[str]:
    return [word for value in values for word in ("--set", value)]


def held_out(run: Path) -> tuple[int, dict[str, float]]:
    """The last step, and what was seen there."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return next((line["step"], line["held_out"]) for line in reversed(lines) if "held_out" in line)


def common(given: argparse.Namespace) -> list[str]:
    both = ["--text", *map(str, given.text)]
    return both + (["--tokenizer", str(given.tokenizer)] if given.tokenizer else [])


def together(given: argparse.Namespace) -> dict[str, float]:
    run = given.out / "electra"
    compiled = ["--rehearse"] if given.rehearse else []
    how = ["--size", given.size, "--budget", given.budget, *compiled, *settings(given.set), "--device", given.device]
    sesame("pretrain", given.recipe, *common(given), *how, "--out", str(run))
    return held_out(run)[1]


def alone(ours: dict[str, Any], shape: dict[str, int]) -> dict[str, Any]:
    """The recipe of a run for its generator alone."""
    replaced = ours["objectives"]["rtd"]
    masks = {"rate": replaced["rate"], "mask": replaced["mask"], "random": 0.0}
    rate = ours["optimizer"]["rate"] * replaced["generator_rate"]
    return {name: value for name, value in ours.items() if name != "run"} | {
        "name": "generator-alone",
        "backbone": ours["backbone"] | shape,
        "objectives": {"mlm": masks},
        "optimizer": ours["optimizer"] | {"rate": rate},
    }


def by_itself(given: argparse.Namespace) -> dict[str, float]:
    from sesame.checkpoint.loading import load_parts
    from sesame.config import dump_toml, read_toml

    run, out = given.out / "electra", given.out / "alone"
    config = load_parts(run / "final/generator", tokenizer=False).backbone.config
    recipe = given.out / "alone.toml"
    recipe.write_text(dump_toml(alone(read_toml(run / "recipe.toml"), {name: getattr(config, name) for name in SHAPE})))
    how = ["--steps", str(held_out(run)[0]), "--device", given.device]
    sesame("pretrain", str(recipe), *common(given), *how, "--out", str(out))
    return held_out(out)[1]


def taught(given: argparse.Namespace, way: str, seed: int) -> dict[str, float]:
    """Accuracy on rows that were kept aside, and on the test rows."""
    out = given.out / "sst2" / f"{way.replace(' ', '-')}-{seed}"
    model, task = str(given.out / "electra/final"), ["--task", "classify", "--seeds", "1", "--seed", str(seed)]
    files = ["--train", str(given.sst2 / "train.jsonl.gz"), "--test", str(given.sst2 / "dev.jsonl"), "--no-baselines"]
    how = ["--device", given.device, *settings([*TEACHING[way], *given.teach])]
    sesame("finetune", model, *task, *files, *how, "--out", str(out))
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
    parser.add_argument("--recipe", default="electra")
    parser.add_argument("--size", default="small")
    parser.add_argument("--rehearse", action="store_true", help="do not count compilation")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--teach", action="append", default=[], help="key=value for the fine-tunings")
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    ours = together(given)
    with shared_device() as how, ThreadPoolExecutor(len(TEACHING) * SEEDS) as pool:  # nothing is timed
        os.environ |= how
        ways = TEACHING if given.sst2 else ()
        jobs = {way: [pool.submit(taught, given, way, seed) for seed in range(SEEDS)] for way in ways}
        single = by_itself(given)
    print(f"generator: {ours['mlm']:.4f}, alone: {single['mlm']:.4f}, ratio {ours['mlm'] / single['mlm']:.4f}")
    print(
        f"discriminator: average precision {ours['rtd_average_precision']:.3f} where {ours['replaced']:.3f} are replaced, "
        f"recall {ours['rtd_recall']:.3f}, precision {ours['rtd_precision']:.3f}"
    )
    say_taught({way: [job.result() for job in runs] for way, runs in jobs.items()})


if __name__ == "__main__":
    main()
