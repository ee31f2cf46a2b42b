"""Losses on held-out text: means over all that was asked, and nothing told of what was not."""

import torch
from torch import nn

from sesame.data.batch import Batch
from sesame.objectives.base import Term
from sesame.train.held_out import held_out
from sesame.train.precision import choose_machine


def term(name: str, total: float, count: int, hits: int) -> Term:
    return Term(name, torch.tensor(total), torch.tensor(count), hits=torch.tensor(hits))


def test_a_term_that_asks_nothing_is_not_told_as_perfect() -> None:
    """A few words of held-out text may have no masked place: its loss is unknown, not 0."""
    batches = [Batch(torch.zeros(1, 2, dtype=torch.long), torch.tensor([2]))] * 2
    answers = iter([[term("mlm", 0.0, 0, 0), term("sop", 3.0, 4, 1)], [term("mlm", 0.0, 0, 0), term("sop", 1.0, 4, 3)]])
    found = held_out(nn.Identity(), lambda batch: next(answers), batches, choose_machine("cpu"))
    assert found == {"sop": 0.5, "sop_accuracy": 0.5}
