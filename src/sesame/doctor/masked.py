"""Sentences of the text as the model will see them, masked by the objective that trains."""

from dataclasses import dataclass

import numpy as np
import torch

from sesame import chance
from sesame.data.batch import IGNORE, Batch
from sesame.data.sentences import split_sentences
from sesame.doctor.text import Checked
from sesame.objectives.base import Vocab
from sesame.objectives.mlm import MaskedLM, MaskedLMConfig, MaskedLMHead
from sesame.text import Tokenizer


@dataclass(frozen=True)
class MaskedToken:
    """A token as the model sees it, and what stood there if it is asked for."""

    token: str
    original: str | None = None


def masked_examples(
    tokenizer: Tokenizer, checked: Checked, count: int = 5, longest: int = 48
) -> list[list[MaskedToken]]:
    """Sentences of the text, masked by the objective that trains; none if the tokenizer has no mask token."""
    if not all(tokenizer.has(role) for role in ("cls", "sep", "mask", "pad")):
        return []
    roles = tokenizer.ids()
    picked = tokenizer.encode_batch(_examples(checked.sample, count), literal=True)
    rows = [[roles["cls"], *found.ids[: longest - 2], roles["sep"]] for found in picked if found.ids]
    if not rows:
        return []
    width = max(map(len, rows))
    batch = Batch(
        ids=torch.tensor([row + [roles["pad"]] * (width - len(row)) for row in rows]),
        lengths=torch.tensor([len(row) for row in rows]),
        keys=torch.from_numpy(chance.keys(chance.key(0), np.arange(len(rows))).view(np.int64)),
    )
    size = len(tokenizer)
    masked = MaskedLM(MaskedLMConfig(), MaskedLMHead(1, 1, size, "gelu", 1e-12), Vocab(size, roles)).corrupt(batch)
    targets = masked.targets["mlm"]
    assert targets.at is not None
    shown = []
    for number, row in enumerate(rows):
        asked = zip(targets.at[number].tolist(), targets.labels[number].tolist(), strict=True)
        originals = {at: tokenizer.token(label) for at, label in asked if label != IGNORE}
        ids = masked.ids[number, : len(row)].tolist()
        shown.append([MaskedToken(tokenizer.token(id), originals.get(at)) for at, id in enumerate(ids)])
    return shown


def _examples(sample: list[str], count: int) -> list[str]:
    """A middling sentence from each of `count` documents, evenly spread; of a single document, several."""
    if len(sample) == 1:
        spread = [split_sentences(sample[0][:100_000])[number::count] for number in range(count)]
    else:
        chosen = min(count, len(sample))
        spread = [split_sentences(sample[number * len(sample) // chosen][:20_000]) for number in range(chosen)]
    found = []
    for sentences in spread:
        fitting = [sentence for sentence in sentences if 40 <= len(sentence) <= 200] or sentences
        if fitting:
            found.append(fitting[len(fitting) // 2])
    return list(dict.fromkeys(found))
