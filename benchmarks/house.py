"""Does every choice of the house recipe earn its place? The recipe, and the recipe with one choice taken back, at equal time.

    python benchmarks/house.py OUT --text TEXT... --tokenizer FOLDER [--budget 25] [--trials "with biases,GELU"]
    python benchmarks/house.py --table OUT

Each trial has the device for itself while its seconds count; compilation comes before (`pipeline.py`). What counts is the
loss on held-out text, rows of 128 tokens of which 15 % are masked, the same for all. `--table` writes what OUT holds into
docs/log.md; a trial that is in OUT already is not made again.
"""

import argparse
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

from pipeline import Gate, Pipeline, warm_up
from side_by_side import chosen

LOG = Path(__file__).parent.parent / "docs" / "log.md"
IMPORTS = ["sesame.pretraining.run", "torch._dynamo", "torch.utils.tensorboard"]
TRIALS: dict[str, list[str]] = {
    "the house recipe": [],
    "norms last": ["backbone.order=post", "backbone.embedding_norm=false"],
    "learned positions": ["backbone.positions=learned"],
    "GELU": ["backbone.activation=gelu", "backbone.inner=1024"],
    "with biases": ["backbone.bias=true"],
    "AdamW": ["optimizer.kind=adamw", "optimizer.rate=2e-3"],
    "half the rate": ["optimizer.rate=2e-3"],
    "twice the rate": ["optimizer.rate=8e-3"],
    "AdamW's part at a quarter of Muon's rate": ["optimizer.rest=0.25"],
    "AdamW's part at twice Muon's rate": ["optimizer.rest=2"],
    "masks: 15 % throughout": ["objectives.mlm.rate=0.15"],
    "masks: 30 to 15 %": ["objectives.mlm.rate=0.30"],
    "masks: 40 to 15 %": ["objectives.mlm.rate=0.40"],
    "half the batch": ["stages.short.batch=256", "stages.long.batch=64", "stages.last.batch=256"],
    "twice the batch": ["stages.short.batch=1024", "stages.long.batch=256", "stages.last.batch=1024"],
    "no long rows": ["stages.long.share=0", "stages.short.share=1", "stages.last.share=0"],
    "long rows at the end": ["stages.short.share=0.9", "stages.last.share=0"],
    "a ramp of 300 batches": ["stages.short.ramp=300"],
}


def file_name(trial: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in trial)


def pretrain(trial: str, gate: Gate, given: argparse.Namespace) -> None:
    from sesame.pretraining.run import Wishes
    from sesame.pretraining.run import pretrain as run

    run(
        Wishes(
            recipe="sesame", text=given.text, out=given.out / "runs" / file_name(trial), size=given.size, seed=given.seed,
            device=given.device, budget=given.budget, rehearse=True, ready=gate, tokenizer=given.tokenizer,
            settings=TRIALS[trial],
        )
    )  # fmt: skip


def keep(trial: str, seconds: dict[str, float], given: argparse.Namespace) -> None:
    import report

    file = given.out / "runs" / file_name(trial) / "metrics.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    last = [line for line in lines if "tokens" in line][-1]
    found = {
        "trial": trial, "size": given.size, "budget": given.budget, "seed": given.seed, "steps": last["step"],
        "tokens": last["tokens"], "held_out": [line["held_out"] for line in lines if "held_out" in line][-1]["mlm"],
        "seconds": seconds,
        "machine": report.device_and_machine(),
    }  # fmt: skip
    (given.out / f"{file_name(trial)}.json").write_text(json.dumps(found))
    print(f"{trial}: {found['held_out']:.3f} after {found['tokens'] / 1e6:.0f} M tokens", flush=True)


def compare(given: argparse.Namespace, began: float) -> None:
    warm_up(IMPORTS)
    todo = [trial for trial in chosen(given.trials, TRIALS) if not (given.out / f"{file_name(trial)}.json").exists()]
    left = Pipeline(
        train=partial(pretrain, given=given), teach=print, jobs=lambda trial: [], finished=partial(keep, given=given),
        logs=given.out / "logs", ahead=given.ahead, began=began, until=given.until, expected=given.budget,
    ).run(todo)  # fmt: skip
    if left:
        print(f"no time was left for {', '.join(left)}; the same call again goes on", flush=True)


def table(out: Path) -> str:
    import report

    found: list[dict[str, Any]] = [json.loads(file.read_text()) for file in out.glob("*.json")]
    house = next(line["held_out"] for line in found if line["trial"] == "the house recipe")
    found.sort(key=lambda line: line["held_out"])
    rows = [
        [
            line["trial"], f"{line['steps']:,}", f"{line['tokens'] / 1e6:.0f}", f"{line['held_out']:.3f}",
            f"{line['held_out'] - house:+.3f}",
        ]
        for line in found
    ]  # fmt: skip
    first = found[0]
    how = f"Size {first['size']}, {first['budget']:g} s of training each, one seed. {first['machine']}"
    return f"{how}\n\n{report.table(['trial', 'steps', 'M tokens', 'held-out loss', 'against the recipe'], rows)}"


def main() -> None:
    began = time.monotonic()
    parser = argparse.ArgumentParser(description="Take back the choices of the house recipe one by one.")
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--text", nargs="+")
    parser.add_argument("--tokenizer")
    parser.add_argument("--budget", type=float, default=25.0, help="seconds of training")
    parser.add_argument("--size", default="mini")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trials", default="", help="a,b: these alone")
    parser.add_argument("--ahead", type=int, default=4, help="trials that are compiled at the same time")
    parser.add_argument(
        "--until", type=float, default=float("inf"), help="seconds, after which none should be under way"
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--table", type=Path)
    given = parser.parse_args()
    if given.table:
        import report

        report.put("house", table(given.table), LOG)
    elif given.out is None or not given.text:
        parser.error("OUT and --text are needed")
    else:
        compare(given, began)


if __name__ == "__main__":
    main()
