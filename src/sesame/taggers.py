"""A tagger to begin with, as a folder that `sesame finetune --task tag` teaches: `backbones/tagger.py`.

What it reads is chosen here, so that a comparison is a row of commands:

    sesame tagger --train train.conll --out bare                       words and letters
    sesame tagger --train train.conll --vectors glove.txt --out static the same, words start from static vectors
    sesame tagger ... --lm runs/elmo --at second --out taglm           and a frozen biLM into the second layer (TagLM)
    sesame tagger ... --lm runs/elmo --at first --out elmo             or its mixed layers into the first (ELMo)

Unusual: a biLM that reads letters takes any tokenizer of words, so the tagger's may be made of the words that it will tag.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from sesame import chance
from sesame.backbones import BiLM, Tagger, TaggerConfig
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.saving import save_parts
from sesame.config import build, merge, parse_setting
from sesame.data.labelled import read_labelled
from sesame.data.vector_files import read_vectors
from sesame.data.vectors import Vectors
from sesame.errors import SesameError
from sesame.files import whole_folder
from sesame.progress import say
from sesame.tasks.tag import words_of
from sesame.text import Tokenizer
from sesame.text.characters import written_as
from sesame.text.train import train_tokenizer

MOST_WORDS = 2_000_000  # of a tokenizer
MOST_VECTORS = 50_000  # words of a file of vectors that become tokens though no training row has them


def make_tagger(
    out: str | Path,
    *,
    train: str | None = None,
    tokenizer: str | None = None,
    lm: str | None = None,
    vectors: str | None = None,
    unknown: str = "unk",
    settings: Sequence[str] = (),
    seed: int = 0,
) -> Path:
    """Write an untaught tagger. `train`: rows whose words become the tokenizer; else `tokenizer`, else that of the `lm`.

    `unknown`: what words without a vector get (`data/vectors.py`); by default they start at random.
    """
    if train is not None and tokenizer is not None:
        raise SesameError("--train makes a tokenizer and --tokenizer names one; give one of them")
    if vectors is None and unknown != "unk":
        raise SesameError(f"--unknown {unknown} is for words without a vector; name the vectors with --vectors FILE")
    found = None if vectors is None else read_vectors(vectors, policy=unknown)
    parts = None if lm is None else _language_model(lm)
    chosen = _tokenizer(train, tokenizer, parts, found)
    config = _config(settings, chosen, parts, found)
    torch.manual_seed(chance.key(seed, chance.stream("tagger")) >> 1)
    tagger = Tagger(config)
    tagger.spell(chosen)
    if tagger.lm is not None:
        assert parts is not None
        tagger.lm.load_state_dict(parts.backbone.state_dict())
    if found is not None:
        _put(tagger, found, chosen)
    with whole_folder(Path(out)) as folder:
        save_parts(folder, Parts(tagger, {}, chosen), card=_card(lm, vectors, config))
    trained = sum(p.numel() for p in tagger.parameters() if p.requires_grad)
    say(f"{out}: a tagger with {trained:,} weights to train and {len(chosen):,} tokens; teach it by `sesame finetune`")
    return Path(out)


def _language_model(lm: str) -> Parts:
    parts = load_parts(lm)
    if not isinstance(parts.backbone, BiLM):
        raise SesameError(
            f"{lm}: is no bidirectional language model; give a run of recipe elmo, or published ELMo files"
        )
    return parts


def _tokenizer(train: str | None, tokenizer: str | None, lm: Parts | None, vectors: Vectors | None) -> Tokenizer:
    if lm is not None and lm.backbone.config.reads == "tokens" and (train or tokenizer):
        raise SesameError("--lm: this model reads the tokens of its own tokenizer; leave out --train and --tokenizer")
    if train is not None:
        return train_tokenizer(_texts(train, vectors), "spaced", MOST_WORDS, min_count=1)
    if tokenizer is not None:
        return Tokenizer.load(tokenizer)
    if lm is None or lm.tokenizer is None:
        raise SesameError(
            "a tagger needs words: give --train with rows to tag, --tokenizer, or --lm with its tokenizer"
        )
    return lm.tokenizer


def _texts(train: str, vectors: Vectors | None) -> Iterator[str]:
    """The words of all rows; then those with a vector, also as names where the file is lower-cased."""
    for example in read_labelled(train, "tag", labels=False).examples:
        yield " ".join(example.text[start:end] for start, end in words_of(example))
    if vectors is not None:
        words = vectors.words[:MOST_VECTORS]
        yield from words
        if not any(word != word.lower() for word in words):
            yield from (word.capitalize() for word in words)


def _config(settings: Sequence[str], tokenizer: Tokenizer, lm: Parts | None, vectors: Vectors | None) -> TaggerConfig:
    table: dict[str, Any] = {"vocab": len(tokenizer)}
    if vectors is not None:
        table["table_width"] = vectors.width
    for setting in settings:
        table = merge(table, parse_setting(setting))
    if "lm" in table:
        raise SesameError("--set lm: the language model is named by --lm")
    if table["vocab"] != len(tokenizer):
        raise SesameError("--set vocab: it comes from the tokenizer; leave it out")
    if vectors is not None and table["table_width"] != vectors.width:
        raise SesameError(f"--set table_width={table['table_width']}: the vectors have {vectors.width}; leave it out")
    config = build(TaggerConfig, table, "tagger")
    if config.frozen and vectors is None:
        raise SesameError("--set frozen is for vectors that were trained; name them with --vectors FILE")
    if lm is None and config.lm_at != "first":
        raise SesameError(
            f"--at {config.lm_at} says where a language model is read; name one with --lm, or leave it out"
        )
    if lm is None:
        return config
    return replace(config, lm=replace(lm.backbone.config, vocab=config.vocab))


@torch.no_grad()
def _put(tagger: Tagger, vectors: Vectors, tokenizer: Tokenizer) -> None:
    """Give the words that have a vector theirs."""
    words = words_of_tokens(tokenizer)
    rows = {id: row for id, word in words.items() if (row := vectors.row(word)) is not None}
    if not rows:
        raise SesameError("--vectors: no token of the tagger has a vector; do they write words alike?")
    tagger.tokens.weight[list(rows)] = torch.from_numpy(vectors.matrix[list(rows.values())]).to(tagger.tokens.weight)
    others = {id: word for id, word in words.items() if id not in rows}
    if others and vectors.policy != "unk":
        tagger.tokens.weight[list(others)] = torch.from_numpy(vectors.table(list(others.values()))).to(
            tagger.tokens.weight
        )
    say(f"{len(rows):,} of {len(words):,} words have a vector in the file")


def words_of_tokens(tokenizer: Tokenizer) -> dict[int, str]:
    """Which word a token is, by its id, for those that begin one; the whole word, also where models read less of it."""
    read, specials = written_as(tokenizer), set(tokenizer.ids().values())
    spelled = {id: read(token) for id, token in enumerate(tokenizer.tokens()) if id not in specials}
    words = {id: written.decode("utf-8", "ignore") for id, (written, begins) in spelled.items() if begins}
    return {id: word for id, word in words.items() if word}


def _card(lm: str | None, vectors: str | None, config: TaggerConfig) -> str:
    reads = [f"static vectors of {Path(vectors).name}"] if vectors else []
    reads += [f"the frozen states of {Path(lm).name}, into the {config.lm_at} layer"] if lm else []
    return f"# A tagger, untaught\n\nIt reads words, letters{''.join(f', {what}' for what in reads)}.\n"
