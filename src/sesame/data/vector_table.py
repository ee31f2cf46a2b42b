"""A token table that starts from static vectors: tokens that are whole words take the vectors of these words."""

import numpy as np

from sesame.data.vectors import Matrix, Vectors
from sesame.errors import SesameError
from sesame.text import Tokenizer
from sesame.text.characters import INNER

SPACES = (" ", "▁", "Ġ")  # before a token that begins a word, as byte-level and SentencePiece tokenizers write it


def token_vectors(tokenizer: Tokenizer, vectors: Vectors, width: int) -> tuple[list[int], Matrix]:
    """Ids of the tokens that have a vector, and these (N, width); pieces inside of words have none."""
    check_width(vectors, width)
    model = type(tokenizer.backend.model).__name__
    marked = model not in ("WordPiece", "WordLevel") or type(tokenizer.backend.decoder).__name__ == "ByteLevel"
    special = set(tokenizer.roles.values())
    ids, rows = [], []
    for id, token in enumerate(tokenizer.tokens()):
        if token in special or not token:
            continue
        word = _word(tokenizer.shown(id), marked)
        row = None if word is None else vectors.row(word)
        if row is not None:
            ids.append(id)
            rows.append(row)
    if not ids:
        raise SesameError("--vectors: no token of the model is a word of the file; is it the same language?")
    return ids, np.ascontiguousarray(vectors.matrix[rows])


def check_width(vectors: Vectors, width: int) -> None:
    if vectors.width != width:
        raise SesameError(
            f"--vectors: have {vectors.width} numbers and the token table of this model {width}; change --set "
            "backbone.width, or train vectors of that --width"
        )


def _word(shown: str, marked: bool) -> str | None:
    """The word that a token is; None for the inside of one."""
    if marked:
        return shown[1:] or None if shown.startswith(SPACES) else None
    return None if shown.startswith(INNER) and shown != INNER else shown
