"""A SentencePiece model file, read without the sentencepiece package.

The file is a protocol buffer: a row of fields, each a key (number and wire type) and a value. We need three messages of
it: the pieces, what the trainer was told, and how text is normalized. Everything else is skipped.

What is unusual here: some pieces can never come out of text (control tokens, bytes, unused pieces). The `tokenizers`
library does not know this and would match a "</s>" in a stranger's text, so such pieces get a score that no path can
afford.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from sesame.errors import SesameError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
SPACE = "▁"
OUT_OF_REACH = -1000.0

_UNIGRAM, _BPE = 1, 2


@dataclass(frozen=True)
class Piece:
    text: str
    score: float
    kind: int


@dataclass(frozen=True)
class SentencePieceModel:
    """What a .model file says."""

    pieces: list[Piece]
    is_bpe: bool
    unk_id: int
    byte_fallback: bool
    charsmap: bytes
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool


def read_sentencepiece(path: Path) -> SentencePieceModel:
    """Read a .model file; a broken one gives one sentence."""
    try:
        return _parse(path.read_bytes(), path)
    except OSError as error:
        raise SesameError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    except (IndexError, struct.error, UnicodeDecodeError, ValueError) as error:
        raise SesameError(f"{path}: not a SentencePiece model, or cut short; copy the file again") from error


def _parse(data: bytes, path: Path) -> SentencePieceModel:
    pieces: list[Piece] = []
    trainer: dict[int, int | bytes] = {}
    normalizer: dict[int, int | bytes] = {}
    for number, value in _fields(data):
        if number in (1, 2, 3) and not isinstance(value, bytes):
            raise ValueError("a message was expected")
        if number == 1:
            pieces.append(_piece(dict(_fields(_as_bytes(value)))))
        elif number == 2:
            trainer = dict(_fields(_as_bytes(value)))
        elif number == 3:
            normalizer = dict(_fields(_as_bytes(value)))
    if not pieces:
        raise ValueError("no pieces")
    kind = _as_int(trainer.get(3, _UNIGRAM))
    if kind not in (_UNIGRAM, _BPE):
        raise SesameError(f"{path}: a SentencePiece model of the kind word or char; only unigram and bpe can be read")
    if _as_int(trainer.get(24, 0)):
        raise SesameError(
            f"{path}: its spaces stand behind words (treat_whitespace_as_suffix), which is not supported; train another"
        )
    unknown = [i for i, piece in enumerate(pieces) if piece.kind == UNKNOWN]
    return SentencePieceModel(
        pieces=pieces,
        is_bpe=kind == _BPE,
        unk_id=unknown[0] if unknown else _as_int(trainer.get(40, 0)),
        byte_fallback=bool(trainer.get(35, 0)),
        charsmap=_as_bytes(normalizer.get(2, b"")),
        add_dummy_prefix=bool(normalizer.get(3, 1)),
        remove_extra_whitespaces=bool(normalizer.get(4, 1)),
    )


def _piece(fields: dict[int, int | bytes]) -> Piece:
    (score,) = struct.unpack("<f", _as_bytes(fields.get(2, b"\0\0\0\0")))
    return Piece(_as_bytes(fields[1]).decode("utf-8") if 1 in fields else "", score, _as_int(fields.get(3, NORMAL)))


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of one message: number and value; a varint gives an int, everything else its bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == 2:
            size, at = _varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError("unknown wire type")
        if at + size > len(data):
            raise ValueError("cut short")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("a number too long")


def _as_bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("bytes were expected")
    return value


def _as_int(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise ValueError("a number was expected")
    return value


def build_backend(
    model: SentencePieceModel,
    pieces: list[Piece],
    unk_id: int,
    before: list[normalizers.Normalizer] | None = None,
) -> Tokenizer:
    """A backend for `pieces` (the file's, or a family's arrangement of them); `before` runs ahead of the charsmap."""
    if model.is_bpe:
        backend = Tokenizer(_bpe(pieces, unk_id, model.byte_fallback))
    else:
        scores = [(p.text, p.score if p.kind in (NORMAL, USER_DEFINED) else OUT_OF_REACH) for p in pieces]
        backend = Tokenizer(models.Unigram(scores, unk_id, model.byte_fallback))
    steps = list(before or [])
    if model.charsmap:
        steps.append(normalizers.Precompiled(model.charsmap))
    scheme = "always" if model.add_dummy_prefix else "never"
    across = any(SPACE in piece.text[1:] for piece in pieces if piece.kind == NORMAL)
    if model.remove_extra_whitespaces and not across:
        words = pre_tokenizers.Metaspace(SPACE, scheme, split=True)
        if model.add_dummy_prefix:
            backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), words])
        else:  # a word has the space that stands before it, and the first one has none
            steps += [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()]
            backend.pre_tokenizer = words
    else:
        # Pieces may reach over a space, or runs of spaces count: the text must stay in one part.
        if model.remove_extra_whitespaces:
            steps += [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()]
        steps += [normalizers.Prepend(" ")] if model.add_dummy_prefix else []
        steps.append(normalizers.Replace(" ", SPACE))
    if steps:
        backend.normalizer = normalizers.Sequence(steps)
    backend.decoder = decoder(scheme, model.byte_fallback)
    added = [AddedToken(p.text, normalized=False, special=_is_control(p)) for p in pieces if _is_added(p, model.is_bpe)]
    backend.add_tokens(added)
    return backend


def decoder(scheme: str, byte_fallback: bool) -> decoders.Decoder:
    if not byte_fallback:
        return decoders.Metaspace(SPACE, scheme)
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if scheme != "never" else steps)


def _is_control(piece: Piece) -> bool:
    bracketed = len(piece.text) > 2 and (piece.text[0], piece.text[-1]) in (("<", ">"), ("[", "]"))
    return piece.kind in (UNKNOWN, CONTROL) or (piece.kind == USER_DEFINED and bracketed)


def _is_added(piece: Piece, is_bpe: bool) -> bool:
    """Control tokens are found ahead of the model. Other user-defined symbols are ordinary pieces with the best score
    of all; only a BPE model, which has no merges for them, needs them ahead."""
    return _is_control(piece) or (is_bpe and piece.kind == USER_DEFINED)


def _bpe(pieces: list[Piece], unk_id: int, byte_fallback: bool) -> models.BPE:
    """SentencePiece's BPE stores no merges: any two neighbours whose union is a piece may merge, best score first."""
    ids = {piece.text: i for i, piece in enumerate(pieces)}
    inner = {piece.text for piece in pieces if piece.kind in (NORMAL, USER_DEFINED, UNUSED)}
    merges: list[tuple[float, int, str, str]] = []
    for i, piece in enumerate(pieces):
        if piece.kind not in (NORMAL, UNUSED):
            continue
        for cut in range(1, len(piece.text)):
            left, right = piece.text[:cut], piece.text[cut:]
            if left in inner and right in inner:
                merges.append((-piece.score, i, left, right))
    merges.sort(key=lambda merge: merge[:2])
    return models.BPE(
        ids,
        [(left, right) for _, _, left, right in merges],
        unk_token=pieces[unk_id].text,
        fuse_unk=True,
        byte_fallback=byte_fallback,
    )
