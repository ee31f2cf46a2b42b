"""Small models with noise for weights, as folders to serve."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from sesame.backbones import Backbone, Encoder, EncoderConfig, EncoderDecoder, EncoderDecoderConfig
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.saving import save_parts
from sesame.checkpoint.speech import Speech
from sesame.objectives import MaskedLMHead, PairHead
from sesame.objectives.decoder_head import DecoderHead
from sesame.tasks import Task, TaskConfig, build_task
from sesame.text import Tokenizer
from sesame.text.template import framed
from tests.languages import word_tokenizer
from tests.tasks.toys import noise, toy_tokenizer

WORDS = [f"w{chr(97 + i)}" for i in range(20)]
TASKS: dict[str, dict[str, Any]] = {
    "mood": {"kind": "classify", "labels": ("good", "bad", "plain")},
    "follows": {"kind": "classify", "labels": ("yes", "no"), "pair": True},
    "topics": {"kind": "classify", "labels": ("x", "y", "z"), "multi": True},
    "stars": {"kind": "regress"},
    "names": {"kind": "tag", "labels": ("O", "B-A", "I-A", "B-B")},
    "asked": {"kind": "qa", "null": True},
    "pick": {"kind": "choice"},
    "mixed": {"kind": "regress", "layers": "mix"},
}


def written(folder: Path, backbone: Backbone, seed: int = 0, **parts: Any) -> Path:
    heads: dict[str, nn.Module] = dict(parts.pop("heads", {}))
    tasks: dict[str, Task] = parts.pop("tasks", {})
    for task in tasks.values():
        noise(task, seed + 1)
        heads |= task.heads()
    for number, module in enumerate((backbone, *heads.values())):
        noise(module, seed + number)
    folder.mkdir(parents=True)
    save_parts(folder, Parts(backbone, heads, tasks=tasks, **parts))
    return folder


def reader(folder: Path, tasks: tuple[str, ...] = tuple(TASKS), seed: int = 0, **settings: Any) -> Path:
    """An encoder with BERT's heads and some tasks."""
    tokenizer = toy_tokenizer()
    wanted: dict[str, Any] = {"width": 16, "depth": 2, "heads": 2, "max_length": 32, "dropout": 0.0} | settings
    torch.manual_seed(seed)
    backbone = Encoder(EncoderConfig(len(tokenizer), attention_dropout=0.0, **wanted))
    pair = PairHead(16)
    heads = {
        "mlm": MaskedLMHead(16, 16, len(tokenizer), "gelu", 1e-12),
        "pooler": pair.pooler,
        "nsp": pair.out,
    }
    taught = {name: build_task(name, TaskConfig(pooling="cls", **TASKS[name]), backbone) for name in tasks}
    return written(folder, backbone, seed, heads=heads, tasks=taught, tokenizer=tokenizer)


def translator(folder: Path, seed: int = 0) -> Path:
    backbone = EncoderDecoder(EncoderDecoderConfig(25, 16, 2, 2, max_length=24))
    head = {"seq2seq": DecoderHead(16, 25, tied=False, bias="fixed")}
    return written(folder, backbone, seed, heads=head, tokenizer=_framed(), speech=Speech((2,), (3,), 0))


def decoder(folder: Path, seed: int = 0) -> Path:
    config = EncoderConfig(25, 16, 2, 2, segments=0, causal=True, order="pre", max_length=24, eps=1e-5)
    head = {"lm": DecoderHead(16, 25, tied=False)}
    return written(folder, Encoder(config), seed, heads=head, tokenizer=_framed(), speech=Speech((), (3,), 0))


def _framed() -> Tokenizer:
    return framed(word_tokenizer(WORDS), "end")
