"""LSTM and GRU layers, one above the other: with projection, residuals, and the dropouts that suit them.

Papers: Hochreiter & Schmidhuber 1997 and Gers et al. 2000 (LSTM with a forget gate); Cho et al. 2014 (GRU); Sak, Senior &
Beaufays 2014 (projection); Gal & Ghahramani 2016 (variational dropout: one mask a sequence); Merity, Keskar & Socher 2018
(AWD-LSTM: DropConnect on the hidden-to-hidden matrices); Peters et al. 2018 (ELMo: clipped cells and states).

    LSTM  i, f, o = σ(W x + U h + b), g = tanh(...);  c' = f c + i g;  h' = o tanh(c'), or P (o tanh(c')) with projection
    GRU   r, z = σ(W x + U h + b);  n = tanh(W x + b + r (U h + b'));  h' = (1 - z) n + z h

A GRU is cuDNN's: the reset gate acts on U h. In Cho et al. 2014 (and in Skip-Thought) it acts on h, before U.
Unusual: nothing is kept on the module between calls. `Memory` is for each layer (hidden,) or (hidden, cell), batch first, so
that a search may select rows and a segment may go on where the last one ended. Kernels are PyTorch's fused ones (cuDNN on a
GPU), a layer at a time; only ELMo's clips, which they do not know, are steps in Python (`nn/clipped_lstm`).
Rows are padded at the right, and padding must not be read. Packed sequences would wait for a GPU to tell the lengths, and
could not be recorded; here one more column of the inputs says "padding" and shuts the gates by ∓10^4, where σ is exactly 0 or
1: an LSTM keeps c' = 1 c + 0 g, a GRU h' = 0 n + 1 h. So the memory at the end is that of each row's true end, and backward a
row begins empty where it truly ends. States at padding are set to 0.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal
from warnings import catch_warnings

import torch
from torch import Tensor, nn

from sesame.errors import SesameError
from sesame.nn.clipped_lstm import clipped_lstm
from sesame.nn.dropout import dropout

Kind = Literal["lstm", "gru"]
LayerMemory = tuple[Tensor, ...]  # (hidden,) or (hidden, cell): (B, directions, width of it)
Memory = tuple[LayerMemory, ...]  # of each layer, bottom to top
SHUT = 1e4  # σ(∓SHUT) is 0 and 1, in bf16 and in float64
GATES = {"lstm": (-SHUT, SHUT, 0.0, 0.0), "gru": (0.0, SHUT, 0.0)}  # i f g o; r z n


@dataclass(frozen=True)
class Walked:
    """What a stack has seen. Shape of states: (B, L, directions * width)."""

    layers: tuple[Tensor, ...]  # each layer's states, without dropout
    top: Tensor  # the last layer's, with output dropout
    memory: Memory


class Recurrent(nn.Module):
    """One layer. `width` is that of a state; with `projection` above 0 the cell has `width` numbers, the state that many."""

    shut: Tensor

    def __init__(
        self,
        kind: Kind,
        inputs: int,
        width: int,
        bidirectional: bool = False,
        projection: int = 0,
        weight_dropout: float = 0.0,
        clips: tuple[float, float] | None = None,
    ) -> None:
        super().__init__()
        if kind == "gru" and (projection or clips):
            raise SesameError('backbone: projection and clips are for cell = "lstm"')
        if kind == "gru":
            self.cell: nn.LSTM | nn.GRU = nn.GRU(inputs, width, bidirectional=bidirectional)
        else:
            self.cell = nn.LSTM(inputs, width, bidirectional=bidirectional, proj_size=projection)
        self.kind, self.weight_dropout, self.clips = kind, weight_dropout, clips
        self.directions = 2 if bidirectional else 1
        self.sizes = (projection or width,) if kind == "gru" else (projection or width, width)
        shut = torch.tensor(GATES[kind]).repeat_interleave(width)[:, None]
        self.register_buffer("shut", shut, persistent=False)  # the column that padding multiplies
        self.names = ["weight_ih", "weight_hh", "bias_ih", "bias_hh"] + (["weight_hr"] if projection else [])

    @property
    def width(self) -> int:
        """Of what leaves: both directions beside each other."""
        return self.directions * self.sizes[0]

    def start(self, like: Tensor, rows: int) -> LayerMemory:
        """The empty memory."""
        return tuple(like.new_zeros(rows, self.directions, size) for size in self.sizes)

    def forward(self, x: Tensor, memory: LayerMemory, lengths: Tensor | None = None) -> tuple[Tensor, LayerMemory]:
        """All steps. Shape: (L, B, inputs), (B,) -> (L, B, width)."""
        start, weights = [part.transpose(0, 1).contiguous() for part in memory], self._weights()
        if lengths is not None:
            padding = _padding(x, lengths)
            x = torch.cat([x.masked_fill(padding, 0.0), padding.to(x.dtype)], -1)
            for side in weights:
                side[0] = torch.cat([side[0], self.shut], 1)
        y, after = self._fused(x, start, weights) if self.clips is None else self._clipped(x, start, weights)
        if lengths is not None:
            if self.kind == "lstm":  # the cell is that of the end; the hidden state went on looking at it
                after = [self._ends(y, after[0], start[0], lengths), after[1]]
            y = y.masked_fill(padding, 0.0)
        return y, tuple(part.transpose(0, 1) for part in after)

    def step(self, x: Tensor, memory: LayerMemory) -> tuple[Tensor, LayerMemory]:
        """One step of a layer that goes forward. Shape: (B, inputs) -> (B, width)."""
        (weights,) = self._weights()
        if len(weights) > 4 or self.clips is not None:
            y, memory = self(x[None], memory)
            return y[0], memory
        dtype = _dtype(x, weights)
        x, *parts = (part.to(dtype) for part in (x, *(part[:, 0] for part in memory), *weights))
        with torch.autocast(x.device.type, enabled=False):
            if self.kind == "gru":
                hidden = torch.gru_cell(x, *parts)
                return hidden, (hidden[:, None],)
            hidden, cell = torch.lstm_cell(x, parts[:2], *parts[2:])
        return hidden, (hidden[:, None], cell[:, None])

    def _weights(self) -> list[list[Tensor]]:
        """Of each direction; those from state to state with some of their numbers dropped, the same at all steps."""
        sides = []
        for end in ("", "_reverse")[: self.directions]:
            side = [getattr(self.cell, f"{name}_l0{end}") for name in self.names]
            side[1] = dropout(side[1], self.weight_dropout, self.training)
            sides.append(side)
        return sides

    def _fused(self, x: Tensor, start: list[Tensor], sides: list[list[Tensor]]) -> tuple[Tensor, list[Tensor]]:
        weights = [weight for side in sides for weight in side]
        dtype, backward = _dtype(x, weights), self.training or torch.is_grad_enabled()
        x, start, weights = x.to(dtype), [part.to(dtype) for part in start], [weight.to(dtype) for weight in weights]
        how = (True, 1, 0.0, backward, self.directions == 2, False)  # biases, layers, dropout, ..., batch first
        with torch.autocast(x.device.type, enabled=False), _weights_apart(x.device, len(sides[0]) > 4):
            if self.kind == "gru":
                y, *after = torch.gru(x, start[0], weights, *how)
            else:
                y, *after = torch.lstm(x, start, weights, *how)
        return y, after

    def _clipped(self, x: Tensor, start: list[Tensor], weights: list[list[Tensor]]) -> tuple[Tensor, list[Tensor]]:
        assert self.clips is not None
        sides, hidden, cell = [], [], []
        for number, side in enumerate(weights):
            y, h, c = clipped_lstm(x, start[0][number], start[1][number], side, self.clips, bool(number))
            sides.append(y)
            hidden.append(h)
            cell.append(c)
        return torch.cat(sides, -1), [torch.stack(hidden), torch.stack(cell)]

    def _ends(self, y: Tensor, after: Tensor, start: Tensor, lengths: Tensor) -> Tensor:
        """Hidden states behind each row's last token. Shape: y (L, B, width) -> (directions, B, D)."""
        size = self.sizes[0]
        at = (lengths - 1).clamp(min=0)[None, :, None].expand(1, -1, size)
        ends = torch.cat([y[..., :size].gather(0, at), after[1:]])
        return torch.where((lengths > 0)[None, :, None], ends, start)


class RecurrentStack(nn.Module):
    """Layers above each other. `widths` are those of the layers, bottom to top (AWD-LSTM: 1150, 1150, 400).

    `dropouts` fall on what enters the first layer, what goes from layer to layer, and what leaves the last; `variational`:
    one mask for all steps of a row, else each number for itself. `residual`: a layer beyond the first adds what it has read,
    where the widths agree (ELMo; Wu et al. 2016). `clips` bound cell and projected state (ELMo: 3 and 3).
    """

    def __init__(
        self,
        kind: Kind,
        inputs: int,
        widths: Sequence[int],
        *,
        bidirectional: bool = False,
        projection: int = 0,
        residual: bool = False,
        dropouts: tuple[float, float, float] = (0.0, 0.0, 0.0),
        variational: bool = True,
        weight_dropout: float = 0.0,
        clips: tuple[float, float] | None = None,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        for width in widths:
            layer = Recurrent(kind, inputs, width, bidirectional, projection, weight_dropout, clips)
            self.layers.append(layer)
            inputs = layer.width
        self.width, self.residual, self.dropouts, self.variational = inputs, residual, dropouts, variational

    def start(self, like: Tensor, rows: int) -> Memory:
        """The empty memory of every layer, with the type and device of `like`."""
        return tuple(layer.start(like, rows) for layer in self._layers())

    def forward(self, x: Tensor, lengths: Tensor | None = None, memory: Memory | None = None) -> Walked:
        """All steps of all rows. Shape: (B, L, inputs), (B,) -> states (B, L, width).

        Without `lengths` every row is full. A row of length 0 leaves its memory as it was.
        """
        if lengths is not None and lengths.device.type == "cpu" and bool((lengths == x.shape[1]).all()):
            lengths = None
        if lengths is not None and memory is not None and any(layer.directions == 2 for layer in self._layers()):
            raise ValueError("backward, a padded row begins empty; give no memory, or rows without padding")
        memory = self.start(x, x.shape[0]) if memory is None else memory
        steps = self._drop(x.transpose(0, 1), self.dropouts[0])
        layers, after = [], []
        for number, layer in enumerate(self._layers()):
            read = steps if number == 0 else self._drop(steps, self.dropouts[1])
            steps, kept = layer(read, memory[number], lengths)
            if self.residual and number and read.shape == steps.shape:
                steps = steps + read
            layers.append(steps.transpose(0, 1))
            after.append(kept)
        return Walked(tuple(layers), self._drop(steps, self.dropouts[2]).transpose(0, 1), tuple(after))

    def step(self, x: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """One step of a stack that goes forward, with plain dropout. Shape: (B, inputs) -> (B, width)."""
        after = []
        y = dropout(x, self.dropouts[0], self.training)
        for number, layer in enumerate(self._layers()):
            read = y if number == 0 else dropout(y, self.dropouts[1], self.training)
            y, kept = layer.step(read, memory[number])
            if self.residual and number and read.shape == y.shape:
                y = y + read
            after.append(kept)
        return dropout(y, self.dropouts[2], self.training), tuple(after)

    def _layers(self) -> list[Recurrent]:
        return list(self.layers)  # type: ignore[arg-type]

    def _drop(self, steps: Tensor, rate: float) -> Tensor:
        if not self.training or rate == 0.0:
            return steps
        if not self.variational:
            return dropout(steps, rate, True)
        return steps * dropout(steps.new_ones(steps.shape[1:]), rate, True)


def reverse(x: Tensor, lengths: Tensor | None = None) -> Tensor:
    """Rows from back to front, each up to its own length; padding stays where it is. Shape: (B, L, ...) -> the same."""
    if lengths is None:
        return x.flip(1)
    at = torch.arange(x.shape[1], device=x.device)
    back = lengths.to(x.device)[:, None] - 1 - at
    return x[torch.arange(x.shape[0], device=x.device)[:, None], torch.where(back < 0, at, back)]


def _padding(x: Tensor, lengths: Tensor) -> Tensor:
    """True at padding. Shape: (L, B, 1)."""
    return (torch.arange(x.shape[0], device=x.device)[:, None] >= lengths)[..., None]


def _dtype(x: Tensor, weights: list[Tensor]) -> torch.dtype:
    """What kernels compute in: all of it, or none. oneDNN has no 16-bit LSTM on most CPUs, so autocast stops there."""
    device = x.device.type
    if device != "cpu" and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return weights[0].dtype


def _weights_apart(device: torch.device, projected: bool) -> AbstractContextManager[object]:
    """cuDNN wants weights side by side, and says so at each call; those with a column more or some dropped never are.

    On a CPU it is oneDNN that has no projection, and says so.
    """
    told = device.type == "cuda" or (device.type == "cpu" and projected)
    return catch_warnings(action="ignore", category=UserWarning) if told else nullcontext()
