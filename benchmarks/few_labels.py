"""How far do few labels go? Fine-tuned, gradually unfrozen, frozen and TF-IDF with 10, 50, 200 labels a class.

    python benchmarks/few_labels.py MODEL DATA OUT [--seeds 5] [--parallel 16]
    python benchmarks/few_labels.py --draw OUT/few_labels.json docs/few_labels.svg

The labels are drawn anew for every seed; all methods of a seed get the same ones, and all are judged on the whole test set.
Within a run nothing is chosen by it. But the defaults of the strategies (rate, epochs, layer decay) were tuned on these two
test sets (docs/log.md), so the curves of the three neural methods are optimistic; TF-IDF was not tuned on them.
"""

import argparse
import json
import multiprocessing
import random
import tempfile
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

SETS = {
    "TREC-6": ("trec6/train.jsonl.gz", "trec6/test.jsonl"),
    "Banking77": ("banking77/train.jsonl.gz", "banking77/test.jsonl.gz"),
}
SIZES = (10, 50, 200)
METHODS = {"fine-tuned": "full", "gradual": "gradual", "frozen": "frozen"}
Key = tuple[str, int, str, int]


def draw_labels(data: Path, name: str, count: int, seed: int, folder: Path) -> tuple[Path, Path]:
    """`count` rows of each class (all, where a class has fewer), and the test set, as files."""
    from sesame.data.labelled import read_labelled

    train, test = (read_labelled(data / file, "classify", {"label": "label"}).examples for file in SETS[name])
    by_class = defaultdict(list)
    for example in train:
        by_class[example.label].append(example)
    chance = random.Random(seed)
    chosen = [e for label in sorted(by_class) for e in chance.sample(by_class[label], min(count, len(by_class[label])))]
    paths = folder / "train.jsonl", folder / "test.jsonl"
    for path, rows in zip(paths, (chosen, test), strict=True):
        lines = [json.dumps({"text": e.text, "label": e.label}, ensure_ascii=False) for e in rows]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return paths


def run(model: str, data: Path, key: Key, settings: tuple[str, ...] = ()) -> tuple[Key, float, float | None]:
    import torch

    from sesame.finetuning import Wishes, finetune

    torch.set_num_threads(2)
    name, count, method, seed = key
    strategy = METHODS[method]
    with tempfile.TemporaryDirectory() as place:
        train, test = draw_labels(data, name, count, seed, Path(place))
        out = Path(place) / "run"
        wishes = Wishes(
            model=model, task="classify", train=str(train), valid=str(test), out=out, strategy=strategy, seeds=1, seed=seed,
            baselines=strategy == "full" and not settings, settings=["task.length=128", *settings],
        )  # fmt: skip
        finetune(wishes)
        found: dict[str, Any] = json.loads((out / "results.json").read_text())
    plain = found["baselines"].get("tf-idf", {}).get("valid", {}).get("accuracy")
    return key, found["scores"]["valid"]["accuracy"]["mean"], plain


def curves(found: list[tuple[Key, float, float | None]]) -> dict[str, Any]:
    sets: dict[str, Any] = {}
    for (name, count, method, _), value, plain in found:
        here = sets.setdefault(name, {})
        here.setdefault(method, {}).setdefault(str(count), []).append(value)
        if plain is not None:
            here.setdefault("tf-idf", {}).setdefault(str(count), []).append(plain)
    return {"title": "Few labels", "x": "labels per class", "y": "accuracy", "sets": sets}


def main() -> None:
    parser = argparse.ArgumentParser(description="Few labels, four methods.")
    parser.add_argument("model", nargs="?")
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--parallel", type=int, default=16)
    parser.add_argument("--draw", nargs=2, type=Path)
    given = parser.parse_args()
    if given.draw:
        from sesame.evaluate.plots import few_labels

        few_labels(json.loads(given.draw[0].read_text()), given.draw[1])
        return
    keys = [(n, c, m, s) for c in reversed(SIZES) for n in reversed(SETS) for m in METHODS for s in range(given.seeds)]
    given.out.mkdir(parents=True, exist_ok=True)
    found = []
    with ProcessPoolExecutor(given.parallel, multiprocessing.get_context("spawn")) as pool:
        for future in [pool.submit(run, given.model, given.data, key) for key in keys]:
            found.append(future.result())
            (given.out / "few_labels.json").write_text(json.dumps(curves(found)))
    print(json.dumps(curves(found)))


if __name__ == "__main__":
    main()
