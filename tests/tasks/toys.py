"""Small models and data for the tests of tasks: made in a moment, the same every time."""

import csv
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers, pre_tokenizers, processors

from sesame.backbones import Encoder, EncoderConfig
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.saving import save_parts
from sesame.data.examples import Answer, Example
from sesame.tasks import Task, TaskConfig, build_task
from sesame.tasks.windows import Inputs
from sesame.text import Tokenizer, train_tokenizer

GOOD, BAD, PLAIN = ["alpha", "beta"], ["gamma", "delta"], [f"w{number}" for number in range(20)]
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
UNICODE = "Naïve cafe\u0301 👩‍🚀 हिन्दी में, 東京 e\u0301te\u0301 Straße — don't ❤\ufe0f stop…"


def words_tokenizer(words: Sequence[str]) -> Tokenizer:
    """A piece a word, and [CLS] a [SEP] b [SEP] around them: lengths and places are easy to foresee."""
    vocab = {token: id for id, token in enumerate([*SPECIALS, *dict.fromkeys(words)])}
    backend = Backend(models.WordLevel(vocab, unk_token="[UNK]"))
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens(SPECIALS)
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return Tokenizer(backend, {token[1:-1].lower(): token for token in SPECIALS})


def trained(kind: str) -> Tokenizer:
    """A tokenizer trained on a few sentences of several scripts."""
    texts = [UNICODE, "the quick brown fox jumps over the lazy dog", "Lorem ipsum dolor sit amet, 42 times."] * 3
    return train_tokenizer(texts, kind, 340)  # type: ignore[arg-type]


def encoder(vocab: int, seed: int = 0, **settings: Any) -> Encoder:
    torch.manual_seed(seed)
    wanted: dict[str, Any] = {"width": 16, "depth": 2, "heads": 2, "max_length": 32, "dropout": 0.0} | settings
    return Encoder(EncoderConfig(vocab, attention_dropout=0.0, **wanted))


def noise(module: torch.nn.Module, seed: int = 0, size: float = 0.3) -> None:
    """Zeros and ones of the start would hide a swapped or forgotten tensor."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * size)


def toy_tokenizer() -> Tokenizer:
    return words_tokenizer([*GOOD, *BAD, *PLAIN, "who", "what"])


def start_folder(folder: Path, **settings: Any) -> Path:
    """A model folder to start from, as pre-training would leave it."""
    tokenizer = toy_tokenizer()
    folder.mkdir(parents=True, exist_ok=True)
    save_parts(folder, Parts(encoder(len(tokenizer), init=0.2, **settings), tokenizer=tokenizer))
    return folder


def double(task: Task, backbone: Encoder, seed: int = 1) -> tuple[Task, Encoder]:
    noise(task, seed)
    return task.double().eval(), backbone.double().eval()


def made(config: TaskConfig, tokenizer: Tokenizer, **settings: Any) -> tuple[Task, Encoder, Inputs]:
    """A task with noise for weights, in float64."""
    backbone = encoder(len(tokenizer), **settings)
    task, backbone = double(build_task(config.kind, config, backbone), backbone)
    limit = config.length or backbone.config.max_length
    return task, backbone, Inputs(tokenizer, limit, config.overlap)


# ---- tasks that a keyword decides -----------------------------------------------------------------------------------


def sentence(luck: random.Random, *keys: str, low: int = 3, high: int = 8) -> list[str]:
    words = luck.choices(PLAIN, k=luck.randint(low, high))
    for key in keys:
        words.insert(luck.randint(0, len(words)), key)
    return words


def example(
    kind: str, luck: random.Random, number: int, multi: bool = False, pair: bool = False, high: int = 8
) -> Example:
    """One example of up to so many words and a keyword, which decides its label."""
    place = f"toy:{number}"
    good = luck.random() < 0.5
    key = luck.choice(GOOD if good else BAD)
    if kind == "classify" and multi:
        chosen = [name for name in ("alpha", "gamma") if luck.random() < 0.5]
        return Example(place, " ".join(sentence(luck, *chosen, high=high)), label=tuple(chosen))
    if kind == "classify" and pair:
        first, second = (" ".join(sentence(luck, *keys, high=high)) for keys in ([], [luck.choice(GOOD)] * good))
        return Example(place, first, second, "yes" if good else "no")
    if kind == "classify":
        return Example(place, " ".join(sentence(luck, key, high=high)), label="good" if good else "bad")
    if kind == "regress":
        return Example(place, " ".join(sentence(luck, key, high=high)), label=4.5 if good else 1.5)
    if kind == "tag":
        return tagged(place, sentence(luck, key, high=high))
    if kind == "choice":
        count = luck.randint(2, 4)
        right = luck.randrange(count)
        options = [" ".join(sentence(luck, "alpha" if n == right else "gamma", high=4)) for n in range(count)]
        return Example(place, " ".join(sentence(luck, high=high)), options=tuple(options), label=right)
    text = " ".join(sentence(luck, *["alpha"] * good, high=high))
    answers = (Answer("alpha", text.index("alpha")),) if good else ()
    return Example(place, text, "who", answers)


def tagged(place: str, words: Sequence[str]) -> Example:
    spans, at = [], 0
    for word in words:
        spans.append((at, at + len(word)))
        at += len(word) + 1
    tags = tuple("B-GOOD" if word in GOOD else "B-BAD" if word in BAD else "O" for word in words)
    return Example(place, " ".join(words), label=tags, words=tuple(spans))


def examples(kind: str, count: int, seed: int = 0, **wanted: Any) -> list[Example]:
    luck = random.Random(seed)
    return [example(kind, luck, number, **wanted) for number in range(count)]


# ---- files ----------------------------------------------------------------------------------------------------------


def write_csv(path: Path, rows: Sequence[Sequence[object]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as handle:
        csv.writer(handle).writerows(rows)
    return path


def write_examples(path: Path, kind: str, found: Sequence[Example]) -> Path:
    """As a user's file: CSV for texts, CoNLL for tags, JSON lines for the rest."""
    if kind == "tag":
        blocks = [
            "\n".join(f"{e.text[a:b]} {tag}" for (a, b), tag in zip(e.words, e.label, strict=True)) for e in found
        ]
        path.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    elif kind in ("classify", "regress"):
        label = ["|".join(e.label) if isinstance(e.label, tuple) else e.label for e in found]
        if any(e.pair for e in found):
            write_csv(
                path, [("text", "pair", "label"), *((e.text, e.pair, n) for e, n in zip(found, label, strict=True))]
            )
        else:
            write_csv(path, [("text", "label"), *((e.text, n) for e, n in zip(found, label, strict=True))])
    else:
        lines = [json.dumps(_line(kind, e)) for e in found]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _line(kind: str, e: Example) -> dict[str, Any]:
    if kind == "choice":
        return {"stem": e.text, "options": list(e.options), "label": e.label}
    answers = {"text": [a.text for a in e.label], "answer_start": [a.start for a in e.label]}
    return {"context": e.text, "question": e.pair, "answers": answers}
