"""Do sentences lie near their translations? Nearest neighbours among the other language's sentences.

    python benchmarks/retrieval.py MODEL PAIRS [--languages en-ru] [--count 2000] [--layer N] [--out FILE]

MODEL is a model folder or a run, PAIRS a .tsv or .jsonl file of sentences and their translations that the model has not seen.
A sentence's vector is the mean of its tokens' states in a layer (specials left out); for each one the nearest of the other
side by cosine is found, in both directions, as in Artetxe & Schwenk 2019 (https://arxiv.org/abs/1812.10464). Every layer is
shown; choose one on pairs kept for that, and name it with --layer for those that count. Pairs with a side that came before
are left out: the same sentence would have two right answers. Intervals are 95 %, by bootstrap over sentences.
"""

import argparse
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from sesame.backbones import Encoder
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.data.batch import Batch
from sesame.data.parallel import read_pairs
from sesame.data.parallel_columns import named_fields
from sesame.errors import SesameError
from sesame.evaluate.statistics import bootstrap_interval

ROWS = 64  # sentences at a time


def distinct_pairs(path: Path, languages: tuple[str, str], count: int) -> list[tuple[str, str]]:
    """The first `count` pairs whose sides are both new."""
    found: list[tuple[str, str]] = []
    seen: tuple[set[str], set[str]] = set(), set()
    for pair in read_pairs([path], named_fields([path], languages)):
        if pair.source not in seen[0] and pair.target not in seen[1]:
            found.append((pair.source, pair.target))
        seen[0].add(pair.source)
        seen[1].add(pair.target)
        if len(found) == count:
            break
    return found


@torch.inference_mode()
def vectors(parts: Parts, texts: list[str], language: str) -> Tensor:
    """The mean of the tokens in every layer, of length 1. Shape: (layers, N, D)."""
    encoder, tokenizer = parts.backbone.eval(), parts.tokenizer
    if tokenizer is None:
        raise SesameError("the model has no tokenizer; copy the folder again")
    known = encoder.config.languages
    number = known.index(language) if language in known else None
    specials = torch.tensor([tokenizer.id(role) for role in ("cls", "sep", "pad")])
    encoded = [item.ids[: encoder.config.max_length] for item in tokenizer.encode_batch(texts, special=True)]
    order = sorted(range(len(texts)), key=lambda row: len(encoded[row]))
    found = torch.empty(encoder.depth + 1, len(texts), encoder.width)
    for start in range(0, len(texts), ROWS):
        rows = order[start : start + ROWS]
        found[:, rows] = _means(encoder, [encoded[row] for row in rows], number, specials)
    return F.normalize(found, dim=-1)


def _means(encoder: Encoder, rows: list[list[int]], language: int | None, specials: Tensor) -> Tensor:
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.full((len(rows), int(lengths.max())), int(specials[2]))
    for number, row in enumerate(rows):
        ids[number, : len(row)] = torch.tensor(row)
    langs = None if language is None else torch.full_like(ids, language)
    layers = torch.stack(list(encoder(Batch(ids, lengths, langs=langs)).layers))
    text = (~torch.isin(ids, specials)).float()[None, :, :, None]
    return (layers * text).sum(2) / text.sum(2).clamp(min=1)


def found_there(a: Tensor, b: Tensor) -> list[int]:
    """1 for each row of `a` whose nearest row of `b` has the same number."""
    nearest = (a @ b.T).argmax(1)
    return [int(right) for right in nearest == torch.arange(len(a))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--languages", default="en-ru")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--layer", type=int, default=-1, help="only this one; 0 are the embeddings")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    first, _, second = given.languages.partition("-")
    parts = load_parts(given.model)
    pairs = distinct_pairs(given.pairs, (first, second), given.count)
    sides = [vectors(parts, [pair[side] for pair in pairs], language) for side, language in enumerate((first, second))]
    print(f"{len(pairs)} pairs; chance is {1 / len(pairs):.2%}")
    print(f"{'layer':>5}  {first}->{second:<24}{second}->{first}")
    results = []
    for layer in range(parts.backbone.depth + 1) if given.layer < 0 else [given.layer]:
        a, b = sides[0][layer], sides[1][layer]
        there, back = (bootstrap_interval(hits) for hits in (found_there(a, b), found_there(b, a)))
        shown = [f"{each.value:.1%} [{each.low:.1%}, {each.high:.1%}]" for each in (there, back)]
        print(f"{layer:>5}  {shown[0]:<26}{shown[1]}")
        results.append({"layer": layer, "there": there.value, "back": back.value})
    if given.out is not None:
        given.out.write_text(
            json.dumps({"model": given.model, "pairs": len(pairs), "layers": results}, indent=2) + "\n"
        )


if __name__ == "__main__":
    main()
