"""Which method teaches a small model most? Every recipe on the same text, tokenizer, size and seconds, then five tasks.

    python benchmarks/methods.py OUT --text TEXT... --data DATA [--budget 90] [--seeds 3] [--until 580] [--only bert,albert]
    python benchmarks/methods.py --table OUT
    python benchmarks/methods.py --recipes

The budget is training time: tokenizer, token store and compilation come before the clock starts (`train/rehearsal.py`), the
last look at held-out text comes within it. A recipe's numbers are its own under a budget; what is the same for all is the
text, the tokenizer (the recipes of `--own` make theirs), the size, the device and the fine-tuning (`finetune.py`). "scratch"
is an untrained BERT. A clock has the device for itself; compilations and fine-tunings share it in between (`pipeline.py`).
What a recipe reached is kept in OUT/RECIPE.json: a second call does only what is missing, and a recipe that fails is said and
left out. With `--until` a call ends in time, and says what is left. `--table` writes what OUT holds into docs/methods.md,
`--recipes` only that page's list of recipes. The results behind the page are kept in benchmarks/results/methods; another
recipe is added by copying its file there.
"""

import argparse
import gc
import json
import math
import os
import re
import signal
import statistics
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pipeline import Gate, Job, Pipeline, warm_up
from side_by_side import shared_device, untaught

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "methods.md"
TASKS = ("SST-2", "CoLA", "MRPC", "RTE", "STS-B")
SCRATCH = "scratch"
ENCODERS = ("encoder", "xlnet")  # the backbones that are compared here
TOLD = {  # of what held-out text shows, what the table has
    "mlm": "masks", "clm": "next token", "plm": "permuted", "nsp_accuracy": "next sentence", "sop_accuracy": "order",
    "rtd_average_precision": "replaced (average precision)",
}  # fmt: skip
IMPORTS = [
    "sesame.pretraining.run",
    "sesame.finetuning.run",
    "torch._dynamo",
    "torch.utils.tensorboard",
    "scipy.stats",
    "matplotlib.figure",
]
ASKED = ("size", "budget", "seeds", "rows", "vocab", "seed")  # what two results must agree in to stand in one table


def left_out(name: str) -> str:
    """Why a recipe cannot be compared on plain text in one language; "" if it can."""
    from sesame.recipe import read_recipe, resolve

    recipe = read_recipe(name)
    objectives = {name for name, values in recipe.get("objectives", {}).items() if values is not False}
    if name == "adapt":
        return "goes on from a model"
    if "dialogue" in objectives:
        return "reads dialogues"
    if recipe.get("backbone", {}).get("kind", "encoder") not in ENCODERS:
        return "is no encoder"
    if resolve(name).continues:
        return "is a decoder; benchmarks/perplexities.py measures it"
    if recipe.get("languages", {}).get("translated") and objectives & {"mlm", "rtd"}:
        return "needs translations; benchmarks/retrieval.py compares it"
    return ""


def names(given: argparse.Namespace) -> list[str]:
    from sesame.recipe import recipe_names

    known = {name: left_out(name) for name in recipe_names()} | {SCRATCH: ""}
    only = [name for name in given.only.split(",") if name]
    for name in only:
        if known.get(name, "no such recipe"):
            fit = ", ".join(name for name, why in known.items() if not why)
            raise SystemExit(f"--only {name}: {known.get(name, 'no such recipe')}; there are {fit}")
    return only or [name for name, why in known.items() if not why]


# ---- one recipe ---------------------------------------------------------------------------------------------------------


def shared_tokenizer(given: argparse.Namespace) -> Path:
    """BERT's kind, trained once on the text; or the user's."""
    if given.tokenizer:
        return Path(given.tokenizer)
    folder: Path = given.out / "tokenizer"
    if not (folder / "tokenizer.json").is_file():
        from sesame.data.corpus_files import corpus_files
        from sesame.pretraining.tokenizer_cache import cached_tokenizer
        from sesame.recipe import TokenizerConfig

        tokenizer = cached_tokenizer(corpus_files(given.text), "text", TokenizerConfig(size=given.vocab))
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer.save(folder)
    return folder


def pretrain(name: str, gate: Gate, given: argparse.Namespace) -> None:
    """Within a process of its own, so that nothing of one recipe is left when the next one starts."""
    from sesame.pretraining.run import Wishes
    from sesame.pretraining.run import pretrain as run

    out = given.out / "runs" / name
    if not (out / "final" / "config.json").is_file():  # scores are of this model, not of one that was lost
        for file in (given.out / "jobs").glob(f"{name}.*.json"):
            file.unlink()
    wishes = Wishes(
        recipe=name, text=given.text, out=out, size=given.size, seed=given.seed, device=given.device, budget=given.budget,
        rehearse=True, ready=gate, tokenizer=None if name in given.own.split(",") else str(shared_tokenizer(given)),
    )  # fmt: skip
    if name == SCRATCH:
        still = [*untaught("bert", given.size), "stages.short.batch=8"]
        wishes = replace(wishes, recipe="bert", budget=None, rehearse=False, steps=1, settings=still, compile=False)
    run(wishes)


def teach(what: tuple[str, str, int], given: argparse.Namespace) -> None:
    """One task with one seed, in a process that has done and will do others."""
    import torch

    import finetune

    torch.set_num_threads(max(1, (os.cpu_count() or 1) // given.parallel))
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # there are many of us
    name, task, seed = what
    spec = finetune.TASKS[task]
    spec = replace(spec, rows=min(spec.rows, given.rows))
    folder = given.out / "runs" / name / "final"
    values = finetune.ours(spec, str(folder), given.data, [seed], given.device)
    job_file(given.out, name, task, seed).write_text(json.dumps(values[0]))
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # for the clock that comes next


def jobs(name: str, given: argparse.Namespace) -> list[Job]:
    """The fine-tunings that are missing; all seeds of a long task go before a short one."""
    todo = [(task, seed) for task in TASKS for seed in range(given.seeds)]
    files = {(name, *what): job_file(given.out, name, *what) for what in todo}
    return [Job(name, what, file.with_suffix(".log")) for what, file in files.items() if not file.exists()]


def job_file(out: Path, name: str, task: str, seed: int) -> Path:
    return out / "jobs" / f"{name}.{task}.{seed}.json"


def reached(name: str, given: argparse.Namespace) -> dict[str, Any]:
    """What a recipe's run says of itself, and its scores."""
    import report
    from sesame.checkpoint.loading import load_parts

    run = given.out / "runs" / name
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "tokens" in line]
    looks = [line["held_out"] for line in lines if "held_out" in line]
    scores = {
        task: [json.loads(job_file(given.out, name, task, seed).read_text()) for seed in range(given.seeds)]
        for task in TASKS
    }
    encoder = load_parts(run / "final", tokenizer=False).backbone
    return {
        **asked(given),
        "recipe": name,
        "parameters": sum(p.numel() for p in encoder.parameters()),
        "steps": 0 if name == SCRATCH else max((line["step"] for line in steps), default=0),
        "tokens": 0 if name == SCRATCH else max((line["tokens"] for line in steps), default=0),
        "rates": quartiles([line["tokens_per_second"] for line in steps]),  # unequal ones: the machine was not quiet
        "mfu": statistics.median([line["mfu"] for line in steps if "mfu" in line] or [0.0]),
        "held_out": looks[-1] if looks else {},
        "scores": scores,
        "machine": report.device_and_machine(given.device),
    }


def quartiles(values: list[float]) -> list[int]:
    return [round(value) for value in statistics.quantiles(values)] if len(values) > 1 else []


def asked(given: argparse.Namespace) -> dict[str, Any]:
    return {key: getattr(given, key) for key in ASKED}


# ---- all of them --------------------------------------------------------------------------------------------------------


def done(name: str, given: argparse.Namespace) -> bool:
    kept = given.out / f"{name}.json"
    if not kept.exists():
        return False
    before = json.loads(kept.read_text())
    other = {key: before[key] for key, value in asked(given).items() if before[key] != value}
    if other:
        raise SystemExit(f"{kept}: was made with {other}; choose another OUT, or the same settings")
    print(f"{name}: done already", flush=True)
    return True


def keep(name: str, seconds: dict[str, float], given: argparse.Namespace) -> None:
    found = reached(name, given) | {"seconds": {part: round(value, 1) for part, value in seconds.items()}}
    (given.out / f"{name}.json").write_text(json.dumps(found, indent=1))
    means = ", ".join(f"{task} {100 * statistics.mean(values):.1f}" for task, values in found["scores"].items())
    print(f"{name}: {found['tokens'] / 1e6:.1f} M tokens; {means}; seconds {found['seconds']}", flush=True)


def compare(given: argparse.Namespace, began: float) -> None:
    with shared_device() as how:
        os.environ |= how
        _compare(given, began)


def _compare(given: argparse.Namespace, began: float) -> None:
    paths = [str(ROOT / "src"), str(ROOT / "benchmarks"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    warm_up(IMPORTS)
    todo = [name for name in names(given) if not done(name, given)]
    shared_tokenizer(given)
    pipeline = Pipeline(
        train=partial(pretrain, given=given), teach=partial(teach, given=given), jobs=partial(jobs, given=given),
        finished=partial(keep, given=given), logs=given.out / "logs", workers=given.parallel, ahead=given.ahead,
        began=began, until=given.until, expected=2 * given.budget,
    )  # fmt: skip
    left = pipeline.run(todo)
    if left:
        print(f"no time was left for {', '.join(left)}; the same call again goes on", flush=True)
    if failed := [name for name in todo if name not in left and not (given.out / f"{name}.json").exists()]:
        raise SystemExit(f"failed: {', '.join(failed)}")


# ---- the page -----------------------------------------------------------------------------------------------------------


def table(out: Path) -> str:
    import report

    found = [json.loads(file.read_text()) for file in sorted(out.glob("*.json"))]
    if not found:
        raise SystemExit(f"{out}: holds no results yet")
    found.sort(key=average, reverse=True)
    head = ["recipe", "M parameters", "steps", "M tokens", "MFU, %", "held out", *TASKS, "mean"]
    rows = [
        [
            line["recipe"], f"{line['parameters'] / 1e6:.1f}", f"{line['steps']:,}", f"{line['tokens'] / 1e6:.0f}",
            f"{100 * line['mfu']:.0f}" if line["tokens"] else "",
            told(line["held_out"]) if line["tokens"] else "",
            *(spread(line["scores"][task]) for task in TASKS), f"{100 * average(line):.2f}",
        ]
        for line in found
    ]  # fmt: skip
    first = found[0]
    how = (
        f"Size {first['size']}, {first['budget']:g} s of training each, compilation not counted; at most {first['rows']:,} "
        f"training rows a task, mean ± deviation of {first['seeds']} seeds of the fine-tuning, one of the pre-training. "
        f"SST-2, MRPC, RTE: accuracy; CoLA: Matthews; STS-B: Pearson; on dev data. {first['machine']}"
    )
    return f"{how}\n\n{report.table(head, rows)}"


def told(held_out: dict[str, float]) -> str:
    return ", ".join(f"{TOLD[name]} {held_out[name]:.3f}" for name in TOLD if name in held_out)


def spread(values: list[float]) -> str:
    import finetune

    return finetune.spread(values) if len(values) > 1 else f"{100 * values[0]:.2f}"


def average(line: dict[str, Any]) -> float:
    return statistics.mean(statistics.mean(values) for values in line["scores"].values())


def all_recipes() -> str:
    """Every recipe with its year, parts, file and paper, out of the recipes themselves; the oldest first."""
    import report
    from sesame.recipe import read_recipe, recipe_names

    rows = []
    for name in recipe_names():
        found = read_recipe(name)
        paper, _, link = found.get("paper", "").partition("; ")[0].rpartition(", ")
        year = re.search(r"\b(19|20)\d\d\b", paper)
        file = f"[`{name}`](../src/sesame/recipes/{name}.toml)"
        shown = f"[{paper}]({link})" if paper else ""
        rows.append([file, year[0] if year else "", found.get("about", ""), parts(name), shown])
    rows.sort(key=lambda row: row[1])
    return report.table(["recipe", "year", "what it does", "parts", "paper"], rows)


def parts(name: str) -> str:
    """What a recipe is made of: backbone, objectives, optimiser, tokens."""
    from sesame.recipe import resolve

    recipe = resolve(name)
    backbone = recipe.backbone
    norms = {"pre": "norms first", "post": "norms last"}.get(str(backbone.get("order")), "")
    places = f"{backbone['positions']} positions" if backbone.get("positions") else ""
    shape = ", ".join(filter(None, (backbone.get("kind", "encoder"), places, norms)))
    objectives = " + ".join(f"`{objective}`" for objective in recipe.objectives)
    return "; ".join((shape, objectives, recipe.optimizer.kind, recipe.tokenizer.kind))


def main() -> None:
    began = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # whoever is stopped stops what it started
    parser = argparse.ArgumentParser(description="Compare all recipes at the same budget.")
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--text", nargs="+")
    parser.add_argument("--data", type=Path, help="the folder of the task sets: sst2, cola, mrpc, rte, stsb")
    parser.add_argument("--tokenizer", help="instead of one that is trained on the text")
    parser.add_argument("--vocab", type=int, default=16_000, help="pieces of that one")
    parser.add_argument("--own", default="", help="recipes that make a tokenizer of their own kind, a,b")
    parser.add_argument("--budget", type=float, default=90.0, help="seconds of training")
    parser.add_argument("--size", default="mini")
    parser.add_argument("--seed", type=int, default=0, help="of the pre-training")
    parser.add_argument("--seeds", type=int, default=3, help="of the fine-tuning")
    parser.add_argument("--rows", type=int, default=10_000, help="training rows of a task, at most")
    parser.add_argument("--parallel", type=int, default=8, help="fine-tunings at the same time")
    parser.add_argument("--ahead", type=int, default=3, help="recipes that are compiled at the same time")
    parser.add_argument(
        "--until", type=float, default=math.inf, help="seconds, after which no recipe should be under way"
    )
    parser.add_argument("--only", default="", help="a,b: these recipes")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--table", type=Path)
    parser.add_argument("--recipes", action="store_true", help="only write the table of recipes anew")
    given = parser.parse_args()
    if given.table or given.recipes:
        import report

        report.put("recipes", all_recipes(), PAGE)
        if given.table:
            report.put("methods", table(given.table), PAGE)
    elif given.out is None or not given.text or given.data is None:
        parser.error("OUT, --text and --data are needed")
    else:
        compare(given, began)


if __name__ == "__main__":
    main()
