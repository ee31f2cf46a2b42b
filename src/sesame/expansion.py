"""Words that a model has not seen, from static vectors that know them: a linear map between the two.

Paper: Kiros et al. 2015, "Skip-Thought Vectors" (https://arxiv.org/abs/1506.06726), section 2.2; the map is that of Mikolov,
Le & Sutskever 2013 (https://arxiv.org/abs/1309.4168). On the words that both know,
    W, b = argmin Σ_w | W v_w + b - table_w |²,      and for all others  table_w = W v_w + b
The paper's encoder goes from 20,000 words to 930,991 that way.

Unusual: a constant b goes along, for tables have no reason to be centered. Heads that tell tokens are left out: they know
none of the new ones. So the result reads (`sesame embed`, `sesame finetune`) and is not pre-trained further.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import tokenizers
import torch
from torch import nn

from sesame.backbones import Backbone, SkipThought
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.saving import save_parts
from sesame.data.vector_files import read_vectors
from sesame.data.vectors import Matrix, Vectors
from sesame.errors import SesameError
from sesame.files import whole_folder
from sesame.nn.embeddings import padded_vocab
from sesame.progress import say
from sesame.taggers import words_of_tokens
from sesame.text import Tokenizer
from sesame.text.characters import WORD_START


def expand(model: str, vectors: str, out: str | Path, most: int | None = None) -> Path:
    """A copy of a skip-thought model that reads the words of a file of vectors too, at most the first `most` of them."""
    parts = load_parts(model)
    if not isinstance(parts.backbone, SkipThought) or parts.tokenizer is None:
        raise SesameError(f"{model}: only the words of a skip-thought model with its tokenizer are expanded; give one")
    found, old = read_vectors(vectors, most), parts.tokenizer
    known = words_of_tokens(old)
    shared = {id: row for id, word in known.items() if (row := found.row(word)) is not None}
    if len(shared) <= 1:
        raise SesameError(f"{vectors}: has no two words in common with {model}; give vectors of the same language")
    _check_enough(len(shared), found.width)
    tokenizer, words = _with_words(old, found)
    table = parts.backbone.token_table().detach().numpy()[list(shared)]
    mapped = _map(found.matrix[list(shared.values())], table, found.matrix[[found.index[word] for word in words]])
    backbone = _grown(parts.backbone, len(old), mapped)
    with whole_folder(Path(out)) as folder:
        card = f"# {Path(model).name}, expanded\n\n{len(words):,} words were mapped from {Path(vectors).name}.\n"
        save_parts(folder, Parts(backbone, {}, tokenizer), card=card)
    say(f"{out}: {len(words):,} new words beside {len(known):,}, by a map from {len(shared):,} that both know")
    return Path(out)


def _check_enough(shared: int, width: int) -> None:
    if shared <= width:
        say(f"warning: {shared:,} words in common for vectors of {width} numbers: the map fits them by chance")


def _map(known: Matrix, table: Matrix, new: Matrix) -> Matrix:
    """Least squares with a constant, in 64 bits. Shape: (n, S), (n, E), (m, S) -> (m, E)."""

    def constant(rows: Matrix) -> np.ndarray:
        return np.concatenate([rows.astype(np.float64), np.ones((len(rows), 1))], axis=1)

    solved, *_ = np.linalg.lstsq(constant(known), table.astype(np.float64), rcond=None)
    mapped: Matrix = (constant(new) @ solved).astype(np.float32)
    return mapped


def _with_words(old: Tokenizer, vectors: Vectors) -> tuple[Tokenizer, list[str]]:
    """The tokenizer with a token for each word that it gave in several so far; and those words, in the order of their ids."""
    state = json.loads(old.backend.to_str())
    if state["model"]["type"] != "WordPiece":
        raise SesameError(f'{old.name}: has no whole words; expand a model of tokenizer.kind = "word"')
    begins = WORD_START if type(old.backend.decoder).__name__ == "ByteLevel" else ""
    vocabulary: dict[str, int] = state["model"]["vocab"]
    new: dict[str, str] = {}  # token -> the word of the file
    for word, token in zip(vectors.words, _tokens(old, vectors.words, begins), strict=True):
        if token and token not in vocabulary:
            new.setdefault(token, word)
    state["model"]["vocab"] = vocabulary | _numbered(new, len(old))
    backend = tokenizers.Tokenizer.from_str(json.dumps(state))
    made = old.changed(backend=backend, inputs=old.input_names())
    return made, list(new.values())


def _numbered(new: Mapping[str, str], first: int) -> dict[str, int]:
    return {token: id for id, token in enumerate(new, first)}


def _tokens(tokenizer: Tokenizer, words: Sequence[str], begins: str) -> list[str]:
    """How each word would be written as one token; "" for what is not one word to the tokenizer."""
    backend, found = tokenizer.backend, []
    for word in words:
        text = word if backend.normalizer is None else backend.normalizer.normalize_str(word)
        pieces = backend.pre_tokenizer.pre_tokenize_str(text) if backend.pre_tokenizer else [(text, (0, 0))]
        whole = len(pieces) == 1 and pieces[0][0].startswith(begins)
        found.append(pieces[0][0] if whole else "")
    return found


@torch.no_grad()
def _grown(backbone: SkipThought, first: int, rows: Matrix) -> Backbone:
    size = first + len(rows)
    old = backbone.tokens.weight
    table = old.new_zeros(padded_vocab(size), old.shape[1])
    table[:first] = old[:first]
    table[first:size] = torch.from_numpy(rows).to(old)
    backbone.tokens = nn.Embedding(padded_vocab(size), old.shape[1], _weight=table)
    backbone.config, backbone.vocab = replace(backbone.config, vocab=size), size
    return backbone
