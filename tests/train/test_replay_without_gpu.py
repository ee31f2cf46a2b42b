"""What is copied into a recording and out of it, with a stand-in for CUDA graphs that computes the step anew each time."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch

from sesame.backbones import Encoder, EncoderConfig
from sesame.data.batch import Batch, Targets
from sesame.objectives.base import Together
from sesame.objectives.model import Model
from sesame.tasks import TaskConfig, build_task
from sesame.train import replay as replaying
from sesame.train.adapt import Adapt, prepare
from sesame.train.loop import Window, take_step
from sesame.train.optim import OptimConfig, build_optimizer
from sesame.train.precision import Machine
from sesame.train.replay import PLAIN, Replay
from sesame.train.shadow import Shadow
from sesame.train.step import Told, one_step

CPU = torch.device("cpu")
MACHINE = Machine(CPU, "bf16")


class Graph:
    """A recording computes nothing; playing it computes with whatever then lies in the tensors that were recorded."""

    def __init__(self) -> None:
        self.played = 0
        self.kept: tuple[Any, Told]

    def replay(self) -> None:
        arguments, told = self.kept
        self.played += 1
        fresh = one_step(*arguments)
        assert fresh.names == told.names
        told.values.copy_(fresh.values)


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    made: list[Graph] = []
    recording, names = [False], [()]

    def make() -> Graph:
        made.append(Graph())
        return made[-1]

    class Recorder:
        def __init__(self, *_: Any, **__: Any) -> None: ...
        def __enter__(self) -> None:
            recording[0] = True

        def __exit__(self, *_: object) -> None:
            recording[0] = False

    def step(*arguments: Any) -> Told:
        if not recording[0]:
            told = one_step(*arguments)
            names[0] = told.names
            return told
        told = Told(names[0], torch.zeros(len(names[0]), dtype=torch.float64))
        assert all(isinstance(group["lr"], torch.Tensor) for group in arguments[2].groups())
        made[-1].kept = ((*arguments[:2], _Recorded(*arguments[1:3]), *arguments[3:]), told)
        return told

    monkeypatch.setattr(torch.cuda, "CUDAGraph", make)
    monkeypatch.setattr(torch.cuda, "graph", Recorder)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: 0)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_stream", nullcontext)
    monkeypatch.setattr(replaying, "one_step", step)
    return made


class _Recorded:
    """An optimiser that reads the rate from where a recording reads it."""

    def __init__(self, call: Replay, inner: Any) -> None:
        self.call, self.inner = call, inner

    def zero_grad(self) -> None:
        self.inner.zero_grad()

    def step(self) -> None:
        for group in self.inner.groups():
            group["lr"] = float(self.call.rate) * group.get("scale", 1.0)
        self.inner.step()


def _batch(seed: int, joined: bool) -> Batch:
    luck = torch.Generator().manual_seed(seed)
    lengths = torch.randint(3, 20, (8,), generator=luck)
    labels = torch.randint(0, 3, (8,), generator=luck)
    batch = Batch(torch.randint(1, 100, (8, 20), generator=luck), lengths)
    batch = batch.with_targets(label=Targets(labels, rows=torch.arange(8)))
    return batch.over(batch.joined()) if joined else batch


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("decay", [1.0, 0.5])
def test_batches_rates_and_figures_reach_the_recording(graphs: list[Graph], decay: float, joined: bool) -> None:
    ends, seen = [], []
    for kind in (Shadow, Replay):
        torch.manual_seed(0)
        backbone = Encoder(EncoderConfig(100, 16, 2, 2, dropout=0.1, attention_dropout=0.0))
        task = build_task("label", TaskConfig("classify", ("a", "b", "c")), backbone, 0.0)
        model = Model(backbone, Together({"label": task})).train()
        call, window = kind(model), Window()
        optimizer = build_optimizer(model, OptimConfig(rate=1e-3), prepare(model, Adapt(layer_decay=decay)))
        for step in range(PLAIN + 5):
            optimizer.set_rate(1e-2 / (1 + step))  # every step another
            take_step(model, call, optimizer, [_batch(step, joined)], 1.0, MACHINE, step, window)
        ends.append([p.detach().clone() for p in model.parameters()])
        seen.append(window.read())
    assert [graph.played for graph in graphs] == [5]
    assert seen[0].tokens == seen[1].tokens
    assert seen[0].losses == pytest.approx(seen[1].losses, rel=1e-6)
    assert seen[0].norms == pytest.approx(seen[1].norms, rel=1e-6)
    for plain, played in zip(*ends, strict=True):
        assert torch.allclose(plain, played, atol=1e-6)
