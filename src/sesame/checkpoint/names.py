"""Reversible tables between our parameter names and those of another library.

A `Row` says which of their tensors make one of ours; several are joined along the first axis (Q, K and V are one matrix
here). The same list, read the other way, is the export.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Row:
    ours: str
    theirs: tuple[str, ...]
    rows: int = 0  # if not 0: ours is padded beyond so many rows, theirs is not
    turned: bool = False  # theirs is applied from the other side: a matrix (in, out), as GPT's are

    def give(self, tensor: Tensor) -> dict[str, Tensor]:
        """Ours to theirs."""
        tensor = tensor[: self.rows] if self.rows else tensor
        parts = tensor.chunk(len(self.theirs)) if len(self.theirs) > 1 else (tensor,)
        given = (part.t() if self.turned else part for part in parts)
        return {name: part.contiguous() for name, part in zip(self.theirs, given, strict=True)}

    def get(self, found: Mapping[str, Tensor], shape: torch.Size) -> Tensor:
        """Theirs to ours."""
        parts = [found[name].t() if self.turned else found[name] for name in self.theirs]
        tensor = torch.cat(parts) if len(parts) > 1 else parts[0]
        if self.rows and tensor.shape[0] == self.rows < shape[0]:
            tensor = torch.cat([tensor, tensor.new_zeros(shape[0] - self.rows, *shape[1:])])
        return tensor


def export_state(table: Iterable[Row], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Every tensor of ours under their names; a tensor that the table does not know is an error of the table."""
    left = dict(state)
    given: dict[str, Tensor] = {}
    for row in table:
        if row.ours in left:
            given.update(row.give(left.pop(row.ours)))
    if left:
        raise KeyError(f"no name in the table for {sorted(left)}")
    return given


def import_state(
    table: Iterable[Row], found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], list[str], list[str]]:
    """Their tensors under our names; also ours that are missing, and theirs that were not used."""
    state: dict[str, Tensor] = {}
    used: set[str] = set()
    for row in table:
        if row.ours in wanted and all(name in found for name in row.theirs):
            state[row.ours] = row.get(found, wanted[row.ours].shape)
            used.update(row.theirs)
    return state, sorted(set(wanted) - set(state)), sorted(set(found) - used)
