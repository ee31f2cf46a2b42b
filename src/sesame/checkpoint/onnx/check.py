"""Does a graph answer as our model does? Asked on sentences of several languages, and on random ids of all lengths.

A graph in 32 bits must agree within 1e-4, relative to answers larger than 1. One in 8 bits cannot; of it the share of equal
answers counts: equal labels, or Spearman's correlation where answers are numbers or vectors.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sesame.checkpoint.folder import Parts
from sesame.checkpoint.onnx.engine import OnnxEngine
from sesame.checkpoint.onnx.heads import EMBED, FILL, Head
from sesame.data.batch import Batch, Targets
from sesame.tasks.embed import POOLS
from sesame.tasks.inputs import batch_of
from sesame.tasks.layers import choose_layers
from sesame.text import Encoding
from sesame.text.samples import ENGLISH, OTHERS

LIMIT = 1e-4  # the largest difference of an answer in 32 bits
BAR = 0.9  # the least agreement of one in 8 bits
ROWS = 32
LONGEST = 128  # tokens of a sample: longer ones cost time and show nothing new
SAMPLES = (*ENGLISH, *OTHERS)


def sample_batches(parts: Parts, texts: Sequence[str] = SAMPLES) -> list[Batch]:
    """The texts, if there is a tokenizer, else random ids."""
    if parts.tokenizer is None:
        return [random_batch(parts)]
    config = parts.backbone.config
    most = LONGEST if config.positions == "rotary" else min(LONGEST, config.max_length)
    encoded = [
        _cut(encoding, most, config.segments) for encoding in parts.tokenizer.encode_batch(list(texts), special=True)
    ]
    encoded = sorted((encoding for encoding in encoded if encoding.ids), key=lambda encoding: len(encoding.ids))
    pad = parts.tokenizer.id("pad") if parts.tokenizer.has("pad") else 0
    return [batch_of(encoded[start : start + ROWS], pad) for start in range(0, len(encoded), ROWS)]


def _cut(encoding: Encoding, most: int, segments: int) -> Encoding:
    return Encoding(
        encoding.ids[:most],
        encoding.offsets[:most],
        encoding.words[:most],
        [min(segment, max(segments, 1) - 1) for segment in encoding.segments[:most]],
    )


def random_batch(parts: Parts, rows: int = 8) -> Batch:
    """Any ids and segments; lengths from 1 to the longest."""
    luck = torch.Generator().manual_seed(0)
    config = parts.backbone.config
    width = LONGEST if config.positions == "rotary" else min(LONGEST, config.max_length)
    lengths = torch.linspace(1, width, rows).round().long()
    ids = torch.randint(config.vocab, (rows, width), generator=luck)
    segments = torch.randint(max(config.segments, 1), (rows, width), generator=luck)
    return Batch(ids, lengths, segments=segments)


@dataclass(frozen=True)
class Pairs:
    """Answers of the graph and of our model, those at padding left out; one pair for each output and batch."""

    found: list[Tensor]
    wanted: list[Tensor]

    def difference(self) -> float:
        """The largest |found - wanted| / max(1, |wanted|); nan where one of them is none."""
        gaps = [
            ((a - b).abs() / b.abs().clamp(min=1)).max()
            for a, b in zip(self.found, self.wanted, strict=True)
            if a.numel()
        ]
        return float(torch.stack(gaps).max())


@torch.no_grad()
def ask(parts: Parts, engine: OnnxEngine, batches: Iterable[Batch]) -> Pairs:
    """The same batches through both."""
    head = engine.head
    for module in (parts.backbone, *parts.heads.values(), *parts.tasks.values()):
        module.eval()
    pairs = Pairs([], [])
    for plain in batches:
        batch = _single(plain, head)
        real = torch.arange(batch.ids.shape[1])[None] < batch.lengths[:, None]
        if head.kind == EMBED:
            found = engine.run(batch)
        else:
            found = [engine.logits(batch)]
        for a, b in zip(found, expected(parts, head, batch), strict=True):
            tokens = head.each_token or (head.kind == EMBED and a.ndim == 3)
            pairs.found.append(a[real] if tokens else a)
            pairs.wanted.append(b.float()[real] if tokens else b.float())
    return pairs


def _single(batch: Batch, head: Head) -> Batch:
    """Every row a text of its own."""
    rows = torch.arange(batch.size)
    options = torch.ones(batch.size, 1, dtype=torch.bool) if head.kind == "choice" else None
    return batch.with_targets(**{head.name: Targets(torch.zeros(batch.size), at=options, rows=rows)})


def expected(parts: Parts, head: Head, batch: Batch) -> list[Tensor]:
    """What PyTorch says."""
    backbone = parts.backbone
    if head.kind == FILL:
        logits = parts.heads["mlm"](backbone(batch).last, backbone.token_table())
        return [logits[..., : backbone.vocab]]
    if head.kind == EMBED:
        states = choose_layers(head.layers, backbone(batch).layers)
        if head.pooling == "pooler":
            return [parts.heads["pooler"](states[:, 0]).tanh(), states]
        return [POOLS[head.pooling](states, batch.lengths), states]
    task = parts.tasks[head.name]
    return [task.answer(backbone(batch, task.looks_at(batch)))]


def agreement(head: Head, multi: bool, pairs: Pairs) -> tuple[float, str]:
    """From 0 to 1, and what it is the share of."""
    if head.kind == EMBED:
        a, b = torch.cat(pairs.found[0::2]), torch.cat(pairs.wanted[0::2])
        return spearman(_similarities(a), _similarities(b)), "Spearman of similarities"
    a, b = torch.cat(pairs.found), torch.cat(pairs.wanted)
    if head.kind in ("regress", "choice"):
        return spearman(a.flatten(), b.flatten()), "Spearman of scores"
    if multi:
        return float(((a > 0) == (b > 0)).float().mean()), "share of equal labels"
    if head.kind == "qa":
        return spearman(a.flatten(), b.flatten()), "Spearman of the scores of all places"
    what = {FILL: "best tokens", "tag": "tags"}.get(head.kind, "labels")
    return float((a.argmax(-1) == b.argmax(-1)).float().mean()), f"share of equal {what}"


def _similarities(vectors: Tensor) -> Tensor:
    unit = torch.nn.functional.normalize(vectors, dim=-1)
    rows, columns = torch.triu_indices(len(unit), len(unit), 1)
    return (unit @ unit.T)[rows, columns]


def spearman(a: Tensor, b: Tensor) -> float:
    """Correlation of the ranks; 1 for fewer than two numbers."""
    if len(a) < 2:
        return 1.0
    ranks = torch.stack([x.argsort().argsort().double() for x in (a, b)])
    return float(torch.corrcoef(ranks)[0, 1])
