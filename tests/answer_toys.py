"""Small languages to translate between, and small strangers that may learn to."""

import random
from pathlib import Path
from typing import Any

import torch

from sesame.text import Tokenizer
from sesame.text.template import framed
from tests.languages import word_tokenizer

WORDS = ["ba", "be", "bo", "da", "de", "do", "ka", "ke"]
OTHERS = [word[::-1] for word in WORDS]
KINDS = ("copy", "reverse", "swap")


def answer(kind: str, words: list[str]) -> list[str]:
    """copy; reverse; swap: word by word into the other language, every two of them in the other order."""
    if kind == "copy":
        return words
    if kind == "reverse":
        return words[::-1]
    pairs = [words[at : at + 2][::-1] for at in range(0, len(words), 2)]
    return [word[::-1] for pair in pairs for word in pair]


def rows(kind: str, count: int, seed: int, longest: int = 4) -> list[tuple[str, str]]:
    luck = random.Random(f"{kind} {seed}")
    sources = [[luck.choice(WORDS) for _ in range(luck.randint(2, longest))] for _ in range(count)]
    return [(" ".join(source), " ".join(answer(kind, source))) for source in sources]


def write_rows(file: Path, found: list[tuple[str, str]], heading: str = "") -> str:
    file.write_text(heading + "".join(f"{a}\t{b}\n" for a, b in found), encoding="utf-8")
    return str(file)


def tokenizer_for(family: str) -> Tokenizer:
    """BART has a token before a text, T5 and Marian one behind it only."""
    made = word_tokenizer([*WORDS, *OTHERS])
    return made if family == "bart" else framed(made, "end")


def stranger(
    folder: Path, family: str, seed: int = 0, width: int = 32, dtype: Any = torch.float32, **more: Any
) -> Path:
    """A small model of transformers in a folder, with a tokenizer."""
    from transformers import (
        BartConfig,
        BartForConditionalGeneration,
        MarianConfig,
        MarianMTModel,
        T5Config,
        T5ForConditionalGeneration,
    )

    tokenizer = tokenizer_for(family)
    ids = tokenizer.ids()
    given: dict[str, Any] = {
        "vocab_size": len(tokenizer), "d_model": width, "pad_token_id": ids["pad"], "eos_token_id": ids["sep"],
        "bos_token_id": ids["cls"],
    }  # fmt: skip
    layers: dict[str, Any] = {
        "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
        "encoder_ffn_dim": 2 * width, "decoder_ffn_dim": 2 * width, "max_position_embeddings": 32, "dropout": 0.0,
        "init_std": 0.1,
    }  # fmt: skip
    torch.manual_seed(seed)
    if family.startswith("t5"):
        shape: dict[str, Any] = {
            "d_kv": width // 4,
            "d_ff": 2 * width,
            "num_layers": 2,
            "num_heads": 4,
            "dropout_rate": 0.0,
        }
        if family == "t5-1.1":
            shape |= {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
        model: Any = T5ForConditionalGeneration(T5Config(**given, **shape, decoder_start_token_id=ids["pad"], **more))
    elif family == "bart":
        forced: dict[str, Any] = {
            "decoder_start_token_id": ids["sep"],
            "forced_bos_token_id": ids["cls"],
            "forced_eos_token_id": ids["sep"],
        }
        model = BartForConditionalGeneration(BartConfig(**given, **layers, **forced, **more))
    else:
        forced = {
            "decoder_start_token_id": ids["pad"],
            "forced_eos_token_id": ids["sep"],
            "bad_words_ids": [[ids["pad"]]],
        }
        model = MarianMTModel(MarianConfig(**given, **layers, **forced, **more))
    model.to(dtype).eval().save_pretrained(folder)
    tokenizer.save(folder)
    return folder
