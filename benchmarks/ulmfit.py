"""How many labels does a language model save? ULMFiT's picture in miniature: TREC-6 and IMDb, 100, 500 and all labels.

    python benchmarks/ulmfit.py OUT --text TEXT... --data DATA [--size small] [--budget 300] [--tune 60] [--seeds 3]
    python benchmarks/ulmfit.py --table OUT [--draw docs/ulmfit.svg]

1. A general language model: recipe `ulmfit` on TEXT for the budget.
2. For each set, the same model tuned to all training texts without their labels: recipe `adapt-lstm` for `--tune` seconds.
3. Classifiers: from scratch (the general model's shape and tokenizer, untrained, everything open at one rate), from 1 and
   from 2 (strategy `ulmfit`). Labels are drawn anew for each seed, the same for all three ways.

DATA holds trec6/{train.jsonl.gz,test.jsonl} and imdb/{train,test}.jsonl.xz. Reviews lose what comes behind 250 words, and
5,000 of their test rows are read; nothing is chosen by them. What was reached is kept in OUT, and not made again; `--table`
writes it into docs/ulmfit.md.
"""

import argparse
import json
import multiprocessing
import os
import random
import signal
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import report
from sesame.files import write_json, write_whole
from side_by_side import at_a_time, done, kept_lines, sesame, spread

PAGE = Path(__file__).parent.parent / "docs" / "ulmfit.md"
SETS = {
    "TREC-6": ("trec6/train.jsonl.gz", "trec6/test.jsonl"),
    "IMDb": ("imdb/train.jsonl.xz", "imdb/test.jsonl.xz"),
}
COUNTS = "100,500,0"  # labels; 0: all
WORDS, TESTS, LOOKED_AT = 250, 5_000, 200
WAYS = ("from scratch", "ULMFiT", "ULMFiT, tuned to the texts")
OPEN = ["adapt.strategy=full", "adapt.layer_decay=1", "optimizer.rate=1e-3"]  # nothing to be forgotten
Key = tuple[str, int, str, int]  # set, labels, way, seed


# ---- models -------------------------------------------------------------------------------------------------------------


def start_models(given: argparse.Namespace) -> None:
    """A command whose run is finished says so, and one whose folder holds a run with other settings refuses."""
    general, scratch = given.out / "general", given.out / "scratch"
    both = ["pretrain", "ulmfit", "--size", given.size, "--device", given.device, "--text", *given.text]
    sesame(*both, "--budget", f"{given.budget:g}s", "--rehearse", "--out", general)
    still = ["--steps", 1, "--no-compile", "--set", "optimizer.rate=1e-12"]  # no dropout goes under a budget here
    sesame(*both, *still, "--tokenizer", general / "final", "--out", scratch)
    for name in SETS:
        texts = given.out / f"{name}.txt"
        if not texts.exists():
            rows = read(given.data / SETS[name][0])
            write_whole(texts, "\n\n".join(row["text"] for row in rows) + "\n")
        more = ["--text", texts, "--budget", f"{given.tune:g}s", "--rehearse", "--device", given.device]
        sesame("pretrain", "adapt-lstm", "--start", general / "final", *more, "--out", given.out / f"tuned-{name}")


def model(key: Key, out: Path) -> Path:
    name, _, way, _ = key
    folder = {WAYS[0]: "scratch", WAYS[1]: "general", WAYS[2]: f"tuned-{name}"}[way]
    return out / folder / "final"


# ---- labels -------------------------------------------------------------------------------------------------------------


def read(path: Path) -> list[dict[str, Any]]:
    """Texts of one line and at most WORDS words, and their labels."""
    from sesame.data.labelled import read_labelled

    found = read_labelled(path, "classify", {"label": "label"}).examples
    return [{"text": " ".join(str(row.text).split()[:WORDS]), "label": row.label} for row in found]


def write_rows(key: Key, data: Path, folder: Path) -> dict[str, str]:
    """The labels, the test rows, and a few of the labels once more: a run wants rows to look at meanwhile, and must choose
    nothing by the test rows; if it kept some aside, the labels would be fewer than the table says."""
    name, count, _, seed = key
    files = {}
    for file, part, most in zip(SETS[name], ("train", "test"), (count, TESTS), strict=True):
        rows = read(data / file)
        if most and len(rows) > most:
            rows = random.Random(seed if part == "train" else 0).sample(rows, most)
        files[part] = rows
    files["valid"] = random.Random(0).sample(files["train"], min(LOOKED_AT, len(files["train"])))
    for part, rows in files.items():
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"{part}.jsonl").write_text(lines, encoding="utf-8")
    return {part: str(folder / f"{part}.jsonl") for part in files}


def kept(key: Key, out: Path) -> Path:
    name, count, way, seed = key
    return out / "errors" / f"{name}.{count}.{WAYS.index(way)}.{seed}.json"


def made(given: argparse.Namespace) -> dict[str, Any]:
    """What two results must agree in to stand in one table."""
    return {key: getattr(given, key) for key in ("size", "budget", "tune", "set")}


def teach(key: Key, given: argparse.Namespace) -> str:
    """One classifier; its error on the test rows, in percent."""
    import torch

    from sesame.finetuning.run import Wishes, finetune
    from sesame.train.loop import Interrupted

    torch.set_num_threads(2)
    folder = given.out / "runs" / kept(key, given.out).stem
    folder.mkdir(parents=True, exist_ok=True)
    wishes = Wishes(
        model=str(model(key, given.out)), task="classify", out=folder / "run", **write_rows(key, given.data, folder),
        strategy="ulmfit", seeds=1, seed=key[3], baselines=False, device=given.device,
        settings=[*(OPEN if key[2] == WAYS[0] else []), *given.set],
    )  # fmt: skip
    try:
        finetune(wishes)
    except Interrupted as stopped:
        os._exit(stopped.exit_code)  # a worker that lived on would begin the next one
    found = json.loads((folder / "run" / "results.json").read_text())["scores"]["test"]["accuracy"]["mean"]
    where = {"parallel": at_a_time(given.parallel), "machine": report.device_and_machine(given.device)}
    write_json(kept(key, given.out), {"key": key, "error": 100 * (1 - found), **made(given), **where})
    return f"{key}: error {100 * (1 - found):.1f}"


def compare(given: argparse.Namespace) -> None:
    counts = [int(count) for count in given.counts.split(",")]
    keys = [(n, c, w, s) for s in range(given.seeds) for c in reversed(counts) for n in reversed(SETS) for w in WAYS]
    todo = [key for key in keys if not done(kept(key, given.out), made(given))]
    start_models(given)
    (given.out / "errors").mkdir(exist_ok=True)
    dies = {
        "initializer": signal.signal,
        "initargs": (signal.SIGINT, signal.SIG_DFL),
    }  # between two trainings, at Ctrl-C
    with ProcessPoolExecutor(given.parallel, multiprocessing.get_context("spawn"), **dies) as pool:
        for future in [pool.submit(teach, key, given) for key in todo]:
            print(future.result(), flush=True)


# ---- the page -----------------------------------------------------------------------------------------------------------


def errors(out: Path) -> tuple[dict[str, Any], dict[str, dict[str, dict[int, list[float]]]]]:
    """What is said of all of them, and the errors by set, way and number of labels."""
    lines = kept_lines(out / "errors")
    found: dict[str, dict[str, dict[int, list[float]]]] = {name: {way: {} for way in WAYS} for name in SETS}
    for line in lines:
        name, count, way, _ = line["key"]
        found[name][way].setdefault(count, []).append(line["error"])
    return lines[0], found


def table(out: Path) -> str:
    about, found = errors(out)
    counts = sorted(
        {count for ways in found.values() for each in ways.values() for count in each}, key=lambda x: (not x, x)
    )
    rows = [
        [name, way, *(spread(found[name][way].get(count, [float("nan")]), 1) for count in counts)]
        for name in SETS
        for way in WAYS
    ]
    seeds = max(len(values) for ways in found.values() for counts in ways.values() for values in counts.values())
    how = (
        f"Error in percent, mean ± deviation of {seeds} seeds. Size {about['size']}, {about['budget']:g} s of general text, "
        f"{about['tune']:g} s of the set's, up to {about['parallel']} trainings at a time on one device. {about['machine']}"
    )
    head = ["set", "way", *(f"{count or 'all'} labels" for count in counts)]
    return f"{how}\n\n{report.table(head, rows)}"


def draw(out: Path, picture: Path) -> None:
    from sesame.evaluate.few_labels import few_labels

    _, found = errors(out)
    whole = {"TREC-6": 5452, "IMDb": 25_000}
    sets = {
        name: {way: {count or whole[name]: values for count, values in counts.items()} for way, counts in ways.items()}
        for name, ways in found.items()
    }
    few_labels({"title": "Error against labels", "x": "labels", "y": "error, %", "sets": sets}, picture)


def main() -> None:
    parser = argparse.ArgumentParser(description="Error against the number of labels.")
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--text", nargs="+")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--size", default="small")
    parser.add_argument("--budget", type=float, default=300.0, help="seconds of general text")
    parser.add_argument("--tune", type=float, default=60.0, help="seconds of a set's texts")
    parser.add_argument("--counts", default=COUNTS, help="labels; 0: all")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--parallel", type=int, default=6)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", action="append", default=[], help="for the classifiers")
    parser.add_argument("--table", type=Path)
    parser.add_argument("--draw", type=Path)
    given = parser.parse_args()
    if given.table:
        report.put("ulmfit", table(given.table), PAGE)
        if given.draw:
            draw(given.table, given.draw)
    elif given.out is None or given.data is None or not given.text:
        parser.error("OUT, --text and --data are needed")
    else:
        given.out.mkdir(parents=True, exist_ok=True)
        compare(given)


if __name__ == "__main__":
    main()
