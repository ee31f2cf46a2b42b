"""How far do few labels go? Fine-tuned, gradually unfrozen, frozen and TF-IDF with 10, 50, 200 labels a class.

    python benchmarks/few_labels.py MODEL DATA OUT [--seeds 5] [--parallel 16]
    python benchmarks/few_labels.py --draw OUT/few_labels.json docs/few_labels.svg
    python benchmarks/few_labels.py --tune MODEL DATA OUT

The labels are drawn anew for every seed; all methods of a seed get the same ones, and all are judged on the whole test set.
`--tune` compares settings of the strategies on sets of its own: AG News, SST-2 and the fine classes of TREC's training
questions, a quarter of them held out. No test row of TREC-6 or Banking77 is looked at there.
"""

import argparse
import json
import multiprocessing
import random
import tempfile
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

SETS = {
    "TREC-6": ("trec6/train.jsonl.gz", "trec6/test.jsonl"),
    "Banking77": ("banking77/train.jsonl.gz", "banking77/test.jsonl.gz"),
}
SIZES = (10, 50, 200)
TUNING = {
    "AG News": ("ag_news/train_subset.jsonl.gz", "ag_news/test.jsonl.gz"),
    "SST-2": ("sst2/train.jsonl.gz", "sst2/dev.jsonl"),
    "TREC-fine": ("trec6/train.jsonl.gz", ""),
}
TUNED = {
    "fine-tuned": (
        (), ("optimizer.rate=2.5e-5",), ("optimizer.rate=1e-4",),
        ("least_steps=250", "class_steps=10"), ("least_steps=1000", "class_steps=40", "most_epochs=120"),
    ),
    "gradual": ((), ("optimizer.rate=5e-5",), ("optimizer.rate=4e-4",), ("adapt.layer_decay=0.7",)),
    "frozen": ((), ("optimizer.rate=3e-4",), ("optimizer.rate=3e-3",)),
}  # fmt: skip
METHODS = {"fine-tuned": "full", "gradual": "gradual", "frozen": "frozen"}
Key = tuple[str, int, str, int]


def rows(data: Path, name: str) -> tuple[list[Any], list[Any]]:
    """The rows to draw from and those to judge by."""
    from sesame.data.labelled import read_labelled

    train, test = (SETS | TUNING)[name]
    column = {"label": "fine" if name == "TREC-fine" else "label"}
    pool = read_labelled(data / train, "classify", column).examples
    if test:
        return pool, read_labelled(data / test, "classify", column).examples[: 2000 if name in TUNING else None]
    held = pool[::4]
    pool = [row for number, row in enumerate(pool) if number % 4]
    enough = {label for label, count in Counter(row.label for row in pool).items() if count >= 10}
    return [row for row in pool if row.label in enough], [row for row in held if row.label in enough]


def draw_labels(data: Path, name: str, count: int, seed: int, folder: Path) -> tuple[Path, Path]:
    """`count` rows of each class (all, where a class has fewer), and the test set, as files."""
    train, test = rows(data, name)
    by_class = defaultdict(list)
    for example in train:
        by_class[example.label].append(example)
    chance = random.Random(seed)
    chosen = [e for label in sorted(by_class) for e in chance.sample(by_class[label], min(count, len(by_class[label])))]
    paths = folder / "train.jsonl", folder / "test.jsonl"
    for path, chosen_rows in zip(paths, (chosen, test), strict=True):
        lines = [json.dumps({"text": e.text, "label": e.label}, ensure_ascii=False) for e in chosen_rows]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return paths


def run(
    model: str, data: Path, key: Key, settings: tuple[str, ...] = (), plain: bool = True
) -> tuple[Key, float, float | None]:
    import torch

    from sesame.finetuning.run import Wishes, finetune

    torch.set_num_threads(2)
    name, count, method, seed = key
    strategy = METHODS[method]
    with tempfile.TemporaryDirectory() as place:
        train, test = draw_labels(data, name, count, seed, Path(place))
        out = Path(place) / "run"
        wishes = Wishes(
            model=model, task="classify", train=str(train), valid=str(test), out=out, strategy=strategy, seeds=1, seed=seed,
            baselines=strategy == "full" and plain, settings=["task.length=128", *settings],
        )  # fmt: skip
        finetune(wishes)
        found: dict[str, Any] = json.loads((out / "results.json").read_text())
    baseline = found["baselines"].get("tf-idf", {}).get("valid", {}).get("accuracy")
    return key, found["scores"]["valid"]["accuracy"]["mean"], baseline


def curves(found: list[tuple[Key, float, float | None]]) -> dict[str, Any]:
    sets: dict[str, Any] = {}
    for (name, count, method, _), value, plain in found:
        here = sets.setdefault(name, {})
        here.setdefault(method, {}).setdefault(str(count), []).append(value)
        if plain is not None:
            here.setdefault("tf-idf", {}).setdefault(str(count), []).append(plain)
    return {"title": "Few labels", "x": "labels per class", "y": "accuracy", "sets": sets}


def tune(model: str, data: Path, out: Path, parallel: int) -> None:
    """Every setting of TUNED on every tuning set: 10 labels a class twice, 50 once."""
    jobs = [
        ((name, count, method, seed), settings)
        for method, all_settings in TUNED.items() for settings in all_settings
        for name in TUNING for count, seed in ((10, 0), (10, 1), (50, 0))
    ]  # fmt: skip
    found: dict[str, dict[str, list[float]]] = {}
    with ProcessPoolExecutor(parallel, multiprocessing.get_context("spawn")) as pool:
        futures = [(job, pool.submit(run, model, data, *job, False)) for job in jobs]
        for ((name, count, method, _), settings), future in futures:
            here = found.setdefault(" ".join((method, *settings)), {}).setdefault(f"{name} {count}", [])
            here.append(round(future.result()[1], 4))
            (out / "tuning.json").write_text(json.dumps(found, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description="Few labels, four methods.")
    parser.add_argument("model", nargs="?")
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--parallel", type=int, default=16)
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--draw", nargs=2, type=Path)
    given = parser.parse_args()
    if given.draw:
        from sesame.evaluate.few_labels import few_labels

        few_labels(json.loads(given.draw[0].read_text()), given.draw[1])
        return
    keys = [(n, c, m, s) for c in reversed(SIZES) for n in reversed(SETS) for m in METHODS for s in range(given.seeds)]
    given.out.mkdir(parents=True, exist_ok=True)
    if given.tune:
        tune(given.model, given.data, given.out, given.parallel)
        return
    found = []
    with ProcessPoolExecutor(given.parallel, multiprocessing.get_context("spawn")) as pool:
        for future in [pool.submit(run, given.model, given.data, key) for key in keys]:
            found.append(future.result())
            (given.out / "few_labels.json").write_text(json.dumps(curves(found)))
    print(json.dumps(curves(found)))


if __name__ == "__main__":
    main()
