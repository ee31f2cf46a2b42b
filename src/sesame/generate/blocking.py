"""What may not be said: repeated n-grams, an early end, anything but a forced prefix.

Each rule is a plain function that writes minus infinity into the logits (search owns them), in the order of transformers'
logits processors. What is left is not renormalized: a beam compares true log-probabilities. A forced token costs nothing,
as there: its log-probability counts as 0.

N-grams (Paulus, Xiong & Socher 2018, https://arxiv.org/abs/1705.04304): a token is forbidden when it would complete an n-gram
that stands in the text already. A decoder's prompt belongs to its text: `before`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.generate.settings import Settings

NOTHING = -1
"""Stands where there is no token."""


def forbid(logits: Tensor, ids: Tensor) -> None:
    """Never these. Shape: logits (R, V), ids (K,)."""
    logits.index_fill_(1, ids, -torch.inf)


def forbid_phrase(logits: Tensor, text: Tensor, phrase: Tensor) -> None:
    """Never these tokens in a row. Shape: logits (R, V), text (R, T) so far, phrase (P,)."""
    before = len(phrase) - 1
    if text.shape[1] >= before:
        begun = (text[:, text.shape[1] - before :] == phrase[:-1]).all(1)
        logits[begun, phrase[-1]] = -torch.inf


def forbid_repeats(logits: Tensor, text: Tensor, size: int) -> None:
    """No n-gram twice. Shape: logits (R, V), text (R, T) so far, with NOTHING in front of shorter ones."""
    if text.shape[1] < size:
        return
    windows = text.unfold(1, size, 1)  # (R, T - size + 1, size)
    suffix = text[:, text.shape[1] - size + 1 :]
    again = (windows[..., :-1] == suffix[:, None, :]).all(2) & (windows[..., -1] != NOTHING)
    rows, at = again.nonzero(as_tuple=True)
    logits[rows, windows[rows, at, -1]] = -torch.inf


def force(logits: Tensor, norms: Tensor, ids: Tensor) -> None:
    """Nothing but these, at no cost; a row with NOTHING stays. Shape: logits (R, V), norms (R,), ids (R,)."""
    rows = (ids != NOTHING).nonzero()[:, 0]
    logits.index_fill_(0, rows, -torch.inf)
    logits[rows, ids[rows]] = norms[rows]


@dataclass(frozen=True)
class Rules:
    """All rules of one search."""

    settings: Settings
    ends: Tensor  # (E,)
    never: Tensor  # (K,)
    phrases: tuple[Tensor, ...] = ()  # of two tokens or more, never said either
    prefix: Tensor | None = None  # (B, P), NOTHING behind shorter ones
    before: Tensor | None = None  # (B, T), NOTHING in front of shorter ones
    last: Tensor | None = None  # (1,), what `settings.force_end` forces

    def apply(self, logits: Tensor, norms: Tensor, sources: Tensor, said: Tensor) -> None:
        """Write all of them into the logits. Shape: logits (R, V), norms (R,) log sum exp, sources (R,), said (R, t)."""
        step, settings = said.shape[1], self.settings
        text = said
        if self.before is not None and (settings.no_repeat or self.phrases):
            text = torch.cat([self.before[sources], said], 1)
        if settings.no_repeat:
            forbid_repeats(logits, text, settings.no_repeat)
        if len(self.never):
            forbid(logits, self.never)
        for phrase in self.phrases:
            forbid_phrase(logits, text, phrase)
        if step < settings.fewest:
            forbid(logits, self.ends)
        if self.prefix is not None and step < self.prefix.shape[1]:
            force(logits, norms, self.prefix[sources, step])
        if self.last is not None and step == settings.most - 1:
            force(logits, norms, self.last.expand(len(logits)))


def make_rules(
    settings: Settings,
    batch: Batch,
    vocab: int,
    ends: Sequence[int],
    prefix: Sequence[Sequence[int]] | None,
    before: Batch | None,
    last: int | None = None,
) -> Rules:
    """Check what the user asked for against the model and the batch."""
    banned = [(word,) if isinstance(word, int) else word for word in settings.never]
    single = [word[0] for word in banned if len(word) == 1]
    lasts = list(ends) if last is None else [last]
    _check_ids("the end token", [*ends, *lasts], vocab)
    _check_ids("generate.never", [id for word in banned for id in word], vocab)
    if settings.force_end and len(lasts) != 1:
        raise SesameError(f"generate.force_end needs one end token, there are {len(ends)}; name one or leave it off")
    device = batch.ids.device
    return Rules(
        settings,
        torch.tensor(ends, dtype=torch.long, device=device),
        torch.tensor(single, dtype=torch.long, device=device),
        tuple(torch.tensor(word, device=device) for word in banned if len(word) > 1),
        None if prefix is None else _prefix(prefix, settings, batch.size, vocab, ends).to(device),
        None if before is None else _right_aligned(before),
        torch.tensor(lasts, device=device) if settings.force_end else None,
    )


def _check_ids(what: str, ids: Sequence[int], vocab: int) -> None:
    for id in ids:
        if not 0 <= id < vocab:
            raise SesameError(
                f"{what}: {id} is no token of the model, whose vocabulary has {vocab}; check the tokenizer"
            )


def _prefix(prefix: Sequence[Sequence[int]], settings: Settings, size: int, vocab: int, ends: Sequence[int]) -> Tensor:
    if len(prefix) != size:
        raise SesameError(f"there are {len(prefix)} forced prefixes for {size} sources; give one for each, [] for none")
    longest = max((len(ids) for ids in prefix), default=0)
    if longest >= settings.most:
        raise SesameError(
            f"a forced prefix has {longest} tokens, generate.most = {settings.most} leaves none to say; make most larger"
        )
    table = torch.full((size, longest), NOTHING)
    for row, ids in enumerate(prefix):
        _check_ids(f"the forced prefix of source {row + 1}", ids, vocab)
        if set(ids) & set(ends):
            raise SesameError(f"the forced prefix of source {row + 1} holds the end token; take it out")
        table[row, : len(ids)] = torch.tensor(ids, dtype=torch.long)
    return table


def _right_aligned(batch: Batch) -> Tensor:
    """Prompts with NOTHING in front of them instead of padding behind."""
    width = batch.ids.shape[1]
    at = torch.arange(width, device=batch.ids.device)[None, :] - (width - batch.lengths[:, None])
    return torch.where(at < 0, NOTHING, batch.ids.gather(1, at.clamp(min=0)))
