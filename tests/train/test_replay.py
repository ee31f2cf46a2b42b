"""Played back, a step is the same step: needs a GPU."""

import math
from typing import Literal

import pytest
import torch

from sesame.backbones import Encoder, EncoderConfig
from sesame.data.batch import Batch, Targets
from sesame.objectives import Vocab, build
from sesame.objectives.base import Together
from sesame.objectives.mlm import MaskedLMConfig
from sesame.objectives.model import Model
from sesame.tasks import TaskConfig, build_task
from sesame.train.loop import Window, take_step
from sesame.train.optim import OptimConfig, build_optimizer
from sesame.train.precision import choose_machine
from sesame.train.replay import PLAIN, Replay
from sesame.train.shadow import Shadow

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="records CUDA graphs")


def _model(dropout: float) -> Model:
    torch.manual_seed(0)
    backbone = Encoder(EncoderConfig(100, 64, 3, 4, dropout=dropout, attention_dropout=dropout))
    task = build_task("label", TaskConfig("classify", ("a", "b", "c")), backbone, dropout)
    return Model(backbone, Together({"label": task})).cuda().train()


def _batch(seed: int) -> Batch:
    luck = torch.Generator().manual_seed(seed)
    lengths = torch.randint(3, 20, (8,), generator=luck)
    ids = torch.randint(1, 100, (8, 32), generator=luck)
    targets = Targets(torch.randint(0, 3, (8,), generator=luck), rows=torch.arange(8))
    return Batch(ids, lengths).with_targets(label=targets).unpadded(256).to(torch.device("cuda"), pin=True)


@needs_gpu
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_recorded_steps_equal_plain_ones(dropout: float) -> None:
    machine = choose_machine("cuda", "bf16")
    ends, losses = [], []
    for kind in (Shadow, Replay):
        model = _model(dropout)
        call, window = kind(model), Window()
        optimizer = build_optimizer(model, OptimConfig(rate=1e-3))
        for step in range(PLAIN + 6):
            if step == PLAIN + 3:  # a layer that is frozen on the way
                model.backbone.blocks[0].requires_grad_(False)
            take_step(model, call, optimizer, [_batch(step)], 1.0, machine, step, window)
        ends.append([p.detach().clone() for p in model.parameters()])
        losses.append(torch.tensor(window.read().losses))
    assert isinstance(call, Replay)
    assert call.known
    assert torch.allclose(losses[0], losses[1], atol=2e-3)
    for plain, played in zip(*ends, strict=True):
        assert float((plain - played).abs().max()) < 2e-3


def _masked(dropout: float) -> Model:
    torch.manual_seed(0)
    backbone = Encoder(EncoderConfig(100, 64, 3, 4, dropout=dropout, attention_dropout=dropout))
    objective = build(
        {"mlm": MaskedLMConfig()}, backbone, Vocab(100, {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4})
    )
    return Model(backbone, objective).cuda().train()


def _full_rows(model: Model, seed: int) -> Batch:
    luck = torch.Generator().manual_seed(seed)
    ids, keys = torch.randint(5, 100, (8, 32), generator=luck), torch.randint(0, 2**62, (8,), generator=luck)
    return model.objective.corrupt(Batch(ids, torch.full((8,), 32), keys=keys, full=True)).to(
        torch.device("cuda"), pin=True
    )


@needs_gpu
@pytest.mark.parametrize(("dropout", "optim"), [(0.0, "adamw"), (0.2, "adamw"), (0.0, "muon")])
def test_what_was_compiled_can_be_recorded(dropout: float, optim: Literal["adamw", "muon"]) -> None:
    machine = choose_machine("cuda", "bf16")
    ends = []
    for kind in (Shadow, Replay):
        model = _masked(dropout)
        call, window = kind(model, lambda copy: torch.compile(copy, dynamic=False)), Window()
        optimizer = build_optimizer(model, OptimConfig(optim, rate=1e-3))
        for step in range(PLAIN + 6):
            take_step(model, call, optimizer, [_full_rows(model, step)], 1.0, machine, step, window)
        ends.append([p.detach().clone() for p in model.parameters()])
    assert isinstance(call, Replay)
    assert call.known
    for plain, played in zip(*ends, strict=True):
        assert float((plain - played).abs().max()) < 2e-3


@needs_gpu
def test_idle_weights_stay_as_they_are() -> None:
    model = _model(0.0)
    idle = torch.nn.Linear(4, 4).cuda()
    model.add_module("idle", idle)
    before = idle.weight.detach().clone()
    call, optimizer = Replay(model), build_optimizer(model, OptimConfig(rate=1e-2, decay=0.1))
    for step in range(PLAIN + 4):
        take_step(model, call, optimizer, [_batch(step)], 1.0, choose_machine("cuda", "bf16"), step, Window())
    assert call.known
    assert torch.equal(idle.weight, before)


@needs_gpu
def test_what_was_forgotten_is_recorded_again() -> None:
    machine = choose_machine("cuda", "bf16")
    model, window = _model(0.0), Window()
    call, optimizer = Replay(model), build_optimizer(model, OptimConfig(rate=1e-3))
    for step in range(3 * (PLAIN + 2)):
        if step % (PLAIN + 2) == 0:
            call.forget()
        take_step(model, call, optimizer, [_batch(0)], 1.0, machine, step, window)
    assert call.known
    assert call.most > 0


@needs_gpu
def test_a_recording_that_fails_leaves_everything_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = choose_machine("cuda", "bf16")
    model, window = _model(0.0), Window()
    call, optimizer = Replay(model), build_optimizer(model, OptimConfig(rate=1e-3))
    before = torch.cuda.current_stream()

    def fails(*_: object) -> None:
        torch.cuda.set_stream(torch.cuda.Stream())
        raise RuntimeError("no memory")

    monkeypatch.setattr(call, "_record", fails)
    for step in range(PLAIN + 3):
        take_step(model, call, optimizer, [_batch(0)], 1.0, machine, step, window)
    assert torch.cuda.current_stream() == before
    assert not call.known
    assert all(map(math.isfinite, window.read().losses))
