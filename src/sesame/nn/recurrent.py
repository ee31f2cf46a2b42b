"""LSTM and GRU layers, one above the other: with projection, residuals, and the dropouts that suit them.

Papers: Hochreiter & Schmidhuber 1997 and Gers et al. 2000 (LSTM with a forget gate); Cho et al. 2014 (GRU); Sak, Senior &
Beaufays 2014 (projection); Gal & Ghahramani 2016 (variational dropout: one mask a sequence); Merity, Keskar & Socher 2018
(AWD-LSTM: DropConnect on the hidden-to-hidden matrices); Peters et al. 2018 (ELMo: clipped cells and states).

    LSTM  i, f, o = σ(W x + U h + b), g = tanh(...);  c' = f c + i g;  h' = o tanh(c'), or P (o tanh(c')) with projection
    GRU   r, z = σ(W x + U h + b);  n = tanh(W x + b + r (U h + b'));  h' = (1 - z) n + z h

Unusual: nothing is kept on the module between calls. `Memory` is for each layer (hidden,) or (hidden, cell), batch first, so
that a search may select rows and a segment may go on where the last one ended. Rows are padded at the right; with `lengths`
they travel as a packed sequence: the backward direction starts at each row's true end, the memory is that of the true end,
and states at padding are 0. Kernels are PyTorch's fused ones (cuDNN on a GPU), a layer at a time; only ELMo's clips, which
they do not know, are steps in Python (`nn/clipped_lstm`).
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from sesame.errors import SesameError
from sesame.nn.clipped_lstm import clipped_lstm
from sesame.nn.dropout import dropout

Kind = Literal["lstm", "gru"]
LayerMemory = tuple[Tensor, ...]  # (hidden,) or (hidden, cell): (B, directions, width of it)
Memory = tuple[LayerMemory, ...]  # of each layer, bottom to top
Steps = Tensor | PackedSequence  # (L, B, D), or packed


@dataclass(frozen=True)
class Walked:
    """What a stack has seen. Shape of states: (B, L, directions * width)."""

    layers: tuple[Tensor, ...]  # each layer's states, without dropout
    top: Tensor  # the last layer's, with output dropout
    memory: Memory


class Recurrent(nn.Module):
    """One layer. `width` is that of a state; with `projection` above 0 the cell has `width` numbers, the state that many."""

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
        self.names = ["weight_ih", "weight_hh", "bias_ih", "bias_hh"] + (["weight_hr"] if projection else [])

    @property
    def width(self) -> int:
        """Of what leaves: both directions beside each other."""
        return self.directions * self.sizes[0]

    def start(self, like: Tensor, rows: int) -> LayerMemory:
        """The empty memory."""
        return tuple(like.new_zeros(rows, self.directions, size) for size in self.sizes)

    def forward(self, x: Steps, memory: LayerMemory) -> tuple[Steps, LayerMemory]:
        """All steps. A packed `x` has its rows sorted by length, and so has `memory` then."""
        start = [part.transpose(0, 1).contiguous() for part in memory]
        weights = self._weights()
        if self.clips is not None:
            y, after = self._clipped(x, start, weights)
        else:
            y, after = self._fused(x, start, [weight for side in weights for weight in side])
        return y, tuple(part.transpose(0, 1) for part in after)

    def _weights(self) -> list[list[Tensor]]:
        """Of each direction; those from state to state with some of their numbers dropped, the same at all steps."""
        sides = []
        for end in ("", "_reverse")[: self.directions]:
            side = [getattr(self.cell, f"{name}_l0{end}") for name in self.names]
            side[1] = dropout(side[1], self.weight_dropout, self.training)
            sides.append(side)
        return sides

    def _fused(self, x: Steps, start: list[Tensor], weights: list[Tensor]) -> tuple[Steps, Sequence[Tensor]]:
        ends, both = (True, 1, 0.0, self.training), self.directions == 2  # biases, layers, dropout
        with warnings.catch_warnings():  # dropped weights lie apart; cuDNN gathers them itself
            warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
            if isinstance(x, PackedSequence):
                if self.kind == "gru":
                    y, *after = torch.gru(x.data, x.batch_sizes, start[0], weights, *ends, both)
                else:
                    y, *after = torch.lstm(x.data, x.batch_sizes, start, weights, *ends, both)
                return x._replace(data=y), after
            if self.kind == "gru":
                y, *after = torch.gru(x, start[0], weights, *ends, both, False)
            else:
                y, *after = torch.lstm(x, start, weights, *ends, both, False)
            return y, after

    def _clipped(self, x: Steps, start: list[Tensor], weights: list[list[Tensor]]) -> tuple[Steps, Sequence[Tensor]]:
        assert self.clips is not None
        steps = list(torch.split(x.data, x.batch_sizes.tolist()) if isinstance(x, PackedSequence) else x.unbind())
        sides, hidden, cell = [], [], []
        for number, side in enumerate(weights):
            y, h, c = clipped_lstm(steps, start[0][number], start[1][number], side, self.clips, bool(number))
            sides.append(torch.cat(y))
            hidden.append(h)
            cell.append(c)
        data, after = torch.cat(sides, -1), (torch.stack(hidden), torch.stack(cell))
        return (x._replace(data=data) if isinstance(x, PackedSequence) else data.view(*x.shape[:2], -1)), after


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
        rows, length = x.shape[:2]
        memory = self.start(x, rows) if memory is None else memory
        steps, order = _pack(x, lengths)
        layers, after = [], []
        steps = self._drop(steps, self.dropouts[0], rows)
        for number, layer in enumerate(self._layers()):
            read = steps if number == 0 else self._drop(steps, self.dropouts[1], rows)
            steps, kept = layer(read, memory[number] if order is None else _rows(memory[number], order[0]))
            if self.residual and number and _data(read).shape == _data(steps).shape:
                steps = _with(steps, _data(steps) + _data(read))
            layers.append(_unpack(steps, length))
            after.append(kept if order is None else _rows(kept, order[1]))
        top = _unpack(self._drop(steps, self.dropouts[2], rows), length)
        return _without_empty(Walked(tuple(layers), top, tuple(after)), memory, lengths)

    def _layers(self) -> list[Recurrent]:
        return list(self.layers)  # type: ignore[arg-type]

    def _drop(self, steps: Steps, rate: float, rows: int) -> Steps:
        if not self.training or rate == 0.0:
            return steps
        data = _data(steps)
        if not self.variational:
            return _with(steps, dropout(data, rate, True))
        mask = dropout(data.new_ones(rows, data.shape[-1]), rate, True)
        if isinstance(steps, PackedSequence):
            row = torch.cat([torch.arange(size, device=data.device) for size in steps.batch_sizes.tolist()])
            mask = mask[row]
        return _with(steps, data * mask)


def reverse(x: Tensor, lengths: Tensor | None = None) -> Tensor:
    """Rows from back to front, each up to its own length; padding stays where it is. Shape: (B, L, ...) -> the same."""
    if lengths is None:
        return x.flip(1)
    at = torch.arange(x.shape[1], device=x.device)
    back = lengths.to(x.device)[:, None] - 1 - at
    return x[torch.arange(x.shape[0], device=x.device)[:, None], torch.where(back < 0, at, back)]


def _pack(x: Tensor, lengths: Tensor | None) -> tuple[Steps, tuple[Tensor, Tensor] | None]:
    """Steps for the kernels, and the orders of rows to them and back."""
    if lengths is None:
        return x.transpose(0, 1), None
    real = lengths.detach().cpu()  # kernels want to know how many rows go on at each step
    if bool((real == x.shape[1]).all()):
        return x.transpose(0, 1), None
    packed = pack_padded_sequence(x, real.clamp(min=1), batch_first=True, enforce_sorted=False)
    assert packed.sorted_indices is not None
    assert packed.unsorted_indices is not None
    return packed, (packed.sorted_indices, packed.unsorted_indices)


def _unpack(steps: Steps, length: int) -> Tensor:
    if isinstance(steps, PackedSequence):
        return pad_packed_sequence(steps, batch_first=True, total_length=length)[0]
    return steps.transpose(0, 1)


def _data(steps: Steps) -> Tensor:
    return steps.data if isinstance(steps, PackedSequence) else steps


def _with(steps: Steps, data: Tensor) -> Steps:
    return steps._replace(data=data) if isinstance(steps, PackedSequence) else data


def _rows(memory: LayerMemory, order: Tensor) -> LayerMemory:
    return tuple(part.index_select(0, order) for part in memory)


def _without_empty(walked: Walked, before: Memory, lengths: Tensor | None) -> Walked:
    """Rows without a token pass through the kernels as if they had one; here their trace is removed."""
    if lengths is None or not bool((lengths == 0).any()):
        return walked
    real = (lengths > 0).to(walked.top.device)[:, None, None]
    memory = tuple(
        tuple(torch.where(real, new, old) for new, old in zip(*pair, strict=True))
        for pair in zip(walked.memory, before, strict=True)
    )
    return Walked(tuple(x * real for x in walked.layers), walked.top * real, memory)
