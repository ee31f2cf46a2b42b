"""How fast does a CPU answer: texts a second and the wait for a single text, here and elsewhere?

    python benchmarks/answers.py MODEL [TEXT] [--texts 1000] [--rounds 5] [--threads N] [--sweep] [--write]

Sentences of 5 to 60 words, the lengths drawn evenly, cut from TEXT (.txt, plain or compressed), or from the docstrings of
the standard library. Each side turns text into vectors: tokenizer, encoder, mean over the tokens. The sides take turns
(A B C A B C ...) with equal threads, and medians are compared.

- transformers: `AutoModel` with its own fast tokenizer, batches of 32 in the order given, padded; fp32.
- sesame: `sesame.load(MODEL, precision=...).embed(texts)`; with `--onnx FOLDER...` also `engine="onnx"` on what
  `sesame convert MODEL --to onnx --task embed` wrote there.
- sentence-transformers and ONNX Runtime, where they can be imported (the latter wants MODEL/onnx/model.onnx).

Agreement: Spearman's correlation of the cosines of all pairs of 200 texts with those of our fp32.
"""

import argparse
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

import numpy as np
import numpy.typing as npt
import torch

import report
import sesame
from sesame.data.docstrings import documents
from sesame.data.readers import read_documents
from sesame.fewer_bits import of_vectors
from sesame.tasks import streams

Vectors = npt.NDArray[np.float32]
Side = Callable[[Sequence[str]], Vectors]
BATCH, SINGLES = 32, 40


def sentences(file: Path | None, count: int) -> list[str]:
    texts = (document.text for document in read_documents([file])) if file else (text for _, text in documents())
    words: list[str] = []
    for text in texts:
        words += text.split()
        if len(words) > 40 * count:
            break
    luck, at = random.Random(0), 0
    found: list[str] = []
    while len(found) < count:
        size = luck.randint(5, 60)
        if at + size > len(words):
            raise SystemExit(f"the text has {len(words):,} words, too few for {count} sentences; give a longer one")
        found.append(" ".join(words[at : at + size]))
        at += size
    return found


def mean(hidden: torch.Tensor, mask: torch.Tensor) -> Vectors:
    weight = mask[..., None].float()
    found: Vectors = ((hidden * weight).sum(1) / weight.sum(1)).numpy()
    return found


def transformers_side(model: Path) -> Side:
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    tokenizer, encoder = AutoTokenizer.from_pretrained(model), AutoModel.from_pretrained(model).eval()

    @torch.inference_mode()
    def side(texts: Sequence[str]) -> Vectors:
        rows = []
        for start in range(0, len(texts), BATCH):
            batch = tokenizer(list(texts[start : start + BATCH]), padding=True, truncation=True, return_tensors="pt")
            rows.append(mean(encoder(**batch).last_hidden_state, batch["attention_mask"]))
        return np.concatenate(rows)

    return side


def sentence_side(model: Path) -> Side:
    from sentence_transformers import SentenceTransformer, models

    words = models.Transformer(str(model))
    whole = SentenceTransformer(modules=[words, models.Pooling(words.get_word_embedding_dimension())], device="cpu")
    return lambda texts: whole.encode(list(texts), batch_size=BATCH, show_progress_bar=False)


def onnx_side(model: Path, threads: int) -> Side:
    import onnxruntime
    from tokenizers import Tokenizer

    file = next((path for path in (model / "onnx" / "model.onnx", model / "model.onnx") if path.is_file()), None)
    if file is None:
        raise ImportError("no model.onnx beside the weights")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    names = {node.name for node in session.get_inputs()}
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.enable_padding()

    def side(texts: Sequence[str]) -> Vectors:
        rows = []
        for start in range(0, len(texts), BATCH):
            found = tokenizer.encode_batch(list(texts[start : start + BATCH]))
            given = {
                "input_ids": np.array([each.ids for each in found]),
                "attention_mask": np.array([each.attention_mask for each in found]),
                "token_type_ids": np.array([each.type_ids for each in found]),
            }
            outputs = session.run(None, {name: value for name, value in given.items() if name in names})
            hidden = next(torch.from_numpy(output) for output in outputs if output.ndim == 3)
            rows.append(mean(hidden, torch.from_numpy(given["attention_mask"])))
        return np.concatenate(rows)

    return side


def sesame_side(model: Path, precision: str) -> Side:
    loaded = sesame.load(model, "cpu", precision=precision, accept=True)
    return lambda texts: loaded.embed(list(texts))


def exported_side(folder: Path) -> Side:
    loaded = sesame.load(folder, "cpu", engine="onnx")
    return lambda texts: loaded.embed(list(texts))


def all_sides(model: Path, wanted: Sequence[str], threads: int, exported: Sequence[Path]) -> dict[str, Side]:
    sides = {"transformers": transformers_side(model)}
    for name, build in (("sentence-transformers", sentence_side), ("ONNX Runtime", lambda m: onnx_side(m, threads))):
        try:
            sides[name] = build(model)
        except ImportError as error:
            print(f"{name}: left out ({error})")
    sides |= {f"sesame {precision}": sesame_side(model, precision) for precision in wanted}
    return sides | {f"sesame, {folder.name}": exported_side(folder) for folder in exported}


def in_turns(sides: dict[str, Side], work: Sequence[Sequence[str]], warm: int) -> dict[str, list[float]]:
    """Seconds of each side for each piece of work, the sides one after the other; the first `warm` are not counted."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for number, texts in enumerate(work):
        for name, side in sides.items():
            start = time.perf_counter()
            side(texts)
            if number >= warm:
                found[name].append(time.perf_counter() - start)
    return found


def measure(sides: dict[str, Side], texts: list[str], rounds: int) -> str:
    reference = sides["sesame fp32"](texts[:200])
    agreed = {name: of_vectors(side(texts[:200]), reference).share for name, side in sides.items()}
    singles = [[text] for text in texts[: SINGLES * 2]]
    waits = in_turns(sides, singles + singles, len(singles))
    times = in_turns(sides, [texts] * (rounds + 1), 1)
    first = statistics.median(times["transformers"]), statistics.median(waits["transformers"])
    rows = []
    for name in sides:
        whole, one = statistics.median(times[name]), statistics.median(waits[name])
        cells: list[Any] = [f"{len(texts) / whole:,.0f}", f"{first[0] / whole:.2f}", f"{one * 1e3:.2f}"]
        rows.append([name, *cells, f"{first[1] / one:.2f}", f"{agreed[name]:.5f}"])
    head = ["side", "texts/s", "times as fast", "ms for one text", "times shorter", "Spearman to fp32"]
    return report.table(head, rows)


def sweep(model: Path, wanted: Sequence[str], texts: list[str], rounds: int) -> None:
    """Texts a second for several sizes of a core's batch: what `streams.TOKENS` should be."""
    sides = {precision: sesame_side(model, precision) for precision in wanted}
    for tokens in (256, 512, 1024, 2048, 4096):
        streams.TOKENS = tokens
        times = in_turns(sides, [texts] * (rounds + 1), 1)
        print(tokens, *(f"{name} {len(texts) / statistics.median(times[name]):,.0f}" for name in sides), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("text", type=Path, nargs="?")
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--precisions", default="fp32,bf16,int8")
    parser.add_argument("--onnx", type=Path, nargs="*", default=[], help="folders of `sesame convert --to onnx`")
    parser.add_argument("--sweep", action="store_true", help="only compare sizes of our batches")
    parser.add_argument("--write", action="store_true")
    wishes = parser.parse_args()
    torch.set_num_threads(wishes.threads)
    texts = sentences(wishes.text, wishes.texts)
    said = f"{report.machine()}, {wishes.threads} threads; {wishes.model.name}, {wishes.texts:,} sentences of 5 to 60 words"
    print(said)
    if wishes.sweep:
        sweep(wishes.model, wishes.precisions.split(","), texts, wishes.rounds)
        return
    sides = all_sides(wishes.model, wishes.precisions.split(","), wishes.threads, wishes.onnx)
    table = measure(sides, texts, wishes.rounds)
    print(table)
    if wishes.write:
        report.put("answers", f"{said}, medians of {wishes.rounds} rounds\n\n{table}")


if __name__ == "__main__":
    main()
