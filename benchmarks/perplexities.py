"""How unexpected is English to models of a few minutes? Penn Treebank and WikiText-2, perplexity by word.

    python benchmarks/perplexities.py OUT --data CORPORA [--trials gpt.ptb,...] [--budget 120] [--seeds 1] [--parallel 2]
    python benchmarks/perplexities.py --table OUT

CORPORA holds ptb/ptb.{train,valid,test}.txt and wikitext-2/wiki.{train,valid,test}.tokens as they are published. As
everywhere, the end of each line is a word (<eos>) that counts, and the vocabulary is that of the training text: no word is
cut. The texts are small and read many times, so dropout is back, which a budget else takes away, and the model that counts is
that of the lowest loss on the validation part (`evaluation.best`). Models without memory are
read in windows that overlap by half; Transformer-XL is read in parts twice, with its memory and without; AWD-LSTM's state
goes on from word to word. ELMo has two perplexities: of each word given those before it in its row, and given those behind
it. The seconds are of training, compilation not counted; AWD-LSTM has five times as many. What a trial reached is kept in
OUT; `--table` writes it into docs/methods.md.
"""

import argparse
import json
import math
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import report
from side_by_side import asked, chosen, keep, kept_lines, options, parted, side_by_side, spread

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "methods.md"
CORPORA = {  # its files, and its words with room for bytes and marks
    "ptb": ("ptb/ptb.{}.txt", 10_300),
    "wikitext-2": ("wikitext-2/wiki.{}.tokens", 33_600),
}
WORDS = ("tokenizer.kind=spaced", "tokenizer.lowercase=false", "evaluation.best=true")
MORE = ("backbone.dropout=0.3", "backbone.attention_dropout=0.1", *WORDS)


@dataclass(frozen=True)
class Trial:
    recipe: str
    size: str
    settings: tuple[str, ...]
    longer: float = 1.0  # times the budget


TRIALS = {
    "gpt": Trial("gpt", "mini", MORE),
    "gpt2": Trial("gpt2", "mini", MORE),
    "transformer-xl": Trial("transformer-xl", "mini", MORE),
    "awd-lstm": Trial("awd-lstm", "base", WORDS, longer=5.0),
    "elmo": Trial("elmo", "small", (*WORDS, "backbone.dropout=0.3")),
}


def corpus(name: str, given: argparse.Namespace) -> dict[str, Path]:
    """The three parts with <eos> at the end of each line."""
    pattern = CORPORA[name][0]
    found = {}
    for part in ("train", "valid", "test"):
        lines = (given.data / pattern.format(part)).read_text(encoding="utf-8").splitlines()
        file = given.out / "text" / f"{name}.{part}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists():  # whole at once: others may look
            aside = file.with_suffix(f".{os.getpid()}")
            aside.write_text("".join(f"{line.strip()} <eos>\n" for line in lines), encoding="utf-8")
            aside.replace(file)
        found[part] = file
    return found


def made(name: str, given: argparse.Namespace) -> dict[str, Any]:
    trial = TRIALS[name.partition(".")[0]]
    return {**asked(given), "size": given.size or trial.size, "budget": given.budget * trial.longer}


def one(name: str, seed: int, given: argparse.Namespace) -> None:
    """Within a process of its own."""
    import torch

    from sesame.checkpoint.loading import load_parts
    from sesame.pretraining.run import Wishes, pretrain

    what, _, where = name.partition(".")
    trial, files, how = TRIALS[what], corpus(where, given), made(name, given)
    run = given.out / "runs" / f"{name}.{seed}"
    wishes = Wishes(
        recipe=trial.recipe, text=[str(files["train"])], valid=[str(files["valid"])], out=run, size=how["size"], seed=seed,
        device=given.device, budget=how["budget"], rehearse=True,
        settings=[*trial.settings, f"tokenizer.size={CORPORA[where][1]}", *given.set],
    )  # fmt: skip
    pretrain(wishes)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    parts = load_parts(run / "final")
    device = torch.device("cuda" if torch.cuda.is_available() and given.device != "cpu" else "cpu")
    values = both_ways(lines) if what == "elmo" else read_through(parts, files, device)
    found = {
        **how, "trial": what, "corpus": where, "perplexities": values,
        "parameters": sum(p.numel() for p in parts.backbone.parameters()),
        "steps": max(line["step"] for line in lines), "tokens": max(line.get("tokens", 0) for line in lines),
    }  # fmt: skip
    keep(name, seed, given, found)
    print(f"{name} seed {seed}: {found['steps']:,} steps, {values}", flush=True)


def read_through(parts: Any, files: dict[str, Path], device: Any) -> dict[str, dict[str, float]]:
    """Perplexities of a model that reads from left to right, by how it reads and by part."""
    from sesame.data.corpus_files import corpus_files
    from sesame.data.readers import read_documents
    from sesame.evaluate.perplexity import Reading, perplexity

    for module in (parts.backbone, *parts.heads.values()):
        module.to(device)
    found: dict[str, dict[str, float]] = {}
    if hasattr(parts.backbone.config, "memory"):
        readings = {"memory": Reading(), "no memory": Reading(memory=False)}
    elif parts.backbone.reads_on:
        readings = {"": Reading()}
    else:
        readings = {"": Reading(stride=parts.backbone.config.max_length // 2)}
    for part in ("valid", "test"):
        texts = [document.text for document in read_documents(corpus_files([str(files[part])]), "text")]
        for how, reading in readings.items():
            found.setdefault(how, {})[part] = perplexity(parts, texts, reading).per_word
    return found


def both_ways(lines: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """ELMo's two, of the validation text that the run looked at, when they were best."""
    ways = ("forward", "backward")
    looks = [line["held_out"] for line in lines if "held_out" in line]
    best = min(looks, key=lambda look: sum(look[way] for way in ways))
    return {way: {"valid": math.exp(best[way])} for way in ways}


def compare(given: argparse.Namespace) -> None:
    names = chosen(given.trials, [f"{trial}.{where}" for trial in TRIALS for where in CORPORA])
    for where in {name.partition(".")[2] for name in names}:
        corpus(where, given)  # before those who read it side by side
    side_by_side(names, given, made=partial(made, given=given))


def table(out: Path) -> str:
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for line in kept_lines(out):
        found.setdefault((line["corpus"], line["trial"]), []).append(line)
    rows = []
    for (where, trial), lines in found.items():
        for how in lines[0]["perplexities"]:
            values = [[line["perplexities"][how].get(part) for line in lines] for part in ("valid", "test")]
            first = lines[0]
            rows.append([
                where, f"`{trial}` {first['size']}" + (f", {how}" if how else ""), f"{first['parameters'] / 1e6:.1f}",
                f"{first['budget']:g}", f"{first['steps']:,}", f"{first['tokens'] / 1e6:.0f}", str(len(lines)),
                *("" if None in each else spread(each, 1) for each in values),
            ])  # fmt: skip
    first = next(iter(found.values()))[0]
    how = f"Up to {first['parallel']} trials at a time on one device. {first['machine']}"
    head = ["corpus", "recipe", "M parameters", "seconds", "steps", "M tokens", "seeds", "valid", "test"]
    return f"{how}\n\n{report.table(head, rows)}"


def main() -> None:
    parser = options("Perplexities of language models on small corpora.", seeds=1, parallel=2, size=None, budget=120.0)
    given = parser.parse_args()
    if given.table:
        report.put("perplexities", table(given.table), PAGE)
    elif given.out is None or given.data is None:
        parser.error("OUT and --data are needed")
    elif given.one:
        one(*parted(given.one), given)
    else:
        compare(given)


if __name__ == "__main__":
    main()
