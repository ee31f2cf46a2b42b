"""How many real tokens a second does fine-tuning take on one GPU, here and in transformers?

    python benchmarks/finetune_gpu.py MODEL SST2 [--steps 300] [--size base] [--write]

MODEL gives the tokenizer (and with `--size given` the weights; otherwise they are random, BERT-base); SST2 is the folder of
that set. A second set is made of docstrings: texts of 5 to 400 words, lengths drawn evenly. Batches of 32 in random order,
dropout 0.1, gradients clipped at 1.0, fused AdamW; texts are cut at 512 tokens. Padding does not count as tokens. Both
sides collate beside the training.

- transformers: its own tokenizer's ids, `DataCollatorWithPadding` (to the longest of the batch), bf16 autocast; and in fp32,
  as its Trainer does when nothing is asked for.
- sesame: loader, recording and step as in `sesame finetune`.

The first `--steps` steps are reported by themselves: they contain all the starting costs.
"""

import argparse
import gzip
import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch

import report
from sesame.backbones import Encoder, EncoderConfig
from sesame.checkpoint.loading import load_parts
from sesame.data.batch import Batch
from sesame.data.docstrings import documents
from sesame.data.examples import Example
from sesame.data.loader import Prefetcher
from sesame.objectives.base import Together
from sesame.objectives.model import Model
from sesame.tasks import TaskConfig, build_task
from sesame.tasks.loader import ItemLoader
from sesame.tasks.windows import Inputs
from sesame.train.compute import replaying
from sesame.train.loop import Window, take_step
from sesame.train.optim import OptimConfig, build_optimizer
from sesame.train.precision import choose_machine

BATCH, LONGEST = 32, 512
Sets = dict[str, list[tuple[str, int]]]
Steps = Iterator[int]
"""Each `next` trains a step and gives its number of real tokens."""


def sst2(folder: Path, most: int) -> list[tuple[str, int]]:
    with gzip.open(folder / "train.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    random.Random(0).shuffle(rows)
    labels = sorted({str(row["label"]) for row in rows})
    return [(row["text"], labels.index(str(row["label"]))) for row in rows[:most]]


def mixed(most: int) -> list[tuple[str, int]]:
    words = [word for _, text in documents(4_000_000) for word in text.split()]
    luck = random.Random(0)
    sizes = [luck.randint(5, 400) for _ in range(most)]
    starts = [luck.randrange(len(words) - 400) for _ in range(most)]
    return [(" ".join(words[at : at + size]), size % 2) for at, size in zip(starts, sizes, strict=True)]


# ---- the sides ---------------------------------------------------------------------------------------------------------


def ours(folder: Path, size: str, rows: list[tuple[str, int]]) -> Steps:
    parts = load_parts(folder)
    assert parts.tokenizer is not None
    machine = choose_machine("cuda", "bf16")
    backbone = parts.backbone
    if size == "base":
        backbone = Encoder(EncoderConfig(parts.backbone.config.vocab, 768, 12, 12))
    task = build_task("label", TaskConfig("classify", ("no", "yes")), backbone, 0.1)
    inputs = Inputs(parts.tokenizer, LONGEST)
    examples = [Example("", text, label=("no", "yes")[label]) for text, label in rows]
    items = [replace(item, windows=item.windows[:1], slots=(0,)) for item in task.items(examples, inputs)]
    model = Model(backbone, Together({"label": task})).to(machine.device)
    loader = ItemLoader(task, items, inputs.pad, BATCH, 0, 131_072, unpad=True)
    tokens: dict[int, int] = {}

    def load(step: int) -> list[Batch]:
        batches = loader.load(step)
        tokens[step] = sum(int(batch.lengths.sum()) for batch in batches)
        return batches

    optimizer = build_optimizer(model, OptimConfig(rate=2e-5))
    call, fetcher = replaying(model, machine), Prefetcher(load, machine.device, 0, threads=2)
    model.train()
    for step in range(1_000_000):
        take_step(model, call, optimizer, fetcher.get(step), 1.0, machine, step, Window())
        yield tokens[step]


def theirs(folder: Path, size: str, rows: list[tuple[str, int]], half: bool) -> Steps:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertConfig, DataCollatorWithPadding

    tokenizer = AutoTokenizer.from_pretrained(folder)
    if size == "base":
        from transformers import BertForSequenceClassification

        model = BertForSequenceClassification(BertConfig(vocab_size=len(tokenizer), num_labels=2))
    else:
        model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2)
    model = model.cuda().train()
    ids = tokenizer([text for text, _ in rows], truncation=True, max_length=LONGEST)
    data = [{**{name: ids[name][at] for name in ids}, "labels": label} for at, (_, label) in enumerate(rows)]
    loader = torch.utils.data.DataLoader(
        data, BATCH, shuffle=True, drop_last=True, collate_fn=DataCollatorWithPadding(tokenizer), num_workers=4,
        pin_memory=True, persistent_workers=True,
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)
    while True:
        for batch in loader:
            real = int(batch["attention_mask"].sum())
            moved = {name: value.cuda(non_blocking=True) for name, value in batch.items()}
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", torch.bfloat16, enabled=half):
                loss = model(**moved).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            yield real


# ---- both ---------------------------------------------------------------------------------------------------------------


def rate(steps: Steps, count: int) -> tuple[float, float]:
    """Seconds of `count` steps, and their real tokens a second."""
    began = time.monotonic()
    tokens = sum(next(steps) for _ in range(count))
    torch.cuda.synchronize()
    seconds = time.monotonic() - began
    return seconds, tokens / seconds


def compare(folder: Path, size: str, name: str, rows: list[tuple[str, int]], count: int) -> list[list[str]]:
    sides: dict[str, Callable[[], Steps]] = {
        "transformers, bf16": lambda: theirs(folder, size, rows, True),
        "transformers, fp32": lambda: theirs(folder, size, rows, False),
        "sesame": lambda: ours(folder, size, rows),
    }
    found: dict[str, tuple[float, float]] = {}
    lines = []
    for side, build in sides.items():
        steps = build()
        next(steps)  # models are built, data are encoded
        started, _ = rate(steps, count)
        found[side] = started, max(rate(steps, count)[1] for _ in range(2))
        steps.close()  # type: ignore[attr-defined]
        torch.cuda.empty_cache()
    first = found["transformers, bf16"][1]
    for side, (started, best) in found.items():
        lines.append([name, side, f"{best / 1e3:,.0f}", f"{best / first:.2f}", f"{started:.1f} s"])
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description="Real tokens a second of fine-tuning on one GPU.")
    parser.add_argument("model", type=Path)
    parser.add_argument("sst2", type=Path)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--size", choices=("base", "given"), default="base")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    sets: Sets = {"SST-2": sst2(given.sst2, 20_000), "5 to 400 words": mixed(4_000)}
    lines = [line for name, rows in sets.items() for line in compare(given.model, given.size, name, rows, given.steps)]
    head = ["texts", "side", "thousand real tokens/s", "times transformers", f"first {given.steps} steps"]
    text = f"{torch.cuda.get_device_name()}, {report.machine()}\n\n{report.table(head, lines)}"
    print(text)
    if given.write:
        report.put("finetune_gpu", text)


if __name__ == "__main__":
    main()
