"""The decoder that only answers, on a CPU, one token of every hypothesis at a time: `EncoderDecoder.go_on` for speed.

    keys of a source     k_1 | k_2 k_3 k_4 k_5 | k_6 k_7 k_8 k_9 | ...     one column for each token of each hypothesis
    a hypothesis sees    its own ancestors among them: 1, 3, 9 ...           by a mask (S, n, C)

Unusual: a beam moves hypotheses at every step, and a cache that follows them copies all keys and values each time. Here they
are written once and never moved; only the mask is. A source's hypotheses ask together, so all its columns are read once;
those that no hypothesis descends from any more are read in vain, which costs less than moving the others. Weights are packed
(`nn/packed.py`). The source and the first tokens are read by the backbone itself. It gives no maps and cannot be trained.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sesame.backbones.base import State
from sesame.backbones.encoder_decoder import EncoderDecoder
from sesame.errors import SesameError
from sesame.nn.block import CrossBlock
from sesame.nn.packed import FLOORS, Precision, pack

ROOM = 64  # columns of a new cache; a full one grows by half


class Columns:
    """Keys and values of all layers, (layers, 2, S, H, C, d); the first `used` columns are written."""

    def __init__(self, table: Tensor, used: int) -> None:
        self.table, self.used = table, used

    def room(self, first: int, more: int) -> "Columns":
        """With room for more behind the first ones; a copy if others were written there already, or there is none."""
        if self.used == first and first + more <= self.table.shape[4]:
            return self
        wide = max(ROOM, first + more, first * 3 // 2)
        table = self.table.new_empty(*self.table.shape[:4], wide, self.table.shape[5])
        table[..., :first, :] = self.table[..., :first, :]
        return Columns(table, first)


@dataclass(frozen=True)
class Branches:
    """What S sources with n hypotheses each remember: a `Memory` for search."""

    columns: Columns
    steps: tuple[int, ...]  # the place in its text of each column's token
    n: int
    seen: Tensor | None  # (S, n, C) which columns a hypothesis descends from; None: all
    source: tuple[tuple[Tensor, Tensor], ...]  # keys and values (S, H, L, d) for each layer
    lengths: Tensor | None  # (S,) of the sources; None: all are as long as the longest

    def select(self, rows: Tensor) -> "Branches":
        """See `Memory.select`; the columns move only if sources leave."""
        sources, count = rows[:, 0] // self.n, self.columns.table.shape[2]
        seen = self.seen if self.seen is None else self.seen.flatten(0, 1)[rows]
        if len(sources) == count and torch.equal(sources, torch.arange(count)):
            return Branches(self.columns, self.steps, rows.shape[1], seen, self.source, self.lengths)
        used, lengths, longest = len(self.steps), self.lengths, self.source[0][0].shape[2]
        if lengths is not None and len(sources):
            lengths = lengths[sources]
            longest = int(lengths.max())
            lengths = None if bool((lengths == longest).all()) else lengths
        columns = Columns(self.columns.table[..., :used, :].index_select(2, sources), used)
        source = tuple((k[sources, :, :longest], v[sources, :, :longest]) for k, v in self.source)
        return Branches(columns, self.steps, rows.shape[1], seen, source, lengths)


class FastDecoder:
    """For CPU tensors in 32 bits; hidden states come out in 32 bits."""

    def __init__(self, backbone: EncoderDecoder, precision: Precision = "fp32") -> None:
        self.backbone, self.precision = backbone, precision
        with torch.no_grad():
            blocks = [block for block in backbone.decoder.blocks if isinstance(block, CrossBlock)]
            self.layers = [DecoderLayer(block, precision) for block in blocks]

    def take_over(self, state: State) -> Branches:
        """What a backbone remembers of sources and first tokens, one hypothesis each."""
        size = self.layers[0].size

        def heads(x: Tensor) -> list[Tensor]:
            return [part.view(*part.shape[:2], -1, size).transpose(1, 2).contiguous() for part in x.chunk(2, dim=-1)]

        table = torch.stack([torch.stack(heads(layer)) for layer in state.layers])
        source = tuple((k, v) for k, v in (heads(layer) for layer in state.source))
        lengths = None if state.source_real is None else state.source_real.sum(1)
        return Branches(Columns(table, state.length), tuple(range(state.length)), 1, None, source, lengths)

    @torch.inference_mode()
    def next(self, ids: Tensor, past: Branches) -> tuple[Tensor, Branches]:
        """One more token of every hypothesis. Shape: (S n,) -> (S n, D)."""
        first, n, step = len(past.steps), past.n, past.steps[-1] + 1
        columns = past.columns.room(first, n)
        columns.used = first + n
        seen = _descent(past, columns.table.shape[2])
        after = Branches(columns, past.steps + (step,) * n, n, seen, past.source, past.lengths)
        mask, looks = self._mask(after), _source_mask(after)
        x = self._enter(ids, step)
        for number, layer in enumerate(self.layers):
            table = columns.table[number, ..., : columns.used, :]
            x = layer(x, n, (table[0], table[1]), mask, past.source[number], looks)
        return self.backbone.decoder.leave(x), after

    def _enter(self, ids: Tensor, step: int) -> Tensor:
        backbone = self.backbone
        if backbone.longest is not None and step >= backbone.longest:
            raise SesameError(
                f"{step + 1} tokens of the answer do not fit: this model was built for {backbone.longest}"
            )
        tokens: Tensor = backbone.tokens(ids)
        tokens = tokens * math.sqrt(backbone.width) if backbone.config.grow else tokens
        return backbone.decoder.enter(tokens, torch.full_like(ids, step), backbone.table)

    def _mask(self, branches: Branches) -> Tensor | None:
        """What is added to the scores. Shape: broadcasts to (S, H, n, C)."""
        mask, bias = None, self.backbone.decoder.bias
        if branches.seen is not None:
            mask = torch.zeros(branches.seen.shape).masked_fill_(~branches.seen, -torch.inf)[:, None]
        if bias is None:
            return mask
        step = branches.steps[-1]
        added: Tensor = bias(step, 1, step + 1)[..., torch.tensor(branches.steps)]
        return added if mask is None else mask + added


def _descent(past: Branches, sources: int) -> Tensor | None:
    """Which columns each hypothesis sees when its own token has one. Shape: (S, n, C + n)."""
    if past.n == 1 and past.seen is None:
        return None
    old = past.seen
    if old is None:
        old = torch.ones(sources, past.n, len(past.steps), dtype=torch.bool)
    return torch.cat([old, torch.eye(past.n, dtype=torch.bool).expand(sources, -1, -1)], 2)


def _source_mask(branches: Branches) -> Tensor | None:
    if branches.lengths is None:
        return None
    real = torch.arange(branches.source[0][0].shape[2]) < branches.lengths[:, None]
    return torch.zeros(real.shape).masked_fill_(~real, -torch.inf)[:, None, None, :]


class DecoderLayer:
    """One block for one token of each row. Shape: (S n, D) -> (S n, D)."""

    def __init__(self, block: CrossBlock, precision: Precision) -> None:
        attention, cross, feedforward = block.attention, block.cross, block.feedforward
        self.heads, self.size, self.scale, self.order = attention.heads, attention.size, attention.scale, block.order
        self.norms = block.attention_norm, block.cross_norm, block.feedforward_norm
        self.gated, self.activation = feedforward.gated, feedforward.activation
        kind = feedforward.name if feedforward.name in FLOORS else "none"  # which a product can do by the way
        self.alone = kind == "none"
        self.qkv, self.out = pack(attention.qkv, precision), pack(attention.out, precision)
        self.q, self.cross_out = pack(cross.q, precision), pack(cross.out, precision)
        self.up, self.down = pack(feedforward.up, precision, kind), pack(feedforward.down, precision, after=kind)

    def __call__(
        self,
        x: Tensor,
        n: int,
        table: tuple[Tensor, Tensor],
        mask: Tensor | None,
        source: tuple[Tensor, Tensor],
        looks: Tensor | None,
    ) -> Tensor:
        pre, (first, second, third) = self.order == "pre", self.norms
        x = self._join(x, self.attend(first(x) if pre else x, n, table, mask), first)
        x = self._join(x, self.look(second(x) if pre else x, n, source, looks), second)
        return self._join(x, self.feed(third(x) if pre else x), third)

    def _join(self, x: Tensor, found: Tensor, norm: torch.nn.Module) -> Tensor:
        if self.order == "branch":
            return norm(found).add_(x)  # type: ignore[no-any-return]
        return found.add_(x) if self.order == "pre" else norm(found.add_(x))

    def attend(self, x: Tensor, n: int, table: tuple[Tensor, Tensor], mask: Tensor | None) -> Tensor:
        """To its own text; keys and values of the new tokens go into the last n columns."""
        q, k, v = self.qkv(x).view(-1, n, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        table[0][:, :, -n:].copy_(k)
        table[1][:, :, -n:].copy_(v)
        return self.out(self._heads(q, table, mask))

    def look(self, x: Tensor, n: int, source: tuple[Tensor, Tensor], mask: Tensor | None) -> Tensor:
        """At the source."""
        q = self.q(x).view(-1, n, self.heads, self.size).transpose(1, 2)
        return self.cross_out(self._heads(q, source, mask))

    def _heads(self, q: Tensor, kv: tuple[Tensor, Tensor], mask: Tensor | None) -> Tensor:
        found = F.scaled_dot_product_attention(q, *kv, attn_mask=mask, scale=self.scale)
        return found.transpose(1, 2).reshape(-1, self.heads * self.size)

    def feed(self, x: Tensor) -> Tensor:
        x = self.up(x)
        if self.gated:
            left, right = x.chunk(2, dim=-1)
            x = self.activation(left) * right
        elif self.alone:
            x = self.activation(x)
        return self.down(x)
