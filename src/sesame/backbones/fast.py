"""The encoder that only answers, on a CPU: the same function as `Encoder`, laid out for speed.

    rows of a batch, unpadded and end to end (T, D) --linear layers, norms--> never see padding
    runs of rows of one length, (n, L, H, d) views   --attention-->           never need a mask

Unusual: rows come sorted by length, so rows of equal length stand together and a run is a view, not a copy. T is rounded
up: oneDNN builds a kernel for each number of rows, which takes longer than a short text's answer. Weights are packed once
(`nn/packed.py`), shared layers too. It gives no attention maps and cannot be trained.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
import torch.nn.functional as F
from torch import Tensor

from sesame.backbones.base import Encoded
from sesame.backbones.encoder import Encoder, EncoderConfig
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.nn.attention.core import near
from sesame.nn.attention.multihead import take
from sesame.nn.block import Block
from sesame.nn.packed import Precision, pack, part_of
from sesame.nn.positions import rotate, rotations
from sesame.nn.steady import one_thread


@dataclass(frozen=True)
class Run:
    """Rows of one length that stand side by side."""

    token: int  # where the first one starts
    row: int  # which row it is
    rows: int
    length: int


@dataclass(frozen=True)
class Layout:
    runs: list[Run]
    tokens: int  # real ones; those behind them fill up
    rotary: tuple[Tensor, Tensor] | None
    near: tuple[Tensor, Tensor] | None  # that of layers which look at near tokens only
    real: Tensor | None = None  # (tokens,) places in the flattened (B, L); None: all
    asked: Tensor | None = None  # (B K, rounded) places in the flat rows at which the last layer is wanted
    each: int = 0  # K: how many of them a row has


class FastEncoder:
    """A callable like `Encoder`, for CPU tensors in 32 bits; hidden states come out in 32 bits."""

    def __init__(self, encoder: Encoder, precision: Precision = "fp32") -> None:
        self.config, self.width, self.depth = encoder.config, encoder.width, encoder.depth
        self.precision = precision
        self.embeddings, self.token_table = encoder.embeddings, encoder.token_table
        self.final_norm = encoder.final_norm
        self.dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        with torch.no_grad():
            blocks = [block for block in encoder.blocks if isinstance(block, Block)]
            made: dict[tuple[Block, bool], Layer] = {}
            for number, block in enumerate(blocks):
                local = number in self.config.local_layers
                made.setdefault((block, local), Layer(block, self.config, precision, local=local))
            self.layers = [made[block, number in self.config.local_layers] for number, block in enumerate(blocks)]
            self.last = Layer(blocks[-1], self.config, precision, apart=True)

    def __call__(self, batch: Batch, only: Tensor | None = None, last: bool = False) -> Encoded:
        """`only` limits the last layer to these places (B, K); with `last` no other layer is given."""
        width = batch.ids.shape[1]
        if width > self.config.max_length and self.config.positions != "rotary":
            raise SesameError(f"{width} tokens do not fit: this model was built for {self.config.max_length}")
        if self.config.asks_everywhere and only is not None:
            found = self(batch, None, last)
            return Encoded(batch, (*found.layers[:-1], take(found.last, only)), only)
        with torch.inference_mode():
            x, layout = self._enter(batch, only)
            states = [] if last else [self._leave(x, batch, layout)]
            for layer in self.layers[:-1]:
                x = layer(x, layout)
                if not last:
                    states.append(self._leave(x, batch, layout))
            x = (self.layers[-1] if only is None else self.last)(x, layout)
            x = norm(x, self.final_norm)
            few = None if only is None else x[: only.numel()].float().view(*only.shape, -1)
            states.append(self._leave(x, batch, layout) if few is None else few)
            return Encoded(batch, tuple(states), only)

    def _enter(self, batch: Batch, only: Tensor | None) -> tuple[Tensor, Layout]:
        """Unpad and embed. Shape: (B, L) -> (T, D)."""
        lengths: list[int] = batch.lengths.tolist()
        width, tokens = batch.ids.shape[1], sum(lengths)
        full = tokens == batch.ids.numel()
        at = torch.arange(width).repeat(batch.size)
        if not full:
            at = torch.cat([torch.arange(length) for length in lengths])
        real = None if full else at + (torch.arange(batch.size) * width).repeat_interleave(batch.lengths)
        more = rounded(tokens) - tokens

        def flat(x: Tensor) -> Tensor:
            x = x.flatten() if real is None else x.flatten()[real]
            return F.pad(x, (0, more)) if more else x

        at = F.pad(at, (0, more)) if batch.positions is None else flat(batch.positions)
        segments, langs = (None if x is None else flat(x) for x in (batch.segments, batch.langs))
        x = self.embeddings(flat(batch.ids), at, segments, langs)
        rotary = self._rotary(at, self.config.rotary_base)
        near = self._rotary(at, self.config.local_base) if self.config.local_layers else None
        asked = None
        if only is not None:
            starts = torch.tensor([0, *lengths[:-1]]).cumsum(0)
            asked = F.pad((starts[:, None] + only).flatten(), (0, rounded(only.numel()) - only.numel()))
        each = 0 if only is None else only.shape[1]
        return x.to(self.dtype), Layout(runs_of(lengths), tokens, rotary, near, real, asked, each)

    def _rotary(self, at: Tensor, base: float) -> tuple[Tensor, Tensor] | None:
        if self.config.positions != "rotary":
            return None
        cos, sin = rotations(at, self.width // self.config.heads, base, torch.float32)
        return cos[:, None].to(self.dtype), sin[:, None].to(self.dtype)

    def _leave(self, x: Tensor, batch: Batch, layout: Layout) -> Tensor:
        """Pad again. Shape: (T, D) -> (B, L, D)."""
        x = x[: layout.tokens]
        if layout.real is None:
            return x.float().view(*batch.ids.shape, -1)
        found = torch.zeros(batch.ids.numel(), x.shape[1])
        return found.index_copy_(0, layout.real, x.float()).view(*batch.ids.shape, -1)


class Layer:
    """One block. `apart` keeps queries apart from keys and values: the last layer asks at few places. `local`: it looks at
    near tokens only."""

    def __init__(
        self, block: Block, config: EncoderConfig, precision: Precision, apart: bool = False, local: bool = False
    ) -> None:
        attention, feedforward = block.attention, block.feedforward
        self.local, self.window = local, config.window
        self.heads, self.order, self.causal = config.heads, config.order, config.causal
        self.norms = block.attention_norm, block.feedforward_norm
        self.gated = config.activation == "geglu"
        kind = "none" if self.gated else config.activation
        width = config.width
        self.qkv = None if apart else pack(attention.qkv, precision)
        self.q = pack(part_of(attention.qkv, slice(0, width)), precision) if apart else None
        self.kv = pack(part_of(attention.qkv, slice(width, None)), precision) if apart else None
        self.out = pack(attention.out, precision)
        self.up = pack(feedforward.up, precision, kind)
        self.down = pack(feedforward.down, precision, after=kind)

    def __call__(self, x: Tensor, layout: Layout) -> Tensor:
        first, second = self.norms
        kept = x if self.qkv is not None or layout.asked is None else x[layout.asked]
        if self.order == "pre":
            kept = self.attend(norm(x, first), layout).add_(kept)
            return self.feed(norm(kept, second)).add_(kept)
        if self.order == "branch":
            kept = norm(self.attend(x, layout), first).add_(kept)
            return norm(self.feed(kept), second).add_(kept)
        kept = norm(self.attend(x, layout).add_(kept), first)
        return norm(self.feed(kept).add_(kept), second)

    def feed(self, x: Tensor) -> Tensor:
        x = self.up(x)
        if self.gated:
            left, right = x.chunk(2, dim=-1)
            x = F.gelu(left).mul_(right)
        return self.down(x)

    def attend(self, x: Tensor, layout: Layout) -> Tensor:
        """Each run by itself. Shape: (T, D) -> (T, D), or (B K, D) where places are asked."""
        q, k, v = self._heads(x, layout)
        each = None if self.qkv is not None else layout.each
        found = q.new_zeros(q.shape)
        for run in layout.runs:
            keys = slice(run.token, run.token + run.rows * run.length)
            mine = keys if each is None else slice(run.row * each, (run.row + run.rows) * each)
            asking, keyed, valued = (
                part.view(run.rows, -1, *q.shape[1:]).transpose(1, 2) for part in (q[mine], k[keys], v[keys])
            )
            with one_thread():
                if self.local and run.length > self.window + 1:
                    answer = near(asking, keyed, valued, None, self.window)
                else:
                    answer = F.scaled_dot_product_attention(asking, keyed, valued, is_causal=self.causal)
            found[mine].view(run.rows, -1, *q.shape[1:]).copy_(answer.transpose(1, 2))
        return self.out(found.flatten(1))

    def _heads(self, x: Tensor, layout: Layout) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys, values. Shape: (T, H, d); queries (B K, H, d) where places are asked."""
        turn = layout.near if self.local else layout.rotary
        if self.qkv is not None:
            q, k, v = self.qkv(x).view(len(x), 3, self.heads, -1).unbind(1)
            return (q, k, v) if turn is None else (rotate(q, *turn), rotate(k, *turn), v)
        assert self.q is not None
        assert self.kv is not None
        assert layout.asked is not None
        q = self.q(x[layout.asked]).view(len(layout.asked), self.heads, -1)
        k, v = self.kv(x).view(len(x), 2, self.heads, -1).unbind(1)
        if turn is not None:
            q, k = rotate(q, turn[0][layout.asked], turn[1][layout.asked]), rotate(k, *turn)
        return q, k, v


def norm(x: Tensor, module: torch.nn.Module) -> Tensor:
    if isinstance(module, torch.nn.Identity):  # the embeddings are normed already
        return x
    assert isinstance(module, torch.nn.LayerNorm)
    return F.layer_norm(x, module.normalized_shape, module.weight, module.bias, module.eps)


def runs_of(lengths: Sequence[int]) -> list[Run]:
    found, token, row = [], 0, 0
    for length, group in groupby(lengths):
        rows = len(list(group))
        found.append(Run(token, row, rows, length))
        token, row = token + rows * length, row + rows
    return found


def rounded(tokens: int) -> int:
    """Few different sizes, little waste: multiples of 16, from 256 on of 64."""
    step = 16 if tokens <= 256 else 64
    return -(-tokens // step) * step
