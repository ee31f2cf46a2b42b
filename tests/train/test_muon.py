"""Muon for many matrices at once moves them as PyTorch's own moves each."""

import pytest
import torch
from torch import nn

from sesame.backbones import RecurrentSeq2Seq, RecurrentSeq2SeqConfig
from sesame.errors import SesameError
from sesame.train.muon import BatchedMuon, orthogonal
from sesame.train.optim import OptimConfig, build_optimizer

SHAPES = [(12, 8), (8, 12), (12, 8), (8, 8), (24, 8), (8, 12)]


def test_steps_are_those_of_pytorch() -> None:
    torch.manual_seed(0)
    starts = [torch.randn(shape) for shape in SHAPES]
    sides = []
    for kind in (torch.optim.Muon, BatchedMuon):
        weights = [nn.Parameter(start.clone()) for start in starts]
        optimizer = kind(weights, lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
        for step in range(5):
            torch.manual_seed(step)
            for number, p in enumerate(weights):
                p.grad = None if number == 3 and step < 2 else torch.randn_like(p)  # one begins to learn later
            optimizer.step()
        sides.append((weights, optimizer))
    (theirs, their), (ours, our) = sides
    for a, b, start in zip(theirs, ours, starts, strict=True):
        assert float((a - b).detach().norm() / (a - start).detach().norm()) < 0.02  # products in bf16, in another order
        assert torch.allclose(their.state[a]["momentum_buffer"], our.state[b]["momentum_buffer"], atol=1e-6)


def test_the_rate_may_be_a_tensor() -> None:
    """As a recorded step has it."""
    ends = []
    for rate in (0.01, torch.tensor(0.01)):
        torch.manual_seed(0)
        weights = [nn.Parameter(torch.randn(shape)) for shape in SHAPES]
        optimizer = BatchedMuon(weights, lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
        for p in weights:
            p.grad = torch.randn_like(p)
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        ends.append(weights)
    for plain, tensor in zip(*ends, strict=True):
        assert torch.allclose(plain, tensor, atol=1e-7)


def test_singular_values_come_near_one() -> None:
    torch.manual_seed(0)
    found = orthogonal(torch.randn(3, 16, 40), (3.4445, -4.775, 2.0315), 5, 1e-7).float()
    values = torch.linalg.svdvals(found)
    assert 0.5 < float(values.min()) < float(values.max()) < 1.5


def test_what_stays_with_adamw_may_have_a_rate_of_its_own() -> None:
    model = torch.nn.ModuleDict({"table": torch.nn.Embedding(5, 4), "blocks": torch.nn.Linear(4, 4)})
    optimizer = build_optimizer(model, OptimConfig(kind="muon", rate=1e-2, rest=0.25))
    rates = {id(p): group["lr"] for group in optimizer.groups() for p in group["params"]}
    assert rates[id(model["blocks"].weight)] == 1e-2
    assert rates[id(model["table"].weight)] == rates[id(model["blocks"].bias)] == 2.5e-3
    optimizer.set_rate(2e-2)
    assert {group["lr"] for group in optimizer.groups()} == {2e-2, 5e-3}
    with pytest.raises(SesameError, match="muon alone"):
        OptimConfig(kind="adamw", rest=0.5)


def test_a_model_without_matrices_for_it_is_told() -> None:
    """A recurrent translator has none; PyTorch's own words would be "empty parameter list", in a traceback."""
    model = RecurrentSeq2Seq(RecurrentSeq2SeqConfig(vocab=20, width=8, depth=1))
    with pytest.raises(SesameError, match="take adamw"):
        build_optimizer(model, OptimConfig(kind="muon"))
