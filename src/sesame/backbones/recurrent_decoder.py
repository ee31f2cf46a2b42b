"""The decoder of recurrent encoder-decoders: one step after another, with or without a look at the source.

    looks = "before" (Bahdanau et al. 2015)   c = look(s_{t-1});  s_t = cell([y_{t-1}; c], s_{t-1})
    looks = "after" (Luong et al. 2015)       s_t = cell([y_{t-1}; o_{t-1} if fed], s_{t-1});  c = look(s_t)
    no attention (Sutskever, Cho)             s_t = cell([y_{t-1}; c if context = "all"], s_{t-1}), c the source's last state
    what the output layer reads               o_t = s_t, tanh(W [c; s_t]) or maxout(W [c; s_t; y_{t-1}]), by `readout`;
                                              with `readout_before` s_{t-1} in the place of s_t (Bahdanau et al.)

Where no step needs the answer of the one before (no look before, no input feeding, no coverage), all steps of a known text
run in one fused pass, and all looks at once; the same steps one by one give the same numbers.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from sesame.nn.attention.looking import Look, Looking, Source
from sesame.nn.dropout import Dropout
from sesame.nn.recurrent import Memory, RecurrentStack

if TYPE_CHECKING:
    from sesame.backbones.recurrent_seq2seq import RecurrentSeq2SeqConfig


@dataclass(frozen=True)
class Carried:
    """What goes from step to step. B rows, S sources."""

    step: int
    memory: Memory
    fed: Tensor | None = None  # (B, D) what the last step said to the output layer
    covered: Tensor | None = None  # (B, L) where all steps have looked


@dataclass(frozen=True)
class Told:
    """The decoder's answer at K places."""

    hidden: Tensor  # (B, K, D)
    carried: Carried
    weights: Tensor | None  # (B, K, L) where it looked
    chosen: Tensor | None  # (B, K) log-probability of places that were drawn
    repeated: Tensor | None  # (B, K) how much of a look fell on what was covered already


class RecurrentDecoder(nn.Module):
    def __init__(self, config: "RecurrentSeq2SeqConfig") -> None:
        super().__init__()
        c, self.config = config, config
        attends, state, read = c.attention != "none", c.state, c.values
        given = read if attends or c.context == "all" else 0
        early = given and (not attends or c.looks == "before")
        inputs = c.width + (read if early else 0) + (c.width if c.feed else 0)
        drops = (c.dropout, c.dropout, c.dropout)
        self.stack = RecurrentStack(
            c.cell, inputs, [state] * c.depth, residual=c.residual, dropouts=drops, variational=False
        )
        self.looking: Looking | None = None
        if c.attention != "none":
            self.looking = Looking(c.attention, c.score, state, read, c.window, c.coverage)
        heard = given + state + (c.width if c.readout == "maxout" else 0)
        pairs = 2 if c.readout == "maxout" else 1
        self.out = None if c.readout == "state" else nn.Linear(heard, pairs * c.width, bias=c.readout == "maxout")
        self.dropout = Dropout(c.dropout)

    def begin(self, memory: Memory, source: Source) -> Carried:
        """Before the first step; a row for each source."""
        rows, length = source.values.shape[:2]
        fed = source.values.new_zeros(rows, self.config.width) if self.config.feed else None
        return Carried(0, memory, fed, source.values.new_zeros(rows, length) if self.config.coverage else None)

    def forward(self, tokens: Tensor, carried: Carried, source: Source, last: Tensor) -> Told:
        """All steps of texts that are known. Shape: tokens (B, K, D), last (S, read): the encoder's last state."""
        c = self.config
        if self.looking is not None and (c.looks == "before" or c.feed or c.coverage):
            return self.one_by_one(tokens, carried, source, last)
        rows, places = tokens.shape[:2]
        context = last[:, None].expand(rows, places, -1) if c.context == "all" and self.looking is None else None
        walked = self.stack(tokens if context is None else torch.cat([tokens, context], -1), memory=carried.memory)
        look = None
        if self.looking is not None:
            steps = torch.arange(carried.step, carried.step + places, device=tokens.device)
            look = self.looking(walked.top, source, steps)
            context = look.context
        hidden = self.dropout(self._read_out(walked.top, context, tokens))
        after = Carried(carried.step + places, walked.memory)
        return Told(hidden, after, look and look.weights, look and look.chosen, None)

    def one_by_one(self, tokens: Tensor, carried: Carried, source: Source, last: Tensor) -> Told:
        """The same, step by step; several rows may share a source."""
        said: list[Tensor] = []
        looks: list[Look] = []
        repeated: list[Tensor] = []
        for token in tokens.unbind(1):
            before = carried.covered
            hidden, carried, look = self._step(token, carried, source, last)
            said.append(self.dropout(hidden))
            if look is not None:
                looks.append(look)
                if before is not None:
                    repeated.append(torch.minimum(look.weights[:, 0], before).sum(-1))
        chosen = [look.chosen[:, 0] for look in looks if look.chosen is not None]
        return Told(
            torch.stack(said, 1),
            carried,
            torch.cat([look.weights for look in looks], 1) if looks else None,
            torch.stack(chosen, 1) if chosen else None,
            torch.stack(repeated, 1) if repeated else None,
        )

    def _step(
        self, token: Tensor, carried: Carried, source: Source, last: Tensor
    ) -> tuple[Tensor, Carried, Look | None]:
        look, read, before = None, [token], carried.memory[-1][0][:, 0]
        context = None
        if self.looking is None and self.config.context == "all":
            context = last.repeat_interleave(len(token) // len(last), 0)
            read.append(context)
        if self.looking is not None and self.config.looks == "before":
            look = self._look(before, carried, source)
            context = look.context[:, 0]
            read.append(context)
        if carried.fed is not None:
            read.append(carried.fed)
        state, memory = self.stack.step(torch.cat(read, -1), carried.memory)
        if self.looking is not None and self.config.looks == "after":
            look = self._look(state, carried, source)
            context = look.context[:, 0]
        hidden = self._read_out(before if self.config.readout_before else state, context, token)
        covered = None
        if carried.covered is not None and look is not None:
            covered = carried.covered + look.weights[:, 0]
        return hidden, Carried(carried.step + 1, memory, None if carried.fed is None else hidden, covered), look

    def _look(self, query: Tensor, carried: Carried, source: Source) -> Look:
        """Rows of one source look together. Shape: (B, D) -> a look of (B, 1, ...)."""
        assert self.looking is not None
        sources, length = source.values.shape[:2]
        covered = None if carried.covered is None else carried.covered.view(sources, -1, length)
        asked = query.view(sources, -1, query.shape[-1])
        steps = torch.full((asked.shape[1],), carried.step, device=query.device)
        look: Look = self.looking(asked, source, steps, covered)
        chosen = None if look.chosen is None else look.chosen.reshape(-1, 1)
        return Look(look.context.flatten(0, 1)[:, None], look.weights.flatten(0, 1)[:, None], chosen)

    def _read_out(self, state: Tensor, context: Tensor | None, token: Tensor) -> Tensor:
        if self.out is None:
            return state
        parts = [state] if context is None else [context, state]
        if self.config.readout == "tanh":
            return torch.tanh(self.out(torch.cat(parts, -1)))
        return self.out(torch.cat([*parts, token], -1)).unflatten(-1, (-1, 2)).amax(-1)  # type: ignore[no-any-return]
