"""Do exported ONNX graphs answer as the model does, for every head, on real texts?

    python benchmarks/fidelity_onnx.py MODEL TEXT [--lines 1000] [--precision fp32] [--write]

Exports every head of MODEL into a temporary folder, opens that folder as a user would, and sends the same lines of TEXT
through ONNX Runtime and through PyTorch, windows of long texts included. Heads that the model was not taught get random
weights (seeded), large enough to give logits of several units. Shown are the largest difference of any logit (or number of
a vector), the largest logit beside it, and how many answers (labels, tags, spans, best tokens) are the same.
In fp32 the difference must stay below 1e-4; `--precision int8` shows what 8 bits change.
"""

import argparse
import itertools
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnxruntime
import torch
from torch import Tensor, nn

import report
import sesame
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.onnx import export
from sesame.checkpoint.onnx.check import expected
from sesame.checkpoint.onnx.engine import OnnxEngine
from sesame.checkpoint.onnx.heads import EMBED, FILL, choose_head
from sesame.data.examples import Example
from sesame.data.readers import read_documents
from sesame.objectives import MaskedLMHead
from sesame.tasks import Item, Task, TaskConfig, build_task
from sesame.tasks.inputs import batch_of
from sesame.tasks.predict import window_length
from sesame.tasks.windows import Inputs
from sesame.text import Encoding

LIMIT = 1e-4
TOKENS = 2048  # places of a batch
LABELS = ("red", "green", "blue", "white", "black")
CONFIGS = {
    "classify": TaskConfig("classify", LABELS),
    "classify, several labels": TaskConfig("classify", LABELS, multi=True, pooling="mean"),
    "classify, pairs": TaskConfig("classify", ("yes", "no"), pair=True, layers="mix", pooling="cls"),
    "regress": TaskConfig("regress", pooling="max"),
    "tag": TaskConfig("tag", ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")),
    "qa": TaskConfig("qa", null=True, layers="sum-last-4"),
    "choice": TaskConfig("choice"),
}


@dataclass
class Found:
    """What was seen of one head."""

    texts: int = 0
    windows: int = 0
    gap: float = 0.0
    largest: float = 0.0
    same: int = 0
    answers: int = 0

    def add(self, ours: Tensor, theirs: Tensor) -> None:
        finite = ours.isfinite()
        if not torch.equal(finite, theirs.isfinite()):
            raise SystemExit("one side has numbers where the other has none")
        self.gap = max(self.gap, float((ours[finite] - theirs[finite]).abs().max()))
        self.largest = max(self.largest, float(ours[finite].abs().max()))

    def row(self, name: str) -> list[str]:
        same = f"{self.same:,} of {self.answers:,}" if self.answers else ""
        return [name, f"{self.texts:,}", f"{self.windows:,}", f"{self.gap:.1e}", f"{self.largest:.1f}", same]


def randomize(module: nn.Module, seed: int) -> None:
    luck = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=luck) * 2 * parameter.shape[-1] ** -0.5)


def task_example(kind: str, pair: bool, lines: Sequence[str], at: int) -> Example:
    """Line number `at` as an example; what stands beside it comes from the lines after it."""
    line, after = lines[at], lines[(at + 1) % len(lines)]
    place = f"line {at + 1}"
    if kind == "choice":
        options = tuple(" ".join(lines[(at + step) % len(lines)].split()[:12]) for step in range(1, 3 + at % 3))
        return Example(place, line, options=options)
    if kind == "qa":
        return Example(place, line, " ".join(after.split()[:10]))
    return Example(place, line, after if pair else None)


def groups(sizes: Sequence[tuple[int, int]]) -> Iterator[list[int]]:
    """Indices of similar length; `sizes` are (rows, longest) of each, a group fills at most `TOKENS` places."""
    group: list[int] = []
    rows = 0
    for index in sorted(range(len(sizes)), key=lambda i: sizes[i][1]):
        more, width = sizes[index]
        if group and (rows + more) * width > TOKENS:
            yield group
            group, rows = [], 0
        group.append(index)
        rows += more
    yield group


@torch.no_grad()
def compare_task(parts: Parts, task: Task, engine: OnnxEngine, lines: Sequence[str]) -> Found:
    assert engine.task is not None
    assert parts.tokenizer is not None
    config = task.config
    inputs = Inputs(
        parts.tokenizer, window_length(task, parts.backbone), config.overlap, parts.backbone.config.segments
    )
    asked = [task_example(config.kind, config.pair, lines, at) for at in range(len(lines))]
    items = task.items(asked, inputs)
    found = Found(len(items), sum(len(item.windows) for item in items))
    for group in groups([(len(item.windows), max(len(w.ids) for w in item.windows)) for item in items]):
        chosen: list[Item] = [items[i] for i in group]
        batch = task.collate(chosen, inputs.pad)
        ours = task.answer(parts.backbone(batch, task.looks_at(batch)))
        theirs = engine.logits(batch)
        real = torch.arange(batch.ids.shape[1])[None] < batch.lengths[:, None]
        found.add(ours[real] if config.kind == "tag" else ours, theirs[real] if config.kind == "tag" else theirs)
        for index, a, b in zip(group, task.split(ours, chosen), engine.task.split(theirs, chosen), strict=True):
            left, right = task.read(a, items[index], asked[index]), engine.task.read(b, items[index], asked[index])
            keys = {"label", "labels", "tags", "choice", "start", "end"} & left.keys()
            found.same += all(left[key] == right[key] for key in keys)
            found.answers += bool(keys)
    return found


@torch.no_grad()
def compare_plain(parts: Parts, engine: OnnxEngine, encodings: Sequence[Encoding], pad: int) -> Found:
    """Masks and vectors, at every token; what does not fit into the model is cut off."""
    found = Found(len(encodings), len(encodings))
    for group in groups([(1, len(encoding.ids)) for encoding in encodings]):
        batch = batch_of([encodings[i] for i in group], pad)
        real = torch.arange(batch.ids.shape[1])[None] < batch.lengths[:, None]
        for a, b in zip(expected(parts, engine.head, batch), engine.run(batch), strict=True):
            found.add(a[real] if a.ndim == 3 else a, b[real] if b.ndim == 3 else b)
            if engine.head.kind == FILL:
                found.same += int((a[real].argmax(-1) == b[real].argmax(-1)).sum())
                found.answers += int(real.sum())
    return found


def run(parts: Parts, lines: Sequence[str], precision: str) -> Iterator[tuple[str, Found]]:
    backbone, tokenizer = parts.backbone, parts.tokenizer
    if tokenizer is None:
        raise SystemExit("the model has no tokenizer")
    config = backbone.config
    most = 512 if config.positions == "rotary" else config.max_length
    whole = tokenizer.encode_batch(list(lines), special=True)
    encodings = [Encoding(e.ids[:most], e.offsets[:most], e.words[:most], e.segments[:most]) for e in whole]
    pad = tokenizer.id("pad") if tokenizer.has("pad") else 0
    with tempfile.TemporaryDirectory() as temporary:

        def opened(whole: Parts, task: str, pooling: str = "mean") -> OnnxEngine:
            folder = Path(tempfile.mkdtemp(dir=temporary))
            export(folder, whole, choose_head(whole, task, "here", pooling=pooling), precision)
            return OnnxEngine(folder)

        for number, (name, wanted) in enumerate(CONFIGS.items()):
            task = build_task(wanted.kind, wanted, backbone).eval()
            randomize(task, number)
            taught = replace(parts, tasks={wanted.kind: task}, heads=dict(task.heads()))
            yield name, compare_task(taught, task, opened(taught, wanted.kind), lines)
        heads = dict(parts.heads)
        if "mlm" not in heads:
            kind = "gelu" if config.activation == "geglu" else config.activation
            head = MaskedLMHead(
                config.width, config.embedding_width or config.width, config.vocab, kind, config.eps
            ).eval()
            randomize(head.dense, 100)
            heads["mlm"] = head
        plain = replace(parts, tasks={}, heads=heads)
        yield FILL, compare_plain(plain, opened(plain, FILL), encodings, pad)
        for pooling in ("mean", "cls"):
            yield f"{EMBED}, {pooling}", compare_plain(plain, opened(plain, EMBED, pooling), encodings, pad)


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare exported ONNX graphs with PyTorch on real texts.")
    parser.add_argument("model", type=Path, help="a model folder")
    parser.add_argument("text", type=Path, help="text, plain or packed, one paragraph a line")
    parser.add_argument("--lines", type=int, default=1000, help="how many lines")
    parser.add_argument("--precision", choices=["fp32", "int8"], default="fp32")
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    options = parser.parse_args()
    every = (line for document in read_documents([options.text]) for line in document.text.splitlines() if line.strip())
    lines = list(itertools.islice(every, options.lines))
    parts = sesame.load(options.model, device="cpu").parts
    table, worst = [], 0.0
    for name, found in run(parts, lines, options.precision):
        table.append(found.row(name))
        worst = max(worst, found.gap)
        print(f"{name}: {found.gap:.1e}", file=sys.stderr, flush=True)
    head = ["head", "texts", "windows", "largest difference", "largest number", "same answers"]
    what = f"{options.model.name} in {options.precision}, ONNX Runtime {onnxruntime.__version__}"
    shown = f"{report.machine()}; {what}\n\n{report.table(head, table)}"
    print(shown)
    if options.write:
        report.put("fidelity_onnx", shown)
    if options.precision == "fp32" and worst > LIMIT:
        print(f"DIFFERENT: more than {LIMIT:g} apart")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
