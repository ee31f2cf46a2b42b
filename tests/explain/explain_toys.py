"""Small models with noise in every weight, and tasks on them."""

from typing import Any

import torch

from sesame.backbones import (
    DecodedConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    EncoderHalfConfig,
    RecurrentSeq2SeqConfig,
    TransformerXLConfig,
    XLNetConfig,
    build_backbone,
)
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.speech import Speech
from sesame.objectives import MaskedLMHead
from sesame.objectives.decoder_head import DecoderHead
from sesame.tasks import TaskConfig, build_task
from tests.languages import word_tokenizer
from tests.tasks.toys import noise

WORDS = [f"{a}{b}" for a in "bdfgk" for b in "aeiou"]
TEXT = "ba de fi go ku ba be"
TASKS: dict[str, dict[str, Any]] = {
    "classify": {"labels": ("good", "bad", "plain")},
    "regress": {},
    "tag": {"labels": ("O", "B-X", "I-X")},
    "qa": {},
}
ENCODERS: dict[str, dict[str, Any]] = {
    "post": {},
    "pre": {"order": "pre", "activation": "geglu"},
    "branch": {"order": "branch"},
    "rotary": {"order": "pre", "positions": "rotary", "bias": False},
    "windows": {"order": "pre", "positions": "rotary", "local_layers": (0,), "window": 1, "local_base": 50.0},
    "albert": {"share": "all", "embedding_width": 8},
    "causal": {"causal": True},
}


def config_of(kind: str, vocab: int) -> Any:
    sizes: dict[str, Any] = {"width": 16, "depth": 2, "heads": 2, "dropout": 0.0, "attention_dropout": 0.0}
    if kind == "xlnet":
        return XLNetConfig(vocab, **sizes)
    if kind == "transformer-xl":
        return TransformerXLConfig(vocab, **sizes)
    if kind == "transformer":
        return EncoderDecoderConfig(vocab, max_length=32, **sizes)
    if kind in ("half", "decoded"):
        settings = DecodedConfig if kind == "decoded" else EncoderHalfConfig
        return settings(vocab, max_length=32, positions="learned", grow=False, **sizes)
    if kind == "recurrent":
        return RecurrentSeq2SeqConfig(vocab, width=16, depth=1, attention="global", init=0.8)
    return EncoderConfig(vocab, max_length=32, **{**sizes, **ENCODERS[kind]})


def lively(module: torch.nn.Module, seed: int, size: float = 0.5) -> None:
    """Large noise, and norms that do not make states small: scores that depend on every token, by curves."""
    noise(module, seed, size)
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, torch.nn.LayerNorm):
                part.weight += 1.0


def toy(kind: str, seed: int = 0, tasks: tuple[str, ...] = (), double: bool = True, **more: Any) -> Parts:
    """A model of any kind with tasks and the head that its kind speaks with."""
    tokenizer = word_tokenizer(WORDS)
    torch.manual_seed(seed)
    config = config_of(kind, len(tokenizer))
    backbone = build_backbone(config)
    lively(backbone, seed, 0.25 if kind == "transformer" else 0.5)  # its token vectors are multiplied by 4
    taught = {name: build_task(name, TaskConfig(name, **TASKS[name] | more), backbone, 0.0) for name in tasks}  # type: ignore[arg-type]
    heads: dict[str, torch.nn.Module] = {}
    for task in taught.values():
        heads |= task.heads()
    speech = None
    if backbone.answers:
        heads["seq2seq"] = DecoderHead(16, len(tokenizer))
        ids = tokenizer.ids()
        speech = Speech(start=(ids["cls"],), end=(ids["sep"],), pad=ids["pad"])
    else:
        narrow = getattr(config, "embedding_width", 0) or 16
        heads["mlm"] = MaskedLMHead(16, narrow, len(tokenizer), "gelu", 1e-12)
    for number, head in enumerate(heads.values()):
        lively(head, seed + number + 1)
    for module in (backbone, *heads.values(), *taught.values()) if double else ():
        module.double()
    return Parts(backbone.eval(), heads, tokenizer, tasks=taught, speech=speech)
