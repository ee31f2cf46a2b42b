"""Which setting learns more from the same tokens? Pre-training runs side by side, tuned alike, over seeds.

    python benchmarks/studies.py optimizers OUT --text TEXT... [--tokenizer FOLDER] [--parallel 4] [--steps 1500]
    python benchmarks/studies.py precision OUT --text TEXT... [--rates 1e-3] [--sides mixed]
    python benchmarks/studies.py --table OUT/optimizers.json [--draw docs/optimizers.svg]

Each side is tuned first: one seed at every rate of a grid, the best held-out loss chooses. Then it runs with more seeds at
that rate. All runs of a study take the same steps, so that it does not matter that several share a device. The first seed
was also used for choosing; its loss is reported with the others.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

COMMON = (
    "bert --size small --set objectives.nsp=false --set objectives.mlm.static=0 --set stages.short.packing=blocks "
    "--set stages.short.batch=256 --set stages.short.share=1 --set stages.long.share=0 --set backbone.order=pre "
    "--set backbone.dropout=0 --set backbone.attention_dropout=0 --set schedule.warmup=0.1 --set evaluation.every=0.05 "
    "--set optimizer.beta2=0.98 --set optimizer.decay=0.05"
)


@dataclass(frozen=True)
class Side:
    arguments: str
    rates: Sequence[float]


STUDIES = {
    "optimizers": {
        "AdamW": Side("--set optimizer.kind=adamw", (2.5e-4, 5e-4, 1e-3)),
        "Muon": Side("--set optimizer.kind=muon", (1e-3, 2e-3, 4e-3)),
    },
    "precision": {name: Side(f"--precision {name}", (5e-4,)) for name in ("bf16", "mixed", "fp32")},
}


@dataclass(frozen=True)
class Job:
    side: str
    rate: float
    seed: int

    @property
    def name(self) -> str:
        return f"{self.side}-{self.rate:g}-{self.seed}".lower()


def run(side: Side, job: Job, given: argparse.Namespace) -> dict[str, Any]:
    """One training; what its folder's metrics say of the held-out loss."""
    folder = given.out / "runs" / job.name
    command = [sys.executable, "-m", "sesame", "pretrain", *COMMON.split(), *side.arguments.split()]
    command += ["--set", f"optimizer.rate={job.rate}", "--seed", str(job.seed), "--steps", str(given.steps)]
    command += ["--text", *map(str, given.text), "--out", str(folder)]
    command += ["--tokenizer", str(given.tokenizer)] if given.tokenizer else []
    command += ["--valid", str(given.valid)] if given.valid else []
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{job.name}.txt").open("w") as log:
        code = subprocess.run(command, stdout=log, stderr=log, env=os.environ | {"PYTHONUNBUFFERED": "1"}).returncode
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()] if code == 0 else []
    curve = [(line["step"], line["held_out"]["mlm"]) for line in lines if "held_out" in line]
    found = {"side": job.side, "rate": job.rate, "seed": job.seed, "loss": curve[-1][1] if curve else None}
    print(json.dumps(found), flush=True)
    return {**found, "curve": curve, "tokens": max((line.get("tokens", 0) for line in lines), default=0)}


def conduct(name: str, given: argparse.Namespace) -> list[dict[str, Any]]:
    sides = {side: STUDIES[name][side] for side in given.sides or STUDIES[name]}

    def all_of(jobs: list[Job]) -> list[dict[str, Any]]:
        return list(pool.map(lambda job: run(sides[job.side], job, given), jobs))

    with ThreadPoolExecutor(given.parallel) as pool:
        tried = [Job(name, rate, 0) for name, side in sides.items() for rate in given.rates or side.rates]
        # A few steps alone first: they write the token store and compile what the others then share.
        run(sides[tried[0].side], replace(tried[0], side="rehearsal"), argparse.Namespace(**vars(given) | {"steps": 4}))
        found = all_of(tried)
        return found + all_of([Job(name, best_rate(found, name), n) for name in sides for n in range(1, given.seeds)])


def best_rate(found: list[dict[str, Any]], side: str) -> float:
    losses = {line["rate"]: line["loss"] for line in found if line["side"] == side and line["loss"] is not None}
    if not losses:
        raise SystemExit(f"no run of {side} came to its end; its log is in the folder of runs")
    return min(losses, key=lambda rate: losses[rate])


def table(found: list[dict[str, Any]]) -> str:
    import report

    rows = []
    for side in dict.fromkeys(line["side"] for line in found):
        best = best_rate([line for line in found if line["seed"] == 0], side)
        tried = [
            f"{line['rate']:g}: " + ("diverged" if line["loss"] is None else f"{line['loss']:.3f}")
            for line in found
            if line["side"] == side and line["seed"] == 0
        ]
        losses = [line["loss"] for line in found if line["side"] == side and line["rate"] == best]
        spread = f" ± {statistics.stdev(losses):.4f}" if len(losses) > 1 else ""
        each = ", ".join(f"{loss:.4f}" for loss in losses)
        rows.append([side, "; ".join(tried), f"{best:g}", f"{statistics.mean(losses):.4f}{spread}", each])
    tokens = max(line["tokens"] for line in found)
    head = ["side", "held-out loss at each rate, seed 0", "rate", "held-out loss, mean ± deviation", "seeds"]
    return f"{tokens / 1e6:.0f} M tokens each\n\n{report.table(head, rows)}"


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """Held-out loss over steps, one line for each seed at the chosen rate."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.6))
    axes = figure.add_subplot()
    for number, side in enumerate(dict.fromkeys(line["side"] for line in found)):
        best = best_rate([line for line in found if line["seed"] == 0], side)
        for line in (line for line in found if line["side"] == side and line["rate"] == best):
            steps, losses = zip(*line["curve"], strict=True)
            label = f"{side}, rate {best:g}" if line["seed"] == 0 else None
            axes.plot(steps, losses, color=f"C{number}", linewidth=1, label=label)
    axes.set_xlabel("step")
    axes.set_ylabel("held-out loss, nats")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare settings at the same tokens.")
    parser.add_argument("study", nargs="?", choices=tuple(STUDIES))
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--text", nargs="+", type=Path)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--valid", type=Path)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--rates", nargs="+", type=float, help="instead of the study's own")
    parser.add_argument("--sides", nargs="+", help="some of the study's")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--parallel", type=int, default=4, help="runs at the same time")
    parser.add_argument("--table", type=Path)
    parser.add_argument("--draw", type=Path)
    given = parser.parse_args()
    if given.table:
        found = json.loads(given.table.read_text())
    else:
        found = conduct(given.study, given)
        (given.out / f"{given.study}.json").write_text(json.dumps(found))
    print(table(found))
    if given.draw:
        draw(found, given.draw)


if __name__ == "__main__":
    main()
