"""The second act of the demo: which library does a docstring come from? 20 labels for each library, four ways.

    labels.jsonl, valid.jsonl, test.jsonl -> TF-IDF | from scratch | frozen features | fine-tuned -> a table with intervals

The test docstrings come from modules that neither pre-training nor the labels have seen.
"""

import json
import sys
import zlib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from sesame.backbones import Encoder
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.saving import save_parts
from sesame.data.docstrings import Docstring
from sesame.errors import SesameError
from sesame.files import read_json, whole_folder, write_whole
from sesame.finetuning.run import finetune
from sesame.finetuning.wishes import Wishes
from sesame.progress import say

LABELS, VALID, TEST = 20, 5, 60  # rows for each library
LIBRARIES = 8
SEEDS = 3
WORDS = (6, 60)  # of a docstring's first paragraph
# The states of all tokens are averaged: [CLS] of a model that never learnt about pairs of sentences says nothing.
SETTINGS = {
    "full": ("task.pooling=mean", "task.length=96", "batch=16", "epochs=15", "least_steps=0"),
    "frozen": ("task.length=96", "batch=16", "least_steps=300"),
}


@dataclass(frozen=True)
class Row:
    text: str
    library: str
    held: bool  # its module is kept from the pre-training


def row_of(entry: Docstring, held: bool) -> Row | None:
    """The first paragraph of a docstring, if it has a fitting length."""
    text = entry.text.split("\n", 1)[0]
    return Row(text, entry.library, held) if WORDS[0] <= text.count(" ") + 1 <= WORDS[1] else None


def write_labels(rows: list[Row], out: Path) -> None:
    """The libraries with most docstrings; which rows are taken is decided by their own sums, always the same."""
    by_library: dict[str, dict[bool, list[str]]] = defaultdict(lambda: {True: [], False: []})
    for row in rows:
        by_library[row.library][row.held].append(row.text)
    enough = [
        name
        for name, parts in by_library.items()
        if len(parts[False]) >= LABELS + VALID and len(parts[True]) >= TEST // 2
    ]
    chosen = sorted(enough, key=lambda name: (-len(by_library[name][False]), name))[:LIBRARIES]
    if len(chosen) < 2:
        raise SesameError("too few libraries are installed here to tell apart; the demo needs at least two")
    files: dict[str, list[dict[str, str]]] = {"labels": [], "valid": [], "test": []}
    for name in chosen:
        seen = sorted(by_library[name][False], key=_order)
        parts = {"labels": seen[:LABELS], "valid": seen[LABELS : LABELS + VALID]}
        parts["test"] = sorted(by_library[name][True], key=_order)[:TEST]
        for part, texts in parts.items():
            files[part] += [{"text": text, "library": name} for text in texts]
    for part, lines in files.items():
        write_whole(out / f"{part}.jsonl", "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


def _order(text: str) -> int:
    return zlib.crc32(text.encode("utf-8", "replace"))


def classify(out: Path, model: Path) -> None:
    """Teach the same labels three ways, and show them beside TF-IDF."""
    say("")
    say(f"now {LABELS} labels for each library: which one does a docstring come from?")
    ways = {
        "from scratch": (_scratch(out, model), "full"),
        "frozen features": (model, "frozen"),
        "fine-tuned": (model, "full"),
    }
    found: dict[str, Any] = {}
    for name, (start, strategy) in ways.items():
        say(f"-- {name}")
        folder = out / name.replace(" ", "-")
        finetune(
            Wishes(
                model=str(start), task="classify", train=str(out / "labels.jsonl"), valid=str(out / "valid.jsonl"),
                test=str(out / "test.jsonl"), out=folder, strategy=strategy, seeds=SEEDS, columns={"label": "library"},
                settings=SETTINGS[strategy], baselines=name == "fine-tuned", device="cpu",
            )
        )  # fmt: skip
        found[name] = read_json(folder / "results.json")
    _show(found, out)


def _scratch(out: Path, model: Path) -> Path:
    """The same model before any training."""
    folder = out / "untrained"
    if not folder.is_dir():
        parts = load_parts(model)
        torch.manual_seed(0)
        with whole_folder(folder) as place:
            save_parts(place, Parts(Encoder(parts.backbone.config), {}, parts.tokenizer))
    return folder


def _show(found: dict[str, Any], out: Path) -> None:
    tuned = found["fine-tuned"]
    rows = tuned["data"]["rows"]
    console = Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=160)
    table = Table("way", f"accuracy on {rows['test']} docstrings", "± over seeds", "95 % interval")
    for name, scores in tuned["baselines"].items():
        table.add_row(name, f"{scores['test']['accuracy']:.1%}", "", "")
    for name, results in found.items():
        score = results["scores"]["test"]["accuracy"]
        interval = f"{score['low']:.1%} to {score['high']:.1%}"
        table.add_row(name, f"{score['mean']:.1%}", f"{score['std']:.1%}", interval)
    console.print(table)
    versus = tuned["versus"]
    console.print(
        f"fine-tuned against {versus['baseline']}: {100 * versus['difference']:+.1f} points "
        f"(95 %: {100 * versus['low']:+.1f} to {100 * versus['high']:+.1f}); look at {out / 'fine-tuned' / 'report.html'}"
    )
    console.print(tuned["next"])
