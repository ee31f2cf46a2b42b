"""A model to start from that has learnt nothing but its words: static vectors, or none, under a fresh BiLSTM.

`sesame finetune` then teaches it a task as it does any other model; so the taggers from before pre-training are trained and
judged by the ordinary command. Its words are those of the vectors' file and those of the training rows, which are cut at
spaces, as CoNLL's are; all others are [UNK] to it, whose vector is the file's own or the mean.

What an unknown word gets (`data/vectors.py`) is decided here for words of the training rows without a vector. Words of the
file that no training row holds keep their vectors: with frozen ones that is the look-up at test time.
"""

from collections import Counter
from collections.abc import Iterable

import numpy as np
import tokenizers
import torch
from tokenizers import models, normalizers, pre_tokenizers

from sesame import chance
from sesame.backbones import Words, WordsConfig
from sesame.checkpoint.folder import Parts
from sesame.data.examples import Example
from sesame.data.vectors import Vectors
from sesame.errors import SesameError
from sesame.progress import say
from sesame.text import Tokenizer
from sesame.text.template import put_around

ROLES = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}


def count_words(examples: Iterable[Example]) -> Counter[str]:
    """The words of labelled rows: those that the file names, else what stands between spaces."""
    found: Counter[str] = Counter()
    for example in examples:
        found.update([example.text[a:b] for a, b in example.words] if example.words else example.text.split())
    return found


def word_model(
    counted: Counter[str],
    vectors: Vectors | None = None,
    *,
    frozen: bool = False,
    width: int = 256,
    word_width: int = 100,
    depth: int = 1,
    dropout: float = 0.5,
    min_count: int = 2,
    lowercase: bool = False,
    seed: int = 0,
) -> Parts:
    """Words of training rows, at least `min_count` times there, and all those of `vectors`, whose width then counts."""
    if frozen and vectors is None:
        raise SesameError("--frozen is for vectors that were trained; name them with --vectors FILE")
    if vectors is not None and not any(word != word.lower() for word in vectors.words):
        lowercase = True
    if lowercase:
        counted = _lowered(counted)
    often = [word for word, count in counted.items() if count >= min_count and not word.isspace()]
    known = [] if vectors is None else [word for word in vectors.words if word not in ROLES.values()]
    words = list(dict.fromkeys([*known, *sorted(often)]))
    tokenizer = _tokenizer(words, lowercase)
    torch.manual_seed(chance.key(seed) >> 1)
    size = word_width if vectors is None else vectors.width
    backbone = Words(WordsConfig(len(tokenizer), width, depth, size, frozen, dropout=dropout))
    if vectors is not None:
        _fill(backbone, tokenizer, vectors, counted)
    return Parts(backbone, tokenizer=tokenizer)


def _lowered(counted: Counter[str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for word, count in counted.items():
        found[word.lower()] += count
    return found


def _tokenizer(words: list[str], lowercase: bool) -> Tokenizer:
    tokens = [*ROLES.values(), *words]
    model = models.WordLevel({token: id for id, token in enumerate(tokens)}, unk_token=ROLES["unk"])
    backend = tokenizers.Tokenizer(model)
    if lowercase:
        backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(list(ROLES.values()))
    put_around(backend, "bert", ROLES["cls"], ROLES["sep"])
    return Tokenizer(backend, ROLES, name="the tokenizer of words")


@torch.no_grad()
def _fill(backbone: Words, tokenizer: Tokenizer, vectors: Vectors, counted: Counter[str]) -> None:
    table = backbone.token_table()
    tokens = tokenizer.tokens()
    marks = {ROLES["unk"]: "unk", **dict.fromkeys((ROLES["cls"], ROLES["sep"], ROLES["mask"]), "random")}
    rows = [vectors.vector(token, marks.get(token)) for token in tokens]
    table[: len(rows)] = torch.from_numpy(np.stack(rows))
    table[tokenizer.id("pad")] = 0.0
    total = sum(counted.values())
    if total:
        met = sum(count for word, count in counted.items() if vectors.row(word) is not None)
        say(f"{met / total:.1%} of the words in the rows have a vector in the file; the others get: {vectors.policy}")
