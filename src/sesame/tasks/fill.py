"""Fill: the most likely tokens at every mask of a text, with probabilities."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from sesame.backbones import Backbone
from sesame.errors import SesameError
from sesame.tasks.inputs import batch_of
from sesame.text import Tokenizer


@dataclass(frozen=True)
class Filled:
    """One mask: where it stands in the text, and what may stand there."""

    start: int
    end: int
    tokens: list[str]
    probabilities: list[float]


def mark_masks(text: str, tokenizer: Tokenizer) -> str:
    """`[MASK]`, `<mask>` and `___` all mean the tokenizer's own mask token."""
    mask = tokenizer.roles["mask"]
    for sign in ("[MASK]", "<mask>", "___"):
        if sign != mask:
            text = text.replace(sign, mask)
    return text


@torch.no_grad()
def fill(
    backbone: Backbone, head: nn.Module, tokenizer: Tokenizer, texts: Sequence[str], top: int, limit: int
) -> list[list[Filled]]:
    """For each text, for each mask in it, the `top` best tokens."""
    answers = []
    backbone.eval()
    head.eval()
    for text in texts:
        marked = mark_masks(text, tokenizer)
        encoding = tokenizer.encode(marked, special=True)
        if len(encoding.ids) > limit:
            raise SesameError(
                f"the text has {len(encoding.ids)} tokens, the model takes {limit}; shorten it: {text[:60]!r}"
            )
        places = [at for at, id in enumerate(encoding.ids) if id == tokenizer.id("mask")]
        if not places:
            raise SesameError(f"no mask in {text[:60]!r}; write [MASK] where a word is wanted")
        device = next(backbone.parameters()).device
        batch = batch_of([encoding], tokenizer.id("pad")).to(device)
        at = torch.tensor([places], device=device)
        hidden = backbone(batch, at).take(at)[0]
        chances = head(hidden, backbone.token_table()).float().softmax(-1)[:, : len(tokenizer)]
        best = chances.topk(min(top, chances.shape[-1]), dim=-1)
        answers.append(
            [
                Filled(*encoding.offsets[place], [tokenizer.token(id) for id in ids], values)
                for place, ids, values in zip(places, best.indices.tolist(), best.values.tolist(), strict=True)
            ]
        )
    return answers
