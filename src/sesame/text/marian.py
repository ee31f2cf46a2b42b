"""Marian's tokenizer: two SentencePiece models, one for each side, and one table of ids for both (vocab.json).

Unusual here: one tokenizer must cut by the pieces of one side and tell the pieces of both. Those that only the other side has
get a mark at their end that no text contains, so that they never match, and which is taken away when ids become text; single
letters stay, for texts whose own side does not know them, as in transformers. There a run of several such letters, or a piece
that vocab.json lacks, is `<unk>`; here it is cut into what is there. transformers also unifies punctuation, if sacremoses is
installed; ours reads what is written.
"""

from pathlib import Path

import tokenizers
from tokenizers import decoders, processors

from sesame.errors import SesameError
from sesame.files import read_json
from sesame.text.sentencepiece import (
    CONTROL,
    NORMAL,
    OUT_OF_REACH,
    UNKNOWN,
    Piece,
    SentencePieceModel,
    build_backend,
    read_sentencepiece,
)

MARK = "\ufdd1"  # a Unicode noncharacter
END, UNK, PAD = "</s>", "<unk>", "<pad>"
ROLES = {"eos": END, "unk": UNK, "pad": PAD}


def is_marian(folder: Path) -> bool:
    """Whether a folder holds the files of Marian's tokenizer, and no tokenizer.json, which would say it all."""
    return (folder / "source.spm").is_file() and not (folder / "tokenizer.json").is_file()


def marian(folder: Path, side: str = "source") -> tokenizers.Tokenizer:
    """The tokenizer that reads texts of this side ("source" or "target"), and tells those of both."""
    if (folder / "target_vocab.json").is_file():
        raise SesameError(f"{folder}: has a vocabulary for each side, which is not supported; both share one here")
    model = read_sentencepiece(folder / f"{side}.spm")
    pieces = _arranged(model, _vocab(folder / "vocab.json"))
    backend = build_backend(model, pieces, next(i for i, piece in enumerate(pieces) if piece.kind == UNKNOWN))
    if any(MARK in piece.text for piece in pieces):
        backend.decoder = decoders.Sequence([decoders.Replace(MARK, ""), backend.decoder])
    end = [(END, backend.token_to_id(END))]
    backend.post_processor = processors.TemplateProcessing(
        single=f"$A:0 {END}:0", pair=f"$A:0 $B:0 {END}:0", special_tokens=end
    )
    return backend


def _vocab(path: Path) -> list[str]:
    """The tokens by id."""
    found = read_json(path)
    if not isinstance(found, dict) or sorted(found.values()) != list(range(len(found))):
        raise SesameError(f"{path}: does not number its tokens from 0; copy the file again")
    if not {END, UNK, PAD} <= found.keys():
        raise SesameError(f"{path}: lacks {END}, {UNK} or {PAD}; copy the file again")
    return sorted(found, key=lambda token: int(found[token]))


def _arranged(model: SentencePieceModel, tokens: list[str]) -> list[Piece]:
    scores = {piece.text: piece for piece in model.pieces}

    def piece(token: str) -> Piece:
        if token == UNK:
            return Piece(token, 0.0, UNKNOWN)
        if token in (END, PAD) or (token.startswith(">>") and token.endswith("<<")):  # the latter: a language to speak
            return Piece(token, 0.0, CONTROL)
        if token in scores:
            return scores[token]
        return Piece(token, OUT_OF_REACH, NORMAL) if len(token) == 1 else Piece(token + MARK, OUT_OF_REACH, NORMAL)

    return [piece(token) for token in tokens]
