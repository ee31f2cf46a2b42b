"""Do a word's vectors follow its sense? Contextual vectors of models against static ones, on RUSSE'2018 and WiC.

    python benchmarks/senses.py DATA --english MODEL --russian MODEL [--english-vectors FILE] [--russian-vectors FILE]

DATA holds russe_wsi/*.train.jsonl.gz (Panchenko et al. 2018, https://arxiv.org/abs/1803.05795) and wic/ (Pilehvar &
Camacho-Collados 2019, https://aclanthology.org/N19-1128).

RUSSE: occurrences of a word are clustered; the score is the adjusted Rand index with the senses of a dictionary, for each
word, then the mean weighted by a word's occurrences, as in the shared task. The number of senses is found by silhouette, or
told. WiC: is a word used in the same sense in two sentences? Yes above a threshold of the cosine; threshold and layer are
those that are best on the training pairs. A static vector of an occurrence is the mean of the other words' vectors: the
word's own vector is the same everywhere and tells nothing (RUSSE: one cluster, ARI 0; WiC: chance, 50 %). It is given plain,
and with frequent words counting less, a / (a + p) (Arora, Liang & Ma 2017, https://openreview.net/forum?id=SyK00v5xx), p by
the word's place in the file, which follows frequency. A model's vector is given with the word in its place, and with a mask.
"""

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.metrics import adjusted_rand_score

from sesame.checkpoint.loading import load_parts
from sesame.data.streams import lines
from sesame.data.vector_files import read_vectors
from sesame.explain.occurrences import Occurrence, contextual
from sesame.explain.senses import senses
from sesame.progress import bar, say

RUSSE = ("wiki-wiki", "bts-rnc", "active-dict")
LAYERS = ("last", "second-to-last", "sum-last-4")  # all of them are read off the last four
SHOWN = "лук"
WAYS = {"context": False, "context, weighted": True}  # of static vectors: whether frequent words count less
HIDING = {"": False, ", word hidden": True}  # of models: whether a mask stands in the place of the word
RARE = 1e-3  # a word of this share counts half
WORD = re.compile(r"\w+(?:-\w+)*")

Matrix = npt.NDArray[np.float32]
Embedder = Callable[[list[Occurrence]], Matrix]


@dataclass(frozen=True)
class Usage:
    word: str
    sense: str
    occurrences: list[Occurrence]  # several where a text holds the word more than once


def rows_of(path: Path) -> Iterator[dict[str, Any]]:
    for _, line, _ in lines(path, 1 << 24):
        yield json.loads(line)


# ---- vectors --------------------------------------------------------------------------------------------------------


def of_model(folder: str, hide: bool = False) -> Embedder:
    """The last four layers (or all, if there are fewer) beside each other."""
    parts = load_parts(folder)
    assert parts.tokenizer is not None, f"{folder} has no tokenizer"
    tokenizer = parts.tokenizer

    def vectors(occurrences: list[Occurrence]) -> Matrix:
        with bar("states", len(occurrences), "words") as shown:
            found = contextual(parts.backbone, tokenizer, occurrences, "concat-last-4", shown, hide=hide)
        return found.reshape(len(found), -1, parts.backbone.width)

    return vectors


def chosen(stack: Matrix, layers: str) -> Matrix:
    """Shape: (N, J, D) -> (N, D); vectors without layers stay as they are."""
    if stack.ndim == 2:
        return stack
    return {"last": stack[:, -1], "second-to-last": stack[:, max(-2, -stack.shape[1])], "sum-last-4": stack.sum(1)}[
        layers
    ]


def of_context(file: str, weighted: bool = False) -> Embedder:
    """The mean of what stands around the word, without the word and without words that have no vector."""
    known = read_vectors(file)
    zipf = 1 / np.arange(1, len(known.matrix) + 1, dtype=np.float32)
    weights = RARE / (RARE + zipf / zipf.sum()) if weighted else np.ones_like(zipf)

    def vector(one: Occurrence) -> Matrix:
        words = [hit for hit in WORD.finditer(one.text) if hit.end() <= one.start or hit.start() >= one.end]
        rows = [row for hit in words if (row := known.row(hit[0])) is not None]
        return weights[rows] @ known.matrix[rows] / len(rows) if rows else np.zeros(known.width, np.float32)

    return lambda occurrences: np.stack([vector(one) for one in occurrences])


# ---- RUSSE ----------------------------------------------------------------------------------------------------------


def usages(path: Path) -> list[Usage]:
    found = [Usage(row["word"], row["sense"], list(_occurrences(row))) for row in rows_of(path)]
    kept = [usage for usage in found if usage.occurrences]
    if len(kept) < len(found):
        say(f"{path}: {len(found) - len(kept)} of {len(found):,} rows have no text and are left out")
    return kept


def _occurrences(row: dict[str, Any]) -> Iterator[Occurrence]:
    """Where the file says, moved to the nearest word that begins like this one: some places are off by a few letters."""
    text, begin = row["text"], row["word"][:2].lower()
    words = list(WORD.finditer(text))
    if not words:
        return
    alike = [hit for hit in words if hit[0].lower().startswith(begin)] or words
    spans = [tuple(map(int, span.split("-"))) for span in row["positions"].split(",") if span]
    if not spans:  # 45 rows do not say where: the most similar word
        stem = row["word"][: max(3, len(row["word"]) - 2)].lower()
        spans = [next((hit.span() for hit in alike if hit[0].lower().startswith(stem)), alike[0].span())]
    found = {min(alike, key=lambda hit: (abs(hit.start() - start), hit.start())).span() for start, _ in spans}
    for start, end in sorted(found):
        yield Occurrence(text, start, end)


def russe(data: Path, name: str, vectors: Embedder, layers: str) -> dict[str, Any]:
    given = usages(data / "russe_wsi" / f"{name}.train.jsonl.gz")
    flat = chosen(vectors([one for usage in given for one in usage.occurrences]), layers)
    ends = np.cumsum([len(usage.occurrences) for usage in given])[:-1]
    means = np.stack([part.mean(0) for part in np.split(flat, ends)])
    groups: dict[str, list[int]] = defaultdict(list)
    for number, usage in enumerate(given):
        groups[usage.word].append(number)
    scores = {}
    for word, rows in groups.items():
        truth = [given[row].sense for row in rows]
        found, told = senses(means[rows]), senses(means[rows], len(set(truth)))
        scores[word] = (adjusted_rand_score(truth, found), adjusted_rand_score(truth, told), len(rows))
    weights = [count for *_, count in scores.values()]
    free, told = (np.average([score[at] for score in scores.values()], weights=weights) for at in (0, 1))
    return {"set": name, "words": len(scores), "ari": float(free), "ari_told": float(told), "by_word": scores}


# ---- WiC ------------------------------------------------------------------------------------------------------------


def wic(data: Path, vectors: Embedder, all_layers: Sequence[str]) -> list[dict[str, Any]]:
    """A row for each layer."""
    given = {}
    for split, name in (("train", "train.jsonl.gz"), ("dev", "dev.jsonl"), ("test", "test.jsonl.gz")):
        rows = list(rows_of(data / "wic" / name))
        sides = [vectors([_token(row[f"text_{side}"], row[f"index_{side}"]) for row in rows]) for side in "ab"]
        given[split] = (*sides, np.array([row["label"] for row in rows]))
    found = []
    for layers in all_layers:
        cosines = {split: _cosines(chosen(a, layers), chosen(b, layers)) for split, (a, b, _) in given.items()}
        cuts = np.quantile(cosines["train"], np.linspace(0, 1, 401))
        cut = cuts[int(np.argmax([((cosines["train"] > cut) == given["train"][2]).mean() for cut in cuts]))]
        right = {split: float(((cosines[split] > cut) == given[split][2]).mean()) for split in given}
        found.append({"set": "wic", "layers": layers, "threshold": float(cut)} | right)
    return found


def _cosines(a: Matrix, b: Matrix) -> Matrix:
    a, b = (side / np.maximum(np.linalg.norm(side, axis=1, keepdims=True), 1e-12) for side in (a, b))
    return (a * b).sum(1)


def _token(text: str, index: int) -> Occurrence:
    words = text.split(" ")
    start = len(" ".join(words[:index])) + (index > 0)
    return Occurrence(text, start, start + len(words[index]))


# ---- the tables -----------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--english", action="append", default=[], help="a model folder")
    parser.add_argument("--russian", action="append", default=[], help="a model folder")
    parser.add_argument("--english-vectors", action="append", default=[], help="a file of static vectors")
    parser.add_argument("--russian-vectors", action="append", default=[], help="a file of static vectors")
    parser.add_argument("--layers", default="sum-last-4", help="of the model, for RUSSE; for WiC the best on train")
    parser.add_argument("--out", type=Path, help="all figures as JSON")
    wanted = parser.parse_args()
    found: list[dict[str, Any]] = []
    models = [
        (f"{name}, {wanted.layers}{how}", of_model(name, hide))
        for name in wanted.russian
        for how, hide in HIDING.items()
    ]
    static = [
        (f"{name}, {how}", of_context(name, rare)) for name in wanted.russian_vectors for how, rare in WAYS.items()
    ]
    for name, vectors in models + static:
        for part in RUSSE:
            found.append({"vectors": name} | russe(wanted.data, part, vectors, wanted.layers))
            row = found[-1]
            own = row["by_word"].get(SHOWN)
            beside = f", {SHOWN} {own[0]:.3f} / {own[1]:.3f} ({own[2]} texts)" if own else ""
            print(
                f"{name} | {part}: ARI {row['ari']:.3f}, number of senses told {row['ari_told']:.3f}{beside}",
                flush=True,
            )
    for name, vectors, layers in (
        *((name + how, of_model(name, hide), LAYERS) for name in wanted.english for how, hide in HIDING.items()),
        *((name, of_context(name, rare), (how,)) for name in wanted.english_vectors for how, rare in WAYS.items()),
    ):
        rows = [{"vectors": name} | row for row in wic(wanted.data, vectors, layers)]
        found += rows
        print(f"{name} | WiC: " + _wic_text(max(rows, key=lambda row: row["train"])), flush=True)
    if wanted.out is not None:
        wanted.out.write_text(json.dumps(found, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _wic_text(row: dict[str, Any]) -> str:
    shares = ", ".join(f"{split} {row[split]:.1%}" for split in ("train", "dev", "test"))
    return f"{row['layers']}, {shares}, threshold {row['threshold']:.3f}"


if __name__ == "__main__":
    main()
