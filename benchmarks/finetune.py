"""Fine-tuning of one start model on many tasks, here and with transformers' own Trainer: the same rows, seeds, rates, epochs.

    python benchmarks/finetune.py MODEL DATA OUT [--seeds 5] [--parallel 12] [--only rte,stsb]
    python benchmarks/finetune.py --table OUT [--write]

Each task and side is a process of its own. Trainer's models are saved by transformers, opened here, and scored by the same
code as ours, so that only the training differs. Trainer gets what its documentation shows: truncation at the same length,
padding by batch, AdamW, linear decay with 10 % warm-up, clipping at 1, bf16 on a GPU.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import report

BATCH, WARMUP, DECAY = 32, 0.1, 0.01


@dataclass(frozen=True)
class Spec:
    kind: str
    train: str
    test: str
    metric: str
    rate: float = 1e-4
    epochs: int = 3
    length: int = 128
    rows: int = 10_000  # training rows; a larger set is drawn from
    tests: int = 4_000


TASKS = {
    "SST-2": Spec("classify", "sst2/train.jsonl.gz", "sst2/dev.jsonl", "accuracy"),
    "CoLA": Spec("classify", "cola/train.jsonl.gz", "cola/dev.jsonl", "matthews"),
    "MRPC": Spec("classify", "mrpc/train", "mrpc/dev", "accuracy", epochs=5),
    "RTE": Spec("classify", "rte/train", "rte/dev", "accuracy", epochs=5, length=256),
    "STS-B": Spec("regress", "stsb/train.jsonl.gz", "stsb/dev.jsonl.gz", "pearson"),
    "TREC-6": Spec("classify", "trec6/train.jsonl.gz", "trec6/test.jsonl", "accuracy"),
    "Banking77": Spec("classify", "banking77/train.jsonl.gz", "banking77/test.jsonl.gz", "accuracy", epochs=5),
    "RuSentiTweet": Spec("classify", "rusentitweet/train.jsonl.gz", "rusentitweet/test.jsonl.gz", "macro_f1"),
    "CoNLL-2003": Spec("tag", "conll2003/train.txt.gz", "conll2003/test.txt.gz", "f1"),
    "WikiANN en": Spec("tag", "wikiann_en/train.txt.gz", "wikiann_en/test.txt.gz", "f1"),
    "SQuAD 1.1": Spec("qa", "squad1/train_subset.json.gz", "squad1/dev.json.gz", "f1", length=384, tests=2_000),
}
HEAVY = ("WikiANN en", "CoNLL-2003", "Banking77", "RuSentiTweet", "SST-2")


def file_of(data: Path, name: str) -> Path:
    found = sorted(data.glob(f"{name}*"))
    if not found:
        raise SystemExit(f"{data / name}: no such file")
    return found[0]


def rows_of(spec: Spec, data: Path) -> tuple[list[Any], list[Any]]:
    """The same training and test examples for both sides."""
    import random

    from sesame.data.labelled import read_labelled

    columns = {} if spec.kind in ("tag", "qa") else {"label": "label"}
    found = []
    for name, most in ((spec.train, spec.rows), (spec.test, spec.tests)):
        examples = read_labelled(file_of(data, name), spec.kind, columns).examples
        if len(examples) > most:
            examples = random.Random(0).sample(examples, most)
        found.append(examples)
    return found[0], found[1]


def write_rows(examples: list[Any], kind: str, path: Path) -> None:
    with path.open("w", encoding="utf-8") as handle:
        for e in examples:
            row: dict[str, Any] = {"text": e.text, "label": e.label}
            if e.pair is not None:
                row = {"text_a": e.text, "text_b": e.pair, "label": e.label}
            if kind == "tag":
                row = {"tokens": [e.text[a:b] for a, b in e.words], "tags": e.label}
            if kind == "qa":
                answers = [{"text": a.text, "start": a.start} for a in e.label]
                row = {"id": e.id, "context": e.text, "question": e.pair, "answers": answers}
            handle.write(json.dumps(row, ensure_ascii=False) + "\n")


def ours(spec: Spec, model: str, data: Path, seeds: list[int], device: str) -> list[float]:
    from sesame.finetuning.run import Wishes, finetune

    train, test = rows_of(spec, data)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_rows(train, spec.kind, folder / "train.jsonl")
        write_rows(test, spec.kind, folder / "test.jsonl")
        settings = [
            f"epochs={spec.epochs}", "least_steps=0", f"optimizer.rate={spec.rate}", f"batch={BATCH}", "rate_width=0",
            f"optimizer.decay={DECAY}", f"schedule.warmup={WARMUP}", f"task.length={spec.length}",
        ]  # fmt: skip
        values = []
        for seed in seeds:
            out = folder / f"run-{seed}"
            finetune(
                Wishes(
                    model=model, task=spec.kind, train=str(folder / "train.jsonl"), valid=str(folder / "test.jsonl"), out=out,
                    seeds=1, seed=seed, metric=spec.metric, settings=settings, baselines=False, device=device,
                )
            )  # fmt: skip
            results = json.loads((out / "results.json").read_text())
            values.append(results["scores"]["valid"][spec.metric]["mean"])
    return values


def theirs(spec: Spec, model: str, data: Path, seeds: list[int], device: str) -> list[float]:
    train, test = rows_of(spec, data)
    return [trainer(spec, model, train, test, seed, device) for seed in seeds]


def trainer(spec: Spec, start: str, train: list[Any], test: list[Any], seed: int, device: str) -> float:
    import torch
    import transformers as hf

    hf.set_seed(seed)
    tokenizer = hf.AutoTokenizer.from_pretrained(start)
    labels = label_names(spec, train)
    config = hf.AutoConfig.from_pretrained(start)
    if labels:
        config.num_labels = len(labels)
        config.id2label = dict(enumerate(labels))
        config.label2id = {label: number for number, label in enumerate(labels)}
    if spec.kind == "regress":
        config.num_labels, config.problem_type = 1, "regression"
    auto = {
        "classify": hf.AutoModelForSequenceClassification,
        "regress": hf.AutoModelForSequenceClassification,
        "tag": hf.AutoModelForTokenClassification,
        "qa": hf.AutoModelForQuestionAnswering,
    }[spec.kind]
    model = auto.from_pretrained(start, config=config, dtype=torch.float32)
    rows = encode(spec, tokenizer, train, labels)
    steps = -(-len(rows) // BATCH) * spec.epochs
    collator = hf.DataCollatorWithPadding(tokenizer)
    if spec.kind == "tag":
        collator = hf.DataCollatorForTokenClassification(tokenizer)
    with tempfile.TemporaryDirectory() as place:
        settings = hf.TrainingArguments(
            output_dir=place, per_device_train_batch_size=BATCH, learning_rate=spec.rate, num_train_epochs=spec.epochs,
            warmup_steps=int(WARMUP * steps), weight_decay=DECAY, bf16=device == "cuda", seed=seed, report_to=[],
            save_strategy="no", logging_strategy="no", disable_tqdm=True, use_cpu=device == "cpu",
        )  # fmt: skip
        job = hf.Trainer(model=model, args=settings, train_dataset=rows, data_collator=collator)
        job.train()
        model.save_pretrained(place)
        tokenizer.save_pretrained(place)
        return scored(spec, place, test, device)


def label_names(spec: Spec, train: list[Any]) -> list[str]:
    if spec.kind == "classify":
        return sorted({e.label for e in train})
    if spec.kind == "tag":
        return sorted({tag for e in train for tag in e.label})
    return []


def encode(spec: Spec, tokenizer: Any, train: list[Any], labels: list[str]) -> list[dict[str, Any]]:
    index = {label: number for number, label in enumerate(labels)}
    if spec.kind in ("classify", "regress"):
        second = [e.pair for e in train] if train[0].pair is not None else None
        found = tokenizer([e.text for e in train], second, truncation=True, max_length=spec.length)
        answers = [index[e.label] if labels else float(e.label) for e in train]
        return [{**{k: v[i] for k, v in found.items()}, "labels": answers[i]} for i in range(len(train))]
    if spec.kind == "tag":
        return [encode_words(e, tokenizer, index, spec.length) for e in train]
    return [row for e in train for row in encode_question(e, tokenizer, spec.length)]


def encode_words(e: Any, tokenizer: Any, index: dict[str, int], length: int) -> dict[str, Any]:
    found = tokenizer([e.text[a:b] for a, b in e.words], is_split_into_words=True, truncation=True, max_length=length)
    words = found.word_ids()
    first = [w is not None and (i == 0 or words[i - 1] != w) for i, w in enumerate(words)]
    labels = [index[e.label[w]] if is_first else -100 for w, is_first in zip(words, first, strict=True)]
    return {**found, "labels": labels}


def encode_question(e: Any, tokenizer: Any, length: int) -> list[dict[str, Any]]:
    """Windows with stride, as in the question answering example of transformers."""
    found = tokenizer(
        e.pair, e.text, truncation="only_second", max_length=length, stride=length // 4,
        return_overflowing_tokens=True, return_offsets_mapping=True,
    )  # fmt: skip
    rows = []
    answer = e.label[0]
    for number, offsets in enumerate(found["offset_mapping"]):
        kinds = found.sequence_ids(number)
        inside = [i for i, kind in enumerate(kinds) if kind == 1]
        start = end = 0
        last = answer.start + len(answer.text)
        if inside and offsets[inside[0]][0] <= answer.start and offsets[inside[-1]][1] >= last:
            start = max(i for i in inside if offsets[i][0] <= answer.start)
            end = min(i for i in inside if offsets[i][1] >= last)
        keys = [key for key in ("input_ids", "token_type_ids", "attention_mask") if key in found]
        rows.append({**{key: found[key][number] for key in keys}, "start_positions": start, "end_positions": end})
    return rows


def scored(spec: Spec, folder: str, test: list[Any], device: str) -> float:
    """Their model, opened here."""
    from dataclasses import replace

    from sesame.evaluate.scoring import gold_of, said_of, score
    from sesame.opening import load

    loaded = load(folder, device)
    task = loaded.task()
    task.config = replace(task.config, length=spec.length, null=False)
    replies = loaded.predict([replace(e, label=None) for e in test])
    return score(task.config, gold_of(task.config, test), said_of(task.config, replies))[spec.metric]


def job(side: str, name: str, model: str, data: Path, seeds: list[int], out: Path) -> None:
    import torch

    torch.set_num_threads(2)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    began = time.monotonic()
    run = ours if side == "sesame" else theirs
    values = run(TASKS[name], model, data, seeds, device)
    figures = {"values": values, "seconds": round(time.monotonic() - began, 1)}
    (out / f"{name}.{side}.{seeds[0]}.json").write_text(json.dumps(figures))


def all_jobs(
    model: str, data: Path, out: Path, seeds: int, parallel: int, only: list[str], sides: list[str], chunk: int
) -> None:
    """Long ones first; a machine with many cores runs many at once."""
    out.mkdir(parents=True, exist_ok=True)
    names = [name for name in [*HEAVY, *(n for n in TASKS if n not in HEAVY)] if not only or name in only]
    parts = [list(range(start, min(start + chunk, seeds))) for start in range(0, seeds, chunk)]
    todo = [(side, name, part) for part in parts for name in names for side in sides]
    todo = [t for t in todo if not (out / f"{t[1]}.{t[0]}.{t[2][0]}.json").exists()]
    running: list[tuple[subprocess.Popen[bytes], tuple[str, str, list[int]]]] = []
    while todo or running:
        for process, what in [r for r in running if r[0].poll() is not None]:
            print(what, "failed" if process.returncode else "done", flush=True)
            running.remove((process, what))
        while todo and len(running) < parallel:
            side, name, part = todo.pop(0)
            asked = f"{side}:{name}:{','.join(map(str, part))}"
            command = [sys.executable, __file__, model, str(data), str(out), "--job", asked]
            log = (out / f"{name}.{side}.{part[0]}.log").open("wb")
            quiet = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "2"}
            running.append((subprocess.Popen(command, stdout=log, stderr=log, env=quiet), (side, name, part)))
        time.sleep(0.2)


def table(out: Path) -> str:
    rows = []
    for name, spec in TASKS.items():
        found: dict[str, list[float]] = {}
        seconds: dict[str, list[float]] = {}
        for side in ("sesame", "trainer"):
            for file in sorted(out.glob(f"{name}.{side}.*.json")):
                figures = json.loads(file.read_text())
                found.setdefault(side, []).extend(figures["values"])
                seconds.setdefault(side, []).append(figures["seconds"])
        if len(found) < 2:
            continue
        cells = {side: spread(values) for side, values in found.items()}
        ours_mean, theirs_mean = (sum(found[side]) / len(found[side]) for side in ("sesame", "trainer"))
        gap = 100 * (ours_mean - theirs_mean)
        rows.append([
            name, spec.metric, f"{spec.rows if spec.rows < 10_000 else 'up to 10,000'}", f"{spec.epochs}", cells["sesame"],
            cells["trainer"], f"{gap:+.2f}", f"{len(found['sesame'])}",
        ])  # fmt: skip
    return report.table(["task", "score", "rows", "epochs", "sesame", "Trainer", "difference", "seeds"], rows)


def spread(values: list[float]) -> str:
    import statistics

    std = statistics.stdev(values) if len(values) > 1 else float("nan")
    return f"{100 * statistics.mean(values):.2f} ± {100 * std:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Fine-tune on many tasks, here and with transformers' Trainer.")
    parser.add_argument("model", nargs="?")
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--parallel", type=int, default=12)
    parser.add_argument("--chunk", type=int, default=3, help="seeds that one process trains, one after the other")
    parser.add_argument("--only", default="")
    parser.add_argument("--sides", default="trainer,sesame")
    parser.add_argument("--job", default="")
    parser.add_argument("--table", type=Path)
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    given = parser.parse_args()
    if given.table:
        shown = table(given.table)
        print(shown)
        if given.write:
            report.put("finetune", shown)
    elif given.job:
        side, name, seeds = given.job.split(":")
        job(side, name, given.model, given.data, [int(seed) for seed in seeds.split(",")], given.out)
    else:
        only = [name for name in given.only.split(",") if name]
        sides = given.sides.split(",")
        all_jobs(given.model, given.data, given.out, given.seeds, given.parallel, only, sides, given.chunk)
        print(table(given.out))


if __name__ == "__main__":
    main()
