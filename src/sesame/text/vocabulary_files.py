"""Each form of file in which a vocabulary comes, as a tokenizer, and the family that it turns out to be."""

import json
from pathlib import Path

import tokenizers

from sesame.errors import SesameError
from sesame.files import read_json
from sesame.text import families
from sesame.text.companions import SHIFTED, Companions
from sesame.text.sentencepiece import read_sentencepiece


def read_whole(path: Path) -> tokenizers.Tokenizer:
    """tokenizer.json, which leaves nothing open."""
    content = read_json(path)
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise SesameError(f"{path}: not a tokenizer.json (it has no model); name the file of a tokenizer")
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(content))
    except Exception as error:  # the library raises nothing narrower
        raise SesameError(f"{path}: the tokenizers library cannot read it ({error}); copy the file again") from error


def read_wordpiece(path: Path, beside: Companions) -> tuple[tokenizers.Tokenizer, str | None]:
    """vocab.txt, a token a line."""
    unk = beside.named.get("unk") or families.FAMILY_ROLES["bert"]["unk"]
    lines = _read_lines(path)
    while lines and not lines[-1]:
        lines.pop()
    vocab = {token: id for id, token in enumerate(lines)}
    if unk not in vocab:
        raise SesameError(
            f"{path}: not a WordPiece vocabulary (no {unk} in {len(lines)} lines); expected a token a line"
        )
    return families.wordpiece(vocab, unk, beside.settings), "bert"


def read_byte_level(path: Path, family: str | None, beside: Companions) -> tuple[tokenizers.Tokenizer, str | None]:
    """vocab.json, and merges.txt beside it."""
    vocab = read_json(path)
    if not isinstance(vocab, dict) or not all(isinstance(id, int) for id in vocab.values()):
        raise SesameError(f"{path}: expected an object of tokens and ids; copy the file again")
    merges = path.with_name("merges.txt")
    pairs: list[tuple[str, str]] = []
    for number, line in enumerate(_read_lines(merges), 1):
        if not line or (number == 1 and line.startswith("#version")):
            continue
        parts = line.split(" ")
        if len(parts) != 2 or any(part not in vocab for part in (*parts, "".join(parts))):
            raise SesameError(f"{merges}: line {number} is no merge of two tokens of vocab.json; copy both files again")
        pairs.append((parts[0], parts[1]))
    if any(token.endswith("</w>") for token in vocab):
        raise SesameError(f"{path}: a BPE with </w>, not a byte-level one; save it as tokenizer.json and load that")
    if family != "gpt2":
        family = families.guess_byte_level_family(vocab)
    return families.byte_level(vocab, pairs, family, beside.settings), family


def read_model(path: Path, family: str | None, beside: Companions) -> tuple[tokenizers.Tokenizer, str | None]:
    """A .model file of SentencePiece."""
    if beside.declared in SHIFTED:
        raise SesameError(f"{path}: {beside.declared} renumbers its pieces; save it as tokenizer.json and load that")
    model = read_sentencepiece(path)
    if family not in ("albert", "deberta-v2", "xlnet", "t5", "xlm-roberta"):
        family = families.guess_spiece_family(model.pieces)
        if path.name == "sentencepiece.bpe.model":
            family = "xlm-roberta"
    try:
        return families.sentencepiece(model, family, beside.settings), family
    except Exception as error:  # the library raises nothing narrower
        raise SesameError(f"{path}: not usable as a tokenizer of the family {family} ({error})") from error


def _read_lines(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8") as lines:
            return [line.rstrip("\n") for line in lines]
    except FileNotFoundError:
        raise SesameError(f"{path}: no such file; a byte-level BPE needs vocab.json and merges.txt") from None
    except UnicodeDecodeError as error:
        raise SesameError(f"{path}: not a text file in UTF-8 ({error.reason}); copy the file again") from error
