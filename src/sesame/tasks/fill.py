"""Fill: the most likely tokens at every mask of a text, with probabilities."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sesame.backbones import Backbone
from sesame.backbones.fast import FastEncoder
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.nn.steady import Steady
from sesame.tasks.answer import Engine
from sesame.tasks.inputs import batch_of, by_length
from sesame.tasks.streams import even, side_by_side
from sesame.text import Encoding, Tokenizer


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


def fill(
    backbone: Backbone | FastEncoder | Engine,
    head: nn.Module | None,
    table: Tensor | None,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    top: int,
    limit: int,
) -> list[list[Filled]]:
    """For each text, for each mask in it, the `top` best tokens; `head` and token `table` as the backbone needs them."""
    encodings = tokenizer.encode_batch([mark_masks(text, tokenizer) for text in texts], special=True)
    mask, pad, size = tokenizer.id("mask"), tokenizer.id("pad"), len(tokenizer)
    places = [_places(at, *each, mask, limit) for at, each in enumerate(zip(texts, encodings, strict=True), 1)]
    answers: list[list[Filled]] = [[]] * len(texts)
    for module in (backbone, head):
        if isinstance(module, nn.Module):
            module.eval()

    def work(group: list[int]) -> None:
        batch = batch_of([encodings[i] for i in group], pad)
        most = max(len(places[i]) for i in group)
        at = torch.tensor([places[i] + [0] * (most - len(places[i])) for i in group])
        with torch.inference_mode():
            if isinstance(backbone, Backbone | FastEncoder):
                assert head is not None
                assert table is not None
                batch, at = batch.to(table.device), at.to(table.device)
                hidden = _hidden(backbone, batch, at)
                with Steady():
                    rows = [head(hidden[row, : len(places[i])], table) for row, i in enumerate(group)]
            else:
                logits = backbone.logits(batch)
                rows = [logits[row, places[i]] for row, i in enumerate(group)]
            best = [row.float().softmax(-1)[:, :size].topk(min(top, size), dim=-1) for row in rows]
        for index, (values, ids) in zip(group, best, strict=True):
            spots = zip(places[index], ids.tolist(), values.tolist(), strict=True)
            answers[index] = [
                Filled(*encodings[index].offsets[place], [tokenizer.shown(id) for id in row], chances)
                for place, row, chances in spots
            ]

    if isinstance(backbone, FastEncoder):
        side_by_side(work, even([len(encoding.ids) for encoding in encodings]))
    else:
        for group in by_length(encodings, alike=table is not None and table.device.type == "cpu"):
            work(group)
    return answers


def _hidden(backbone: Backbone | FastEncoder, batch: Batch, at: Tensor) -> Tensor:
    """The last layer at the masks. Shape: (B, K) -> (B, K, D)."""
    if isinstance(backbone, FastEncoder):
        return backbone(batch, at, last=True).take(at)
    with Steady():
        return backbone(batch, at).take(at)  # type: ignore[no-any-return]


def _places(number: int, text: str, encoding: Encoding, mask: int, limit: int) -> list[int]:
    if len(encoding.ids) > limit:
        raise SesameError(
            f"text {number} has {len(encoding.ids)} tokens, the model takes {limit}; shorten it: {text[:60]!r}"
        )
    found = [at for at, id in enumerate(encoding.ids) if id == mask]
    if not found:
        raise SesameError(f"text {number}: no mask in {text[:60]!r}; write [MASK] where a word is wanted")
    return found
