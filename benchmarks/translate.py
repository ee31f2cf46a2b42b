"""How fast does a CPU translate: tokens a second, here and elsewhere?

    python benchmarks/translate.py MODEL DATA [--texts 200] [--rounds 3] [--threads 2] [--ctranslate2 FOLDER...] [--write]

MODEL is Marian-shaped, ours or from elsewhere (`translate_model.py` makes one). DATA is JSON lines with "en" and "de". Each
side turns the same sources into text ids: beam 4, batches of 32, at most MOST new tokens, transformers' rule of stopping.
The sides take turns (A B C A B C ...) with equal threads, and medians are compared. Tokens are those of the answers, without
the end and without padding.

- transformers: `MarianMTModel.generate`, sources in the order given, padded; fp32.
- sesame: `sesame.load(MODEL).translate(texts)`: sorted by length, tokenizer included.
- CTranslate2: what `sesame convert MODEL --to ctranslate2` wrote into FOLDER, sorted by length by itself.

Said besides: how many answers equal those of transformers token for token, and BLEU (sacrebleu) against "de", of the timed
sources and, for all but transformers, which would take many minutes, of the whole file: 200 answers make a rough BLEU.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

import report
import sesame

Side = Callable[[list[str]], list[list[int]]]
BATCH, BEAMS, MOST = 32, 4, 64


def transformers_side(model: Path) -> Side:
    from transformers import MarianMTModel
    from transformers.utils import logging

    logging.disable_progress_bar()
    loaded, theirs = sesame.load(model, "cpu"), MarianMTModel.from_pretrained(model).eval()
    tokenizer, pad = loaded.tokenizer, theirs.config.pad_token_id
    ends = {pad, theirs.config.eos_token_id, theirs.config.decoder_start_token_id}

    @torch.inference_mode()
    def side(texts: list[str]) -> list[list[int]]:
        found: list[list[int]] = []
        for start in range(0, len(texts), BATCH):
            rows = [torch.tensor(e.ids) for e in tokenizer.encode_batch(texts[start : start + BATCH], special=True)]
            ids = torch.nn.utils.rnn.pad_sequence(rows, True, pad)
            mask = torch.arange(ids.shape[1]) < torch.tensor([len(row) for row in rows])[:, None]
            said = theirs.generate(
                input_ids=ids, attention_mask=mask.long(), num_beams=BEAMS, max_new_tokens=MOST, do_sample=False
            )
            found += [[id for id in row if id not in ends] for row in said.tolist()]
        return found

    return side


def sesame_side(model: Path) -> Side:
    loaded = sesame.load(model, "cpu")
    return lambda texts: [
        said[0].ids for said in loaded.translate(texts, beams=BEAMS, most=MOST, early="present", batch=BATCH)
    ]


def ctranslate2_side(model: Path, folder: Path, threads: int) -> Side:
    import ctranslate2

    tokenizer = sesame.load(model, "cpu").tokenizer
    translator = ctranslate2.Translator(str(folder), "cpu", inter_threads=1, intra_threads=threads)
    pad = json.loads((folder / "config.json").read_text(encoding="utf-8"))["decoder_start_token"]

    def side(texts: list[str]) -> list[list[int]]:
        rows = [tokenizer.backend.encode(text).tokens for text in texts]
        found = translator.translate_batch(
            rows, max_batch_size=BATCH, beam_size=BEAMS, max_decoding_length=MOST, suppress_sequences=[[pad]]
        )
        said = [result.hypotheses[0] for result in found]
        return [[id for token in row if (id := tokenizer.backend.token_to_id(token)) is not None] for row in said]

    return side


def in_turns(sides: dict[str, Side], texts: list[str], rounds: int) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Seconds of each round, and tokens of one."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    tokens: dict[str, int] = {}
    for _ in range(rounds):
        for name, side in sides.items():
            begun = time.perf_counter()
            tokens[name] = sum(map(len, side(texts)))
            times[name].append(time.perf_counter() - begun)
    return times, tokens


def measure(sides: dict[str, Side], model: Path, pairs: list[dict[str, str]], count: int, rounds: int) -> str:
    from sacrebleu.metrics.bleu import BLEU

    tokenizer = sesame.load(model, "cpu").tokenizer
    every, wanted = [pair["en"] for pair in pairs], [pair["de"] for pair in pairs]
    texts = every[:count]

    def bleu(answers: list[list[int]]) -> str:
        score = BLEU().corpus_score([tokenizer.decode(ids) for ids in answers], [wanted[: len(answers)]]).score
        return f"{score:.2f}"

    said = {name: side(texts) for name, side in sides.items()}  # warm, too
    times, tokens = in_turns(sides, texts, rounds)
    first = next(iter(sides))
    rates = {name: tokens[name] / statistics.median(times[name]) for name in sides}
    rows = []
    for name in sides:
        equal = sum(a == b for a, b in zip(said[name], said[first], strict=True))
        whole = "" if name == first else bleu(sides[name](every))
        share, spread = f"{equal} of {len(texts)}", f"{min(times[name]):.1f} to {max(times[name]):.1f}"
        fast = [f"{rates[name]:,.0f}", f"{rates[name] / rates[first]:.2f}", spread]
        rows.append([name, *fast, share, bleu(said[name]), whole])
    head = [
        "side",
        "tokens/s",
        "times as fast",
        "seconds a round",
        "equal answers",
        "BLEU",
        f"BLEU of all {len(pairs)}",
    ]
    return report.table(head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--ctranslate2", type=Path, nargs="*", default=[], help="folders of `convert --to ctranslate2`")
    parser.add_argument("--write", action="store_true")
    wishes = parser.parse_args()
    torch.set_num_threads(wishes.threads)
    pairs = [json.loads(line) for line in wishes.data.read_text(encoding="utf-8").splitlines()]
    sides = {"transformers fp32": transformers_side(wishes.model), "sesame fp32": sesame_side(wishes.model)}
    for folder in wishes.ctranslate2:
        sides[f"CTranslate2, {folder.name}"] = ctranslate2_side(wishes.model, folder, wishes.threads)
    table = measure(sides, wishes.model, pairs, wishes.texts, wishes.rounds)
    load = f"load of the machine {os.getloadavg()[0]:.1f}"
    said = f"{report.machine()}, {wishes.threads} threads, {load}; {wishes.texts} sources, beam {BEAMS}, batch {BATCH}"
    print(f"{said}\n{table}")
    if wishes.write:
        report.put("translate", f"{said}, medians of {wishes.rounds} rounds\n\n{table}")


if __name__ == "__main__":
    main()
