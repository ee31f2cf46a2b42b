"""Are our ids those of the published tokenizers?

    python benchmarks/fidelity_tokenizers.py CORPORA_DIR VOCABS_DIR [--lines 20000]

Reads the first lines of English, Russian and Chinese text and encodes them with every real vocabulary, here and with
the reference of its family. A line that says "must" fails the run on any difference; the others are for information.

Two references need a word. transformers 5, given ALBERT's spiece.model alone, makes added tokens of "(", "-", "." and
others, so that the word after each gets a space of its own; its converter, which keeps the rules of the published
model, is our reference. For DeBERTa-v3 it drops the file's normalization and its bytes; there SentencePiece itself is.
"""

import argparse
import itertools
import lzma
import sys
import tempfile
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import sentencepiece
import transformers
from sentencepiece import sentencepiece_model_pb2
from transformers.convert_slow_tokenizer import AlbertConverter

from sesame.text import Tokenizer

CORPORA = ("en.1.txt.xz", "ru.txt.xz", "zh.txt.xz")
BERT = {
    "bert-base-uncased": True,
    "bert-base-cased": False,
    "bert-base-multilingual-cased": False,
    "bert-base-chinese": True,
}
Ids = Callable[[list[str]], list[list[int]]]


def read_lines(folder: Path, count: int) -> list[str]:
    lines: list[str] = []
    for name in CORPORA:
        with lzma.open(folder / name, "rt", encoding="utf-8") as handle:
            full = (line.rstrip("\n") for line in handle if line.strip())
            lines += itertools.islice(full, count)
    return lines


def reference(name: str, folder: Path) -> Any | None:
    """The tokenizer as transformers has it, or None where it does not use the file properly."""
    if name in BERT:
        return transformers.BertTokenizer.from_pretrained(folder, do_lower_case=BERT[name])
    if name == "albert":
        proto = sentencepiece_model_pb2.ModelProto()
        proto.ParseFromString((folder / "spiece.model").read_bytes())
        charsmap = proto.normalizer_spec.precompiled_charsmap
        return transformers.AlbertTokenizer(
            vocab=AlbertConverter.vocab(None, proto), _spm_precompiled_charsmap=charsmap
        )
    classes = {
        "gpt2": transformers.GPT2Tokenizer,
        "roberta": transformers.RobertaTokenizer,
        "t5": transformers.T5Tokenizer,
    }
    return classes[name].from_pretrained(folder) if name in classes else None


def others(name: str, folder: Path) -> Iterator[tuple[str, bool, Ids]]:
    """Further references: what it is, whether we must agree, and its ids."""
    files = list(folder.glob("*.model"))
    if not files:
        return
    processor = sentencepiece.SentencePieceProcessor(model_file=str(files[0]))
    if name == "albert":
        direct = transformers.AlbertTokenizer.from_pretrained(folder)
        yield "transformers, spiece.model alone", False, lambda lines: _ids(direct, lines)
        yield "SentencePiece, no digit-comma rule", False, lambda lines: processor.encode([_albert(x) for x in lines])
    elif name == "deberta-v3":
        direct = transformers.DebertaV2Tokenizer.from_pretrained(folder)
        yield "transformers, spm.model alone", False, lambda lines: _ids(direct, lines)
        yield "SentencePiece", True, processor.encode
    else:
        yield "SentencePiece (ties may differ)", False, processor.encode


def _albert(line: str) -> str:
    line = unicodedata.normalize("NFKD", " ".join(line.split()).replace("``", '"').replace("''", '"'))
    return "".join(c for c in line if not unicodedata.combining(c)).lower()


def _ids(tokenizer: Any, lines: list[str], **options: Any) -> list[list[int]]:
    return list(tokenizer(lines, add_special_tokens=False, verbose=False, **options)["input_ids"])


def report(what: str, must: bool, lines: list[str], ours: list[list[int]], theirs: list[list[int]]) -> bool:
    """One row of the table; True if a difference must fail the run."""
    differ = [i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b]
    print(
        f"  {'must' if must else 'info'}  {what:<36} {len(lines):>7} lines, {len(lines) - len(differ):>7} equal",
        flush=True,
    )
    if differ:
        i = differ[0]
        at = next((k for k, (a, b) in enumerate(zip(ours[i], theirs[i], strict=False)) if a != b), 0)
        print(f"        first difference at piece {at} of: {lines[i][:100]!r}")
        print(f"        ours {ours[i][at : at + 6]}, theirs {theirs[i][at : at + 6]}")
    return must and bool(differ)


def check(name: str, folder: Path, lines: list[str]) -> bool:
    ours = Tokenizer.load(folder)
    print(f"{name}: {len(ours)} tokens")
    plain = [e.ids for e in ours.encode_batch(lines)]
    few = [line[:1000] for line in lines[:: max(1, len(lines) // 500)]]
    theirs = reference(name, folder)
    failed = False
    if theirs is not None:
        failed |= report("transformers", True, lines, plain, _ids(theirs, lines))
        framed = [e.ids for e in ours.encode_batch(few, special=True)]
        failed |= report("transformers, special tokens", True, few, framed, theirs(few)["input_ids"])
        both = theirs(few, few[::-1], return_token_type_ids=True)
        pairs = [ours.encode_pair(a, b) for a, b in zip(few, few[::-1], strict=True)]
        failed |= report("transformers, pairs", True, few, [e.ids for e in pairs], both["input_ids"])
        if "token_type_ids" in ours.input_names():
            failed |= report("transformers, segments", True, few, [e.segments for e in pairs], both["token_type_ids"])
    for what, must, ids in others(name, folder):
        failed |= report(what, must, lines, plain, ids(lines))
    with tempfile.TemporaryDirectory() as saved:
        ours.save(Path(saved))
        auto = transformers.AutoTokenizer.from_pretrained(saved)
        framed = [e.ids for e in ours.encode_batch(few, special=True)]
        failed |= report("saved, then AutoTokenizer", True, few, framed, auto(few)["input_ids"])
        again = [e.ids for e in Tokenizer.load(saved).encode_batch(few, special=True)]
        failed |= report("saved, then loaded here", True, few, framed, again)
    return failed | check_offsets(ours, few)


def check_offsets(tokenizer: Tokenizer, lines: list[str]) -> bool:
    """A piece of plain letters must be, but for case and accents, the text at its offsets."""
    seen = wrong = 0
    for line, encoding in zip(lines, tokenizer.encode_batch(lines), strict=True):
        for id, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            piece = tokenizer.token(id).removeprefix("##").lstrip("▁Ġ")
            if piece.isascii() and piece.isalpha():
                seen += 1
                if _albert(line[start:end]) != piece.lower():
                    wrong += 1
                    print(f"        piece {piece!r} has the offsets of {line[start:end]!r}")
    print(f"  must  {'offsets of pieces of plain letters':<36} {seen:>6} pieces, {seen - wrong:>7} equal", flush=True)
    return wrong > 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare our ids with those of the published tokenizers.")
    parser.add_argument("corpora", type=Path, help="folder with en.1.txt.xz, ru.txt.xz, zh.txt.xz")
    parser.add_argument("vocabs", type=Path, help="folder with one folder for each vocabulary")
    parser.add_argument("--lines", type=int, default=20_000, help="lines of each language")
    options = parser.parse_args()
    lines = read_lines(options.corpora, options.lines)
    names = sorted(folder.name for folder in options.vocabs.iterdir() if folder.is_dir())
    failed = [name for name in names if check(name, options.vocabs / name, lines)]
    print(
        f"{len(names)} vocabularies, {len(lines)} lines; "
        + (f"DIFFERENT: {', '.join(failed)}" if failed else "all equal")
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
