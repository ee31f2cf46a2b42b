"""How many labels does a language model save? ULMFiT's picture in miniature: TREC-6 and IMDb, 100, 500 and all labels.

    python benchmarks/ulmfit.py OUT --text TEXT... --data DATA [--size small] [--budget 300] [--tune 60] [--seeds 3]
    python benchmarks/ulmfit.py --table OUT [--draw docs/ulmfit.svg]

1. A general language model: recipe `ulmfit` on TEXT for the budget.
2. For each set, the same model tuned to all training texts without their labels: recipe `adapt-lstm` for `--tune` seconds.
3. Classifiers: from scratch (the general model's shape and tokenizer, untrained, everything open at one rate), from 1 and
   from 2 (strategy `ulmfit`). Labels are drawn anew for each seed, the same for all three ways.

DATA holds trec6/{train.jsonl.gz,test.jsonl} and imdb/{train,test}.jsonl.xz. Reviews lose what comes behind 250 words, and
5,000 of their test rows are read. What was reached is kept in OUT, and is not made again; `--table` writes it into
docs/ulmfit.md.
"""

import argparse
import json
import multiprocessing
import random
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import report
from side_by_side import spread

PAGE = Path(__file__).parent.parent / "docs" / "ulmfit.md"
SETS = {
    "TREC-6": ("trec6/train.jsonl.gz", "trec6/test.jsonl"),
    "IMDb": ("imdb/train.jsonl.xz", "imdb/test.jsonl.xz"),
}
COUNTS = "100,500,0"  # labels; 0: all
WORDS, TESTS = 250, 5_000
WAYS = ("from scratch", "ULMFiT", "ULMFiT, tuned to the texts")
OPEN = ["adapt.strategy=full", "adapt.layer_decay=1", "optimizer.rate=1e-3"]  # nothing to be forgotten
Key = tuple[str, int, str, int]  # set, labels, way, seed


def sesame(*words: object) -> None:
    print("sesame", *words, flush=True)
    subprocess.run([sys.executable, "-m", "sesame", *map(str, words)], check=True)


# ---- models -------------------------------------------------------------------------------------------------------------


def start_models(given: argparse.Namespace) -> None:
    general, scratch = given.out / "general", given.out / "scratch"
    both = ["pretrain", "ulmfit", "--size", given.size, "--device", given.device, "--text", *given.text]
    if not (general / "final" / "config.json").exists():
        sesame(*both, "--budget", f"{given.budget:g}s", "--rehearse", "--out", general)
    if not (scratch / "final" / "config.json").exists():
        still = ["--steps", 1, "--no-compile", "--set", "optimizer.rate=1e-12"]
        sesame(*both, *still, "--tokenizer", general / "final", "--out", scratch)
    for name in SETS:
        tuned, texts = given.out / f"tuned-{name}", given.out / f"{name}.txt"
        if not (tuned / "final" / "config.json").exists():
            rows = read(given.data / SETS[name][0])
            texts.write_text("\n\n".join(row["text"] for row in rows) + "\n", encoding="utf-8")
            more = ["--text", texts, "--budget", f"{given.tune:g}s", "--rehearse", "--device", given.device]
            sesame("pretrain", "adapt-lstm", "--start", general / "final", *more, "--out", tuned)


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


def write_rows(key: Key, data: Path, folder: Path) -> Iterator[Path]:
    name, count, _, seed = key
    for file, part, most in zip(SETS[name], ("train", "test"), (count, TESTS), strict=True):
        rows = read(data / file)
        if most and len(rows) > most:
            rows = random.Random(seed if part == "train" else 0).sample(rows, most)
        path = folder / f"{part}.jsonl"
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
        yield path


def kept(key: Key, out: Path) -> Path:
    name, count, way, seed = key
    return out / "errors" / f"{name}.{count}.{WAYS.index(way)}.{seed}.json"


def teach(key: Key, given: argparse.Namespace) -> str:
    """One classifier; its error on the test rows, in percent."""
    import torch

    from sesame.finetuning.run import Wishes, finetune

    torch.set_num_threads(2)
    folder = given.out / "runs" / kept(key, given.out).stem
    folder.mkdir(parents=True, exist_ok=True)
    train, test = write_rows(key, given.data, folder)
    wishes = Wishes(
        model=str(model(key, given.out)), task="classify", train=str(train), valid=str(test), out=folder / "run",
        strategy="ulmfit", seeds=1, seed=key[3], baselines=False, device=given.device,
        settings=[*(OPEN if key[2] == WAYS[0] else []), *given.set],
    )  # fmt: skip
    finetune(wishes)
    found = json.loads((folder / "run" / "results.json").read_text())["scores"]["valid"]["accuracy"]["mean"]
    device = torch.cuda.get_device_name() if torch.cuda.is_available() and given.device != "cpu" else "CPU"
    about = {"size": given.size, "budget": given.budget, "tune": given.tune, "machine": f"{device}; {report.machine()}"}
    kept(key, given.out).write_text(json.dumps({"key": key, "error": 100 * (1 - found), **about}))
    return f"{key}: error {100 * (1 - found):.1f}"


def compare(given: argparse.Namespace) -> None:
    start_models(given)
    (given.out / "errors").mkdir(exist_ok=True)
    counts = [int(count) for count in given.counts.split(",")]
    keys = [(n, c, w, s) for s in range(given.seeds) for c in reversed(counts) for n in reversed(SETS) for w in WAYS]
    todo = [key for key in keys if not kept(key, given.out).exists()]
    with ProcessPoolExecutor(given.parallel, multiprocessing.get_context("spawn")) as pool:
        for future in [pool.submit(teach, key, given) for key in todo]:
            print(future.result(), flush=True)


# ---- the page -----------------------------------------------------------------------------------------------------------


def errors(out: Path) -> tuple[dict[str, Any], dict[str, dict[str, dict[int, list[float]]]]]:
    """What is said of all of them, and the errors by set, way and number of labels."""
    lines = [json.loads(file.read_text()) for file in sorted((out / "errors").glob("*.json"))]
    if not lines:
        raise SystemExit(f"{out}: holds no results yet")
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
        f"{about['tune']:g} s of the set's. {about['machine']}"
    )
    head = ["set", "way", *(f"{count or 'all'} labels" for count in counts)]
    return f"{how}\n\n{report.table(head, rows)}"


def draw(out: Path, picture: Path) -> None:
    from sesame.evaluate.plots import few_labels

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
